"""The call that some of the query heads of a call make by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headwise import masks
from headwise.ops.arguments import Call


def of_heads(call: Call, heads: Sequence[int]) -> Call:
    """Return the call of these query heads alone, each with a KV head of its own."""
    index = torch.tensor(heads, device=call.query.device)
    of_group = index // call.group_size

    def picked(tensor: Tensor) -> Tensor:
        """Return what a mask or bias, `[batch, head, seq, kv]`, says of the heads."""
        return tensor if tensor.shape[1] == 1 else tensor[:, index]

    sizes, visibility = call.sizes, call.visibility
    return replace(
        call,
        query=call.query[:, index],
        key=call.key[:, of_group],
        value=call.value[:, of_group],
        visibility=replace(
            visibility,
            sizes=masks.Sizes(sizes.batch, len(heads), sizes.seq_len, sizes.kv_len),
            boolean=tuple(map(picked, visibility.boolean)),
            additive=tuple(map(picked, visibility.additive)),
        ),
        sinks=None if call.sinks is None else call.sinks[index],
        head_gates=None if call.head_gates is None else call.head_gates[:, index],
    )
