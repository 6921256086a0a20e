"""The catalogue of known faults: what was done, the mend, and the knobs of the recipe that do it."""

from headwise.verbs.check.faults.entry import Change, Entry
from headwise.verbs.check.faults.extra import EXTRA
from headwise.verbs.check.faults.of_heads import OF_HEADS, OF_PROJECTIONS
from headwise.verbs.check.faults.of_masks import OF_MASKS
from headwise.verbs.check.faults.of_positions import OF_CAUSALITY, OF_ROTATION
from headwise.verbs.check.faults.of_scores import OF_SCALE, OF_SIXTEEN_BITS, OF_SOFTMAX

ENTRIES = (
    *OF_SCALE, *OF_SOFTMAX, *OF_HEADS, *OF_PROJECTIONS, *OF_ROTATION, *OF_CAUSALITY,
    *OF_MASKS, *OF_SIXTEEN_BITS,
)  # fmt: skip
"""Faults that a recipe computes."""

FAULTS = (*(entry.fault for entry in ENTRIES), *EXTRA)
"""Every fault that can be named or cautioned of."""

__all__ = ["ENTRIES", "FAULTS", "Change", "Entry"]
