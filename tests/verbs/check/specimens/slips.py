"""Every fault, made by a change that people make, in two styles of code or more; and pairs of them."""

from __future__ import annotations

from . import slips_layout, slips_masks, slips_scores
from .injecting import Slip, slip

SLIPS: list[Slip] = [
    *slips_scores.SCALE,
    *slips_scores.SOFTMAX,
    *slips_scores.ORDER,
    *slips_scores.BIAS,
    *slips_scores.PRECISION,
    *slips_scores.REPEATED,
    *slips_scores.DROPOUT,
    *slips_layout.SPLITTING,
    *slips_layout.JOINING,
    *slips_layout.KV_HEADS,
    *slips_layout.PROJECTIONS,
    *slips_masks.CAUSAL,
    *slips_masks.WINDOW,
    *slips_masks.MASK,
    *slips_masks.ROTARY,
]

CAUTIONED = slips_masks.CAUTIONED

# Pairs, written out: what one person gets wrong in one sitting.
_PAIRED = [
    ("small_gpt", "scale-missing", "causal-sees-one-ahead"),
    ("small_gpt", "heads-joined-by-view", "query-and-key-swapped"),
    ("small_gpt", "softmax-over-queries", "output-projection-missing"),
    ("small_gpt", "scale-missing", "softmax-over-queries"),
    ("llama_like", "scale-missing", "kv-heads-tiled"),
    ("llama_like", "kv-heads-tiled", "rotary-offset-ignored"),
    ("annotated", "scale-by-head-count", "output-projection-missing"),
    ("written_out", "softmax-over-queries", "kv-heads-tiled"),
    ("vision", "softmax-over-heads", "scale-squared"),
    ("bert_like", "scale-squared", "heads-concatenated-in-wrong-order"),
    ("full_width", "scale-by-d-model", "heads-split-by-view"),
    ("from_weights", "causal-sees-one-ahead", "output-projection-transposed"),
    ("neox_like", "causal-upper-left", "rotary-on-values"),
    ("jax_port", "scale-by-head-count", "bias-after-softmax"),
    ("sliding", "softcap-after-mask", "window-off-by-one"),
    ("gpt2_port", "key-and-value-swapped", "output-projection-transposed"),
    ("gpt2_port", "causal-upper-left", "masked-values-leak"),
]


def _found(fault: str, specimen: str) -> Slip:
    return next(each for each in SLIPS if (each.fault, each.specimen) == (fault, specimen))


def _both(specimen: str, one: str, other: str) -> Slip:
    first, second = _found(one, specimen), _found(other, specimen)
    declared = {**first.declared, **second.declared}
    return slip(f"{one} and {other}", specimen, *first.changes, *second.changes, **declared)


PAIRS = [_both(*each) for each in _PAIRED]
