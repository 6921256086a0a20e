"""The bitwise promises of the CPU kernel: what may change about a call without changing a bit of its result.

Each promise takes `attend`, called as `attention_with_logsumexp` is, and one problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from headwise.kernels.geometry import TILE
from headwise.masks import Causal, Dense, Lengths, Window
from headwise.ops import AttentionResult

from ..attention_cases import LAYOUTS, Case, laid_out
from ..mutants import Attend
from .bits import (
    assert_same_bits,
    batch_elements,
    changed,
    first_keys,
    kv_heads,
    query_heads,
    query_rows,
    threads,
    with_dense_mask,
)


def of(attend: Attend, case: Case) -> AttentionResult:
    return attend(case.query, case.key, case.value, **case.options)


def picked(result: AttentionResult, *index: Any) -> AttentionResult:
    return AttentionResult(result.output[index], result.logsumexp[index])


def from_run_to_run(attend: Attend, case: Case) -> None:
    first = of(attend, case)
    for run in range(2, 5):
        assert_same_bits(of(attend, case), first, f"run {run}")


def for_any_number_of_threads(attend: Attend, case: Case) -> None:
    with threads(1):
        one = of(attend, case)
    for count in range(2, 9):
        with threads(count):
            assert_same_bits(of(attend, case), one, f"{count} threads")


def for_any_batch_and_place_in_it(attend: Attend, case: Case) -> None:
    whole, batch = of(attend, case), case.query.shape[0]
    orders = [[b] for b in range(batch)] + [[*reversed(range(batch))], [*range(batch), *range(batch)]]
    for order in orders:
        assert_same_bits(of(attend, batch_elements(case, order)), picked(whole, order), f"batch of {order}")


def for_any_subset_of_heads(attend: Attend, case: Case) -> None:
    whole, num_heads, num_kv_heads = of(attend, case), case.query.shape[1], case.key.shape[1]
    for order in ([0], [num_heads - 1], [*reversed(range(num_heads))], [*range(0, num_heads, 2)]):
        part = of(attend, query_heads(case, order))
        assert_same_bits(part, picked(whole, slice(None), order), f"heads {order}")
    for order in ([num_kv_heads - 1], [*reversed(range(num_kv_heads))]):
        group_size = num_heads // num_kv_heads
        group = [kv_head * group_size + member for kv_head in order for member in range(group_size)]
        part = of(attend, kv_heads(case, order))
        assert_same_bits(part, picked(whole, slice(None), group), f"KV heads {order}")


def for_any_strides(attend: Attend, case: Case) -> None:
    tensors = (case.query, case.key, case.value)
    for number, layout in enumerate(LAYOUTS):
        for layouts in ([layout] * 3, [LAYOUTS[(number + place) % len(LAYOUTS)] for place in range(3)]):
            given = [laid_out(tensor, each) for tensor, each in zip(tensors, layouts, strict=True)]
            found = attend(*given, **_strided(case, layout).options)
            plain = attend(*(tensor.contiguous() for tensor in given), **case.options)
            assert_same_bits(found, plain, f"layouts {layouts}")


def _strided(case: Case, layout: str) -> Case:
    """Return `case` with its masks and biases in other strides too; what `expanded` would do changes them."""

    def strided(dense: Tensor) -> Tensor:
        if layout == "expanded" or not dense.is_floating_point():
            return dense.mT.contiguous().mT
        return laid_out(dense, layout)

    return changed(case, strided)


def with_repeated_kv_heads(attend: Attend, case: Case) -> None:
    repeated = query_heads(case, range(case.query.shape[1]))
    assert_same_bits(of(attend, repeated), of(attend, case), "KV heads repeated")


def with_the_mask_as_a_tensor(attend: Attend, case: Case) -> None:
    given = of(attend, case)
    dense = with_dense_mask(case)
    assert_same_bits(of(attend, dense), given, "mask as a boolean tensor")

    full = (*case.query.shape[:3], case.key.shape[2])
    expanded = changed(dense, lambda part: part.expand(full))
    assert_same_bits(of(attend, expanded), given, "masks and bias expanded")

    floats = changed(
        dense, lambda part: torch.zeros(()).where(part, -torch.inf) if _is_boolean(part) else part
    )
    if "bias" not in case.options and not any(map(_is_float, dense.options["mask"].parts)):
        assert_same_bits(of(attend, floats), given, "mask as zeros and -inf")


def _is_boolean(tensor: Tensor) -> bool:
    return tensor.dtype == torch.bool


def _is_float(part: Any) -> bool:
    return isinstance(part, Dense) and not part.is_boolean


def with_fewer_queries(attend: Attend, case: Case) -> None:
    """Whatever the mask: any rows of a call are what they are in the whole."""
    whole, seq_len = of(attend, case), case.query.shape[2]
    dense = with_dense_mask(case)
    middle = seq_len // 2
    for order in ([0], [seq_len - 1], [middle], [*range(middle)], [*range(middle, seq_len)], [0, middle] * 4):
        if order:
            part = of(attend, query_rows(dense, order))
            assert_same_bits(part, picked(whole, slice(None), slice(None), order), f"queries {order}")


def prompt_whole_or_in_chunks(attend: Attend, case: Case) -> None:
    """As many queries as keys, in causal order; each chunk of queries sees the keys up to its own end."""
    kv_len = case.key.shape[2]
    square = _with_as_many_queries_as_keys(case)
    for mask in (Causal(), Window.of(3), Causal() & Window(left=TILE), Causal() & Window.of(TILE - 7)):
        asked = replace(square, options={**square.options, "mask": mask})
        whole = of(attend, asked)
        for rows in chunks(kv_len):
            cut = first_keys(query_rows(asked, rows), rows[-1] + 1)
            expected = picked(whole, slice(None), slice(None), rows)
            assert_same_bits(of(attend, cut), expected, f"{mask}, queries {rows[0]} to {rows[-1]}")


def chunks(seq_len: int) -> Iterator[range]:
    """Yield chunks of a prompt of all kinds, single tokens around the edges of the tiles included."""
    for width in (7, 100, TILE - 1, TILE, TILE + 1):
        for start in range(0, seq_len, width):
            if start in (0, width) or start + width >= seq_len:
                yield range(start, min(start + width, seq_len))
    near = {edge + step for edge in range(0, seq_len + 1, TILE) for step in (-2, -1, 0, 1)}
    for token in sorted(near | {seq_len // 3, seq_len - 2, seq_len - 1}):
        if 0 <= token < seq_len:
            yield range(token, token + 1)


def _with_as_many_queries_as_keys(case: Case) -> Case:
    """Return `case` with its queries, and their biases, repeated to as many as there are keys."""
    order = [i % case.query.shape[2] for i in range(case.key.shape[2])]
    return query_rows(replace(case, options={**case.options, "mask": None}), order)


def with_hidden_keys_added(attend: Attend, case: Case) -> None:
    """Behind the keys any number; before them whole tiles, since tiles are counted from the first key."""
    given, dense = of(attend, case), with_dense_mask(case)
    kv_len = case.key.shape[2]
    for before, behind in [(0, n) for n in (1, 7, TILE - 1, TILE, TILE + 1, 2 * TILE)] + [
        (TILE, 0),
        (2 * TILE, 3),
    ]:
        padded = _padded(dense, before, behind)
        assert_same_bits(of(attend, padded), given, f"{before} keys before, {behind} behind")
    real = [kv_len] * case.query.shape[0]
    for mask, padded_mask, before, behind in (
        (None, Lengths(real), 0, 9),
        (Causal("upper_left"), Causal("upper_left") & Lengths(real), 0, TILE),
        (Causal(), Causal() & Lengths(real, padding="left"), TILE, 0),
        (Window.of(5), Window.of(5) & Lengths(real, padding="left"), 2 * TILE, 0),
    ):
        asked = replace(case, options={**case.options, "mask": mask})
        padded = _padded(asked, before, behind)
        padded.options["mask"] = padded_mask
        assert_same_bits(of(attend, padded), of(attend, asked), f"{mask} and {padded_mask}")


def _padded(case: Case, before: int, behind: int) -> Case:
    """Return `case` with keys added that its tensor masks hide; what lies there is NaN."""

    def padded_mask(dense: Tensor) -> Tensor:
        full = dense.expand(*dense.shape[:3], case.key.shape[2])
        return functional.pad(full, (before, behind), value=False if _is_boolean(dense) else 0.7)

    added = (0, 0, before, behind)
    key, value = (functional.pad(tensor, added, value=torch.nan) for tensor in (case.key, case.value))
    return replace(changed(case, padded_mask), key=key, value=value)


def whatever_hidden_keys_hold(attend: Attend, case: Case) -> None:
    """Rows that do not see a key do not notice NaN, infinity or large numbers in it."""
    given, kv_len = of(attend, case), case.key.shape[2]
    visible = case.visible()
    for key, filled in product(sorted({0, kv_len // 2, kv_len - 1}), (torch.nan, torch.inf, -3e4)):
        other = replace(case, key=_filled(case.key, key, filled), value=_filled(case.value, key, filled))
        hidden = ~visible[..., key]
        found, expected = (_only(result, hidden) for result in (of(attend, other), given))
        assert_same_bits(found, expected, f"{filled} in key {key} of {kv_len}")


def _filled(tensor: Tensor, key: int, number: float) -> Tensor:
    return tensor.index_fill(2, torch.tensor([key]), number)


def _only(result: AttentionResult, rows: Tensor) -> AttentionResult:
    """Return `result` with 0 in all rows but `rows`."""
    return AttentionResult(
        result.output.masked_fill(~rows[..., None], 0.0), result.logsumexp.masked_fill(~rows, 0.0)
    )


Promise = Callable[[Attend, Case], None]

PROMISES: Sequence[Promise] = (
    from_run_to_run,
    for_any_number_of_threads,
    for_any_batch_and_place_in_it,
    for_any_subset_of_heads,
    for_any_strides,
    with_repeated_kv_heads,
    with_the_mask_as_a_tensor,
    with_fewer_queries,
    prompt_whole_or_in_chunks,
    with_hidden_keys_added,
    whatever_hidden_keys_hold,
)
