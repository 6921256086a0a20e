"""The bits of the kernel's gradients: what may change about a call without changing one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headwise.kernels import calls
from headwise.kernels.geometry import STRETCH, TILE
from headwise.masks import Causal, Dense, Lengths, Window
from headwise.ops import kernel_gradient
from headwise.ops.results import Gradients

from ..attention_cases import Case, tensors
from .bits import batch_elements, changed, kv_heads, query_heads, query_rows, threads, with_dense_mask
from .gradient_formula import Upstream
from .gradient_ways import Differentiate, assert_same_gradients, by_kernel, upstream_of
from .test_kernel_gradient import gradient_cases

Problem = tuple[Case, Upstream]


def several_tiles() -> Problem:
    made = tensors("peaked", seq_len=67, kv_len=2 * TILE + 5, head_dim=33, dtype=torch.bfloat16)
    options = {"mask": Window(left=300, right=9), "sinks": torch.linspace(-2, 2, 6)}
    case = Case("several tiles", *made, options)
    return case, upstream_of(case)


PROBLEMS = [
    *gradient_cases(torch.float32)[::13],
    *gradient_cases(torch.bfloat16)[4::27],
    *gradient_cases(torch.float16)[7::41],
    several_tiles(),
]


def rows_of(upstream: Upstream, *index: object) -> Upstream:
    output, logsumexp = upstream
    return Upstream(output[index], None if logsumexp is None else logsumexp[index])


def picked(found: Gradients, names: Sequence[str], *index: object) -> Gradients:
    """Return some of the gradients at an index, and none of the others."""
    chosen = {name: getattr(found, name) for name in names}
    cut = {name: None if each is None else each[index] for name, each in chosen.items()}
    return Gradients(**{name: cut.get(name) for name in Gradients._fields})


OWN = ("query", "key", "value")
"""Gradients to which nothing of other batch elements adds up; those of sinks come for each of them too."""


def from_run_to_run(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    first = differentiate(case, upstream)
    for run in range(2, 5):
        assert_same_gradients(differentiate(case, upstream), first, f"run {run}")


def for_any_number_of_threads(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    with threads(1):
        one = differentiate(case, upstream)
    for count in range(2, 9):
        with threads(count):
            assert_same_gradients(differentiate(case, upstream), one, f"{count} threads")


def for_any_batch_and_place_in_it(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    whole = differentiate(case, upstream)
    for order in ([0], [1], [1, 0], [0, 1, 0, 1]):
        part = differentiate(batch_elements(case, order), rows_of(upstream, order))
        names = (*OWN, "sinks")
        assert_same_gradients(picked(part, names), picked(whole, names, order), f"batch of {order}")


def for_any_subset_of_heads(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    whole = differentiate(case, upstream)
    for order in ([2], [2, 0, 1]):
        group = [kv_head * 2 + member for kv_head in order for member in range(2)]
        part = differentiate(kv_heads(case, order), rows_of(upstream, slice(None), group))
        for names, heads in ((("key", "value"), order), (("query", "sinks"), group)):
            expected = picked(whole, names, slice(None), heads)
            assert_same_gradients(picked(part, names), expected, f"KV heads {order}")


def with_repeated_kv_heads(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    repeated = differentiate(query_heads(case, range(6)), upstream)
    names = ("query", "sinks")
    assert_same_gradients(
        picked(repeated, names), picked(differentiate(case, upstream), names), "KV heads repeated"
    )


def with_the_mask_as_a_tensor(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    given, dense = differentiate(case, upstream), with_dense_mask(case)
    assert_same_gradients(differentiate(dense, upstream), given, "mask as a boolean tensor")
    full = (*case.query.shape[:3], case.key.shape[2])

    def expanded(part: Tensor) -> Tensor:
        return part.expand(full) if part.dtype == torch.bool else part

    assert_same_gradients(differentiate(changed(dense, expanded), upstream), given, "mask expanded")


def with_fewer_queries(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    """The gradient of each query is its own, whichever others there are."""
    whole, dense, seq_len = differentiate(case, upstream), with_dense_mask(case), case.query.shape[2]
    for order in ([0], [seq_len - 1], [*range(seq_len // 2, seq_len)], [3, 1, 17] * 9):
        part = differentiate(query_rows(dense, order), rows_of(upstream, slice(None), slice(None), order))
        expected = picked(whole, ["query"], slice(None), slice(None), order)
        assert_same_gradients(picked(part, ["query"]), expected, f"queries {order}")


def with_hidden_keys_added(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    """NaN in them: neither the tail of a stretch nor whole stretches of them are noticed."""
    given, dense, kv_len = differentiate(case, upstream), with_dense_mask(case), case.key.shape[2]
    for before, behind in ((0, 1), (0, 7), (0, STRETCH), (0, 2 * STRETCH + 1), (TILE, 0), (2 * TILE, 3)):
        found = differentiate(with_keys(dense, before, behind), upstream)
        real = slice(before, before + kv_len)
        for names, index in (
            (("query", "sinks"), ()),
            (("key", "value"), (slice(None), slice(None), real)),
            (("bias",), (..., real) if found.bias is not None and found.bias.shape[3] > 1 else ()),
        ):
            what = f"{before} keys before, {behind} behind"
            assert_same_gradients(picked(found, names, *index), picked(given, names), what)
        for each in (found.key, found.value):
            assert each is not None
            hidden = torch.cat([each[:, :, :before], each[:, :, before + kv_len :]], 2)
            assert (hidden == 0).all()


def with_keys(case: Case, before: int, behind: int) -> Case:
    """Return `case` with keys added that its tensor masks hide; what lies there is NaN."""

    def padded(dense: Tensor) -> Tensor:
        full = dense.expand(*dense.shape[:3], case.key.shape[2]) if dense.dtype == torch.bool else dense
        is_for_all = full.shape[3] == 1 < case.key.shape[2]
        return full if is_for_all else functional.pad(full, (before, behind))

    added = (0, 0, before, behind)
    key, value = (functional.pad(each, added, value=torch.nan) for each in (case.key, case.value))
    return replace(changed(case, padded), key=key, value=value)


def in_memory_of_nan(differentiate: Differentiate, case: Case, upstream: Upstream) -> None:
    """Neither scratch memory nor that of the results is read before it is written."""
    expected = differentiate(case, upstream)
    take, empty_like, own_empty_like = calls.take_memory, torch.empty_like, kernel_gradient._empty_like

    def poisoned_scratch(floats: int) -> object:
        memory, address = take(floats)
        memory.fill(torch.nan)
        return memory, address

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "take_memory", poisoned_scratch)
        patch.setattr(torch, "empty_like", lambda tensor: empty_like(tensor).fill_(torch.nan))
        patch.setattr(kernel_gradient, "_empty_like", lambda tensor: own_empty_like(tensor).fill_(torch.nan))
        assert_same_gradients(differentiate(case, upstream), expected, "in memory of NaN")


Promise = Callable[[Differentiate, Case, Upstream], None]
PROMISES: tuple[Promise, ...] = (
    from_run_to_run,
    for_any_number_of_threads,
    for_any_batch_and_place_in_it,
    for_any_subset_of_heads,
    with_repeated_kv_heads,
    with_the_mask_as_a_tensor,
    with_fewer_queries,
    with_hidden_keys_added,
    in_memory_of_nan,
)
every_promise = pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)


@every_promise
def test_promise(promise: Promise) -> None:
    for case, upstream in PROBLEMS:
        promise(by_kernel, case, upstream)


def test_masks_that_say_the_same() -> None:
    kv_len = 2 * STRETCH + 3
    made = tensors("randn", seq_len=29, kv_len=kv_len)
    for mask, padded_mask, before, behind in (
        (None, Lengths([kv_len] * 2), 0, 9),
        (Causal("upper_left"), Causal("upper_left") & Lengths([kv_len] * 2), 0, STRETCH),
        (Causal(), Causal() & Lengths([kv_len] * 2, padding="left"), TILE, 0),
        (Window.of(5), Window.of(5) & Lengths([kv_len] * 2, padding="left"), 2 * TILE, 0),
    ):
        asked, everything = Case(str(mask), *made, {"mask": mask}), Dense(torch.ones(1, kv_len).bool())
        padded = with_keys(Case(str(mask), *made, {"mask": everything}), before, behind)
        padded.options["mask"] = padded_mask
        upstream = upstream_of(asked)
        found, expected = by_kernel(padded, upstream), by_kernel(asked, upstream)
        assert_same_gradients(picked(found, ["query"]), picked(expected, ["query"]), asked.name)
        real = slice(None), slice(None), slice(before, before + kv_len)
        assert_same_gradients(picked(found, OWN[1:], *real), picked(expected, OWN[1:]), asked.name)


# --- each promise can be broken, and is then seen to be


@every_promise
def test_a_broken_promise_is_seen(promise: Promise) -> None:
    case, upstream = gradient_cases(torch.float32)[0]
    calls_made = 0

    def broken(case: Case, upstream: Upstream) -> Gradients:
        nonlocal calls_made
        calls_made += 1
        found = by_kernel(case, upstream)
        assert found.query is not None
        found.query[..., -1] *= 1.0 + 1e-6 * (calls_made > 1)
        return found

    with pytest.raises(AssertionError, match="query differs in"):
        promise(broken, case, upstream)
