"""Comparing results bit by bit, and cutting one attention problem out of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headwise import masks
from headwise.masks import Dense, Intersection, Lengths, Mask, Prefix
from headwise.ops import AttentionResult

from ..attention_cases import Case

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def assert_same_bits(found: AttentionResult, expected: AttentionResult, name: str) -> None:
    """Hold output and logsumexp to those expected, to the last bit; any NaN is as good as another."""
    for field, one, other in zip(found._fields, found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), f"{name}: {field} is of another kind"
        differs = (bits(one) != bits(other)) & ~(one.isnan() & other.isnan())
        if differs.any():
            places = differs.nonzero().tolist()
            first = tuple(places[0])
            raise AssertionError(
                f"{name}: {field} differs in {len(places)} of {one.numel()} places, first at {first}: "
                f"{one[first].item()!r}, expected {other[first].item()!r}"
            )


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def with_dense_mask(case: Case) -> Case:
    """Return `case` with everything boolean or structured about its mask in one tensor."""
    sizes = masks.Sizes(*case.query.shape[:3], case.key.shape[2])
    resolved = masks.resolve(case.options.get("mask"), sizes)
    seen = torch.from_numpy(resolved.intervals.visible(sizes.kv_len))[:, None]
    floats: list[Dense] = []
    for part in resolved.dense:
        if part.is_boolean:
            seen = seen & _of_rank_four(part, sizes)
        else:
            floats.append(part)
    return replace(case, options={**case.options, "mask": Intersection((Dense(seen), *floats))})


def batch_elements(case: Case, order: Sequence[int]) -> Case:
    """Return the problem of the batch elements `order`, in that order."""

    def structured(part: Mask) -> Mask:
        lengths = part.lengths if isinstance(part, Lengths | Prefix) else None
        return replace(part, lengths=[lengths[b] for b in order]) if isinstance(lengths, Sequence) else part

    cut = changed(case, lambda dense: taken(dense, 0, order), structured)
    gates = case.options.get("head_gates")
    if gates is not None and gates.dim() == 2:
        cut.options["head_gates"] = gates[list(order)]
    return replace(cut, **{name: getattr(case, name)[list(order)] for name in ("query", "key", "value")})


def query_heads(case: Case, order: Sequence[int]) -> Case:
    """Return the problem of the query heads `order`, in that order, with a KV head for each of them."""
    group_size = case.query.shape[1] // case.key.shape[1]
    return _heads(case, order, [head // group_size for head in order])


def kv_heads(case: Case, order: Sequence[int]) -> Case:
    """Return the problem of the KV heads `order`, in that order, with the query heads that read them."""
    group_size = case.query.shape[1] // case.key.shape[1]
    group = [kv_head * group_size + member for kv_head in order for member in range(group_size)]
    return _heads(case, group, order)


def _heads(case: Case, order: Sequence[int], kv_order: Sequence[int]) -> Case:
    cut = changed(case, lambda dense: taken(dense, 1, order))
    for name in ("sinks", "head_gates"):
        if name in cut.options:
            cut.options[name] = cut.options[name][..., list(order)]
    return replace(
        cut,
        query=case.query[:, list(order)],
        key=case.key[:, list(kv_order)],
        value=case.value[:, list(kv_order)],
    )


def query_rows(case: Case, order: Sequence[int]) -> Case:
    """Return the problem of the queries `order`, in that order; the mask must be all tensors."""
    cut = changed(case, lambda dense: taken(dense, 2, order))
    return replace(cut, query=case.query[:, :, list(order)])


def first_keys(case: Case, count: int) -> Case:
    """Return the problem of the first `count` keys; structured masks are left as they are."""
    cut = changed(case, lambda dense: dense if dense.shape[3] == 1 else dense[..., :count])
    return replace(cut, key=case.key[:, :, :count], value=case.value[:, :, :count])


def changed(
    case: Case, dense: Callable[[Tensor], Tensor], structured: Callable[[Mask], Mask] = lambda part: part
) -> Case:
    """Return `case` with `dense` applied to each mask and bias tensor, which it gets in rank 4.

    `structured` is applied to each other part of the mask.
    """
    sizes = masks.Sizes(*case.query.shape[:3], case.key.shape[2])

    def on(given: Any) -> Mask:
        parts = tuple(
            Dense(dense(_of_rank_four(part, sizes))) if isinstance(part, Dense) else structured(part)
            for part in masks.as_mask(given).parts
        )
        return parts[0] if len(parts) == 1 else Intersection(parts)

    options = dict(case.options)
    for name in ("mask", "bias"):
        if options.get(name) is not None:
            options[name] = on(options[name])
    return replace(case, options=options)


def taken(tensor: Tensor, axis: int, order: Sequence[int]) -> Tensor:
    """Return the places `order` along `axis`, which may have the size 1 that stands for all."""
    return tensor if tensor.shape[axis] == 1 else tensor.index_select(axis, torch.tensor(order))


def _of_rank_four(part: Dense, sizes: masks.Sizes) -> Tensor:
    return torch.as_tensor(part.tensor).reshape(part.broadcast_shape(sizes))
