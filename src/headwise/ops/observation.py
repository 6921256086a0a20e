"""Attention that reports what each head did, without storing its weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.evidence import Collect, Evidence
from headwise.ops import arguments, plain
from headwise.ops.reducers import RowFacts, first_visible_key, reducers_for
from headwise.ops.results import Observation


def observe(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    head_gates: Tensor | None = None,
    collect: Collect | None = None,
) -> Observation:
    """Return attention and the evidence of its heads, computed a block of rows at a time."""
    call = arguments.check(
        query,
        key,
        value,
        mask=mask,
        bias=bias,
        scale=scale,
        softcap=softcap,
        sinks=sinks,
        head_gates=head_gates,
    )
    collect = Collect() if collect is None else collect
    reducers = reducers_for(collect, call)
    first_key = first_visible_key(call)
    outputs, logsumexps = [], []
    for block in plain.blocks(call):
        outputs.append(block.output)
        logsumexps.append(block.logsumexp)
        facts = RowFacts.of(block, call, first_key)
        for reducer in reducers.values():
            reducer.add(facts)
    found = {name: reducer.result() for name, reducer in reducers.items()}
    output = torch.cat(outputs, dim=2).to(query.dtype)
    return Observation(output, torch.cat(logsumexps, dim=2), Evidence(**found))
