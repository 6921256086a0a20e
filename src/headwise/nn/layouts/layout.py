"""One layout: which parameters a family stores, under which names, in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headwise.nn.layouts.forms import Form
from headwise.nn.layouts.limits import Limits
from headwise.nn.layouts.rows import FusedRows

QKV = ("query", "key", "value")
ROLES = (*QKV, "qkv", "out")
"""The parts a parameter can play; its bias plays `<part>_bias`."""


@dataclass(frozen=True)
class Layout:
    """How a framework or a model family keeps the weights of an attention layer.

    Args:
        name: what it is asked for by.
        used_by: the modules that have it.
        source: where it can be looked up.
        names: the parameter's name for each part: `query key value out`, or `qkv` where three are fused; its
            bias is `<part>_bias`.
        rows: how fused rows lie; None where nothing is fused.
        form: the axes of a weight, `headwise.nn.layouts.forms` has them.
        interleaved_rotary: whether rotary pairs are neighbours, not halves.
        limits: what its modules can hold.
        skipped: names in its states that hold no weights, such as stored masks.

    Example:
        >>> from headwise.nn.layouts import LAYOUTS
        >>> LAYOUTS["gpt2"].names["qkv"], LAYOUTS["gpt2"].form
        ('c_attn.weight', 'transposed')

    """

    name: str
    used_by: str
    source: str
    names: Mapping[str, str]
    rows: FusedRows | None = None
    form: Form = "linear"
    interleaved_rotary: bool = False
    limits: Limits = field(default_factory=Limits)
    skipped: tuple[str, ...] = ()
