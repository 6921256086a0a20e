"""Which keys each query may see.

Every structured mask is one interval of visible keys per row: `start[b, i] <= j < stop[b, i]`. Causal order,
windows, padding, packed documents and prefixes all have that form, and `&` intersects them, so whatever
computes attention needs two integer arrays and no case per kind of mask. Only `Dense` carries a tensor.

In a rectangle (seq_len differs from kv_len) the query's own position has to be agreed on. With
`align="lower_right"`, the default, query i stands at key `i + kv_len - seq_len`: the last query sees all
keys, which is what a KV cache needs. With `align="upper_left"` query i stands at key i:

    lower_right, 2 x 5     upper_left, 2 x 5
    1 1 1 1 0              1 0 0 0 0
    1 1 1 1 1              1 1 0 0 0

The rooms: `mask` (what a mask is, `Dense`, `&`), `structured` (the kinds that are intervals), `causal_from`
(one more of them, behind a cache of ragged rows), `shapes` (how a tensor's axes are read), `resolving` (a
mask on given sizes).
"""

from headwise.masks.causal_from import CausalFrom
from headwise.masks.mask import Dense, Intersection, Mask, as_mask
from headwise.masks.resolving import ResolvedMask, resolve
from headwise.masks.shapes import Axes, Sizes, broadcast_shape
from headwise.masks.structured import (
    Align,
    Causal,
    Intervals,
    Lengths,
    MaskValue,
    Packed,
    Padding,
    Prefix,
    StructuredMask,
    Window,
)

__all__ = [
    "Align",
    "Axes",
    "Causal",
    "CausalFrom",
    "Dense",
    "Intersection",
    "Intervals",
    "Lengths",
    "Mask",
    "MaskValue",
    "Packed",
    "Padding",
    "Prefix",
    "ResolvedMask",
    "Sizes",
    "StructuredMask",
    "Window",
    "as_mask",
    "broadcast_shape",
    "resolve",
]
