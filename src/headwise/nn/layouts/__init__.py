"""Attention weights between frameworks and model families, and which layout some weights have."""

from headwise.nn.layouts.conversion import read_weights, write_weights
from headwise.nn.layouts.detect import detect_layout
from headwise.nn.layouts.detection import Detection, LayoutFit
from headwise.nn.layouts.layout import Layout
from headwise.nn.layouts.rotary import half_split, interleaved
from headwise.nn.layouts.table import LAYOUTS
from headwise.nn.layouts.weights import HeadWeights

__all__ = [
    "LAYOUTS",
    "Detection",
    "HeadWeights",
    "Layout",
    "LayoutFit",
    "detect_layout",
    "half_split",
    "interleaved",
    "read_weights",
    "write_weights",
]
