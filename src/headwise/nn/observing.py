"""Attention whose heads are watched: the output is that of an unwatched call, to the bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.ops import Implementation, Observation, attention, choose, observe
from headwise.ops.first_key import FirstKey


def checked_collect(observe: Any) -> Collect | None:
    """Return what a call is to observe, or refuse what says no such thing.

    Raises:
        ArgumentError: it is neither None nor a Collect.

    """
    if observe is None or isinstance(observe, Collect):
        return observe
    raise ArgumentError(
        f"observe={observe!r} is a {type(observe).__name__}; pass a Collect, such as Collect() for the "
        "statistics that always are, or Collect(top_k=8)"
    )


def observed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    collect: Collect,
    first_key: FirstKey = None,
    dropout: float = 0.0,
    impl: Implementation = "auto",
    **terms: Any,
) -> Observation:
    """Return what `attention` returns, with its gradient and dropout, and the evidence, which has neither.

    Args:
        query: as in `headwise.observe`, as are key, value, collect and first_key.
        key: as said.
        value: as said.
        collect: as said.
        first_key: as said.
        dropout: as in `headwise.attention`, as are all that follow.
        impl: as said.
        **terms: mask, bias and so on, which both take.

    """
    with torch.no_grad():
        seen = observe(query, key, value, collect=collect, first_key=first_key, **terms)
    if observing_is_attending(query, key, value, dropout=dropout, impl=impl, **terms):
        return seen
    return seen._replace(output=attention(query, key, value, dropout=dropout, impl=impl, **terms))


def observing_is_attending(
    query: Tensor, key: Tensor, value: Tensor, *, dropout: float, **terms: Any
) -> bool:
    """Return whether observing gives the bits of attention, so that there is no need for both."""
    if torch.is_grad_enabled() or dropout:
        return False  # what is observed has no gradient, and drops nothing
    return choose(query, key, value, **terms).path == "kernel"
