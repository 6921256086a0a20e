"""What `torch.utils.flop_counter` counts for the torch operators: two products forward, five backward."""

from __future__ import annotations

from math import prod
from typing import Any

from torch.utils.flop_counter import register_flop_formula

from headwise.ops.registered import ATTENTION, ATTENTION_BACKWARD


@register_flop_formula(ATTENTION.overloadpacket)
def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return the operations of all scores and all weighted sums, whatever the mask hides, as torch counts."""
    return int(2 * prod(query[:3]) * key[2] * (query[3] + value[3]))


@register_flop_formula(ATTENTION_BACKWARD.overloadpacket)
def _attention_backward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return those of the scores again, and of the gradients of weights, query, key and value."""
    return int(2 * prod(query[:3]) * key[2] * (3 * query[3] + 2 * value[3]))
