"""The CPU kernel's bits: every promise on problems of all kinds, and proof that each one can fail."""

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwise import ops
from headwise.kernels.geometry import TILE
from headwise.masks import Dense, as_mask
from headwise.ops import AttentionResult

from ..attention_cases import (
    KINDS,
    LAYOUTS,
    Case,
    all_masks,
    all_options,
    laid_out,
    tensors,
)
from ..tolerance import assert_within_rule
from . import promises
from .bits import assert_same_bits, bits, threads
from .promises import PROMISES, Promise, of
from .ways import by_kernel, hold, takes

IMPL: Any = "cpu"
attend = partial(ops.attention_with_logsumexp, impl=IMPL)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
HEADS = ((1, 1), (4, 4), (6, 2), (7, 1), (8, 4))
EDGES = (TILE - 1, TILE, TILE + 1, 2 * TILE - 1, 2 * TILE + 1)
HEAD_DIMS = (1, 7, 33, 64, 80, 128, 256)
MASKS = sorted({*all_masks(2, 6, 5, 5), *all_masks(2, 6, 5, 7)})
OPTIONS = sorted(all_options(2, 6, 5, 7))
PROBLEMS = 21


def problem(
    *,
    batch: int,
    heads: tuple[int, int],
    seq_len: int,
    kv_len: int,
    head_dim: int,
    value_head_dim: int,
    dtype: torch.dtype,
    kind: str,
    mask: str,
    options: str,
) -> Case:
    """Return a problem; with packed documents its sizes are adjusted to what they need."""
    if mask.startswith("packed"):
        seq_len = kv_len if mask != "packed cross" else min(seq_len, kv_len - 1)
    sizes = (batch, heads[0], seq_len, kv_len)
    made = tensors(
        kind,
        batch=batch,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        seq_len=seq_len,
        kv_len=kv_len,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        dtype=dtype,
    )
    chosen = {"mask": all_masks(*sizes)[mask], **all_options(*sizes)[options]}
    return Case(f"{mask}, {options}, {kind}, {sizes}, {head_dim}, {value_head_dim}, {dtype}", *made, chosen)


def dealt_problems() -> list[Case]:
    """Return problems in which every choice occurs, equally often and in company of others each time."""
    rng = np.random.default_rng(11)

    def deal(choices: Any) -> list[Any]:
        return [choices[i % len(choices)] for i in rng.permutation(PROBLEMS)]

    choices = {
        "batch": (1, 2, 3),
        "heads": HEADS,
        "seq_len": (2, 1, 13, 67, TILE + 1),
        "kv_len": EDGES,
        "head_dim": HEAD_DIMS,
        "value_head_dim": HEAD_DIMS,
        "dtype": DTYPES,
        "kind": KINDS,
        "mask": MASKS,
        "options": OPTIONS,
    }
    dealt = {name: deal(of_it) for name, of_it in choices.items()}
    return [problem(**{name: cards[number] for name, cards in dealt.items()}) for number in range(PROBLEMS)]


def named(given: Any) -> str:
    return given.name if isinstance(given, Case) else given.__name__


@pytest.mark.parametrize("case", dealt_problems(), ids=named)
@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_promise(promise: Promise, case: Case) -> None:
    promise(attend, case)


@pytest.mark.parametrize("case", dealt_problems(), ids=named)
def test_attention_gives_the_bits_of_attention_with_logsumexp(case: Case) -> None:
    output, logsumexp = of(attend, case)
    alone = ops.attention(case.query, case.key, case.value, impl=IMPL, **case.options)
    assert_same_bits(AttentionResult(alone, logsumexp), AttentionResult(output, logsumexp), case.name)


# The dealt problems have each mask once; this promise is about all of them.
@pytest.mark.parametrize(("seq_len", "kv_len"), [(TILE + 1, TILE + 1), (19, TILE + 3)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_mask_as_a_tensor(seq_len: int, kv_len: int, dtype: torch.dtype) -> None:
    made = tensors("peaked", seq_len=seq_len, kv_len=kv_len, head_dim=33, dtype=dtype)
    for name, mask in all_masks(2, 6, seq_len, kv_len).items():
        promises.with_the_mask_as_a_tensor(attend, Case(name, *made, {"mask": mask}))


@st.composite
def drawn_problems(draw: st.DrawFn) -> Case:
    kv_len = draw(st.integers(3, 40) | st.sampled_from(EDGES))
    case = problem(
        batch=draw(st.integers(1, 3)),
        heads=draw(st.sampled_from(HEADS)),
        seq_len=draw(st.integers(1, 20)),
        kv_len=kv_len,
        head_dim=draw(st.integers(1, 40) | st.sampled_from(HEAD_DIMS)),
        value_head_dim=draw(st.integers(1, 40) | st.sampled_from(HEAD_DIMS)),
        dtype=draw(st.sampled_from(DTYPES)),
        kind=draw(st.sampled_from(KINDS)),
        # Documents as long as the keys make the reference slow; the dealt problems have them.
        mask=draw(st.sampled_from([name for name in MASKS if kv_len < TILE or name not in SQUARE])),
        options=draw(st.sampled_from(OPTIONS)),
    )
    given = [laid_out(each, draw(st.sampled_from(LAYOUTS))) for each in (case.query, case.key, case.value)]
    return Case(case.name, *given, case.options)


SQUARE = ("packed", "packed causal")


@settings(max_examples=150, derandomize=True, deadline=None)
@given(case=drawn_problems(), count=st.integers(1, 8), promise=st.sampled_from(PROMISES))
def test_any_problem_is_right_and_keeps_a_promise(case: Case, count: int, promise: Promise) -> None:
    with threads(count):
        if takes(by_kernel, case.query, case.options):
            assert_right(case)
            promise(attend, case)
        else:
            hold(by_kernel, case)


def assert_right(case: Case) -> None:
    """Hold the kernel to the caps of the tolerance rule; on few numbers its baseline is exact by luck."""
    found, no_baseline = by_kernel(case.query, case.key, case.value, **case.options), torch.tensor(torch.inf)
    for one, exact in zip(found, case.exact, strict=True):
        assert_within_rule(one, exact, no_baseline.expand(exact.shape), case.name)


# --- each promise can be broken, and is then seen to be


def broken(when: Callable[..., Any]) -> Callable[..., AttentionResult]:
    """Return the reference, whose last logsumexp is off by one bit wherever `when` holds."""

    def attend(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> AttentionResult:
        output, logsumexp = ops.attention_with_logsumexp(query, key, value, impl="reference", **options)
        if when(query, key, value, options.get("mask")):
            bits(logsumexp)[..., -1] += 1  # in place: it is contiguous
        return AttentionResult(output, logsumexp)

    return attend


runs = count()
FAULTS: dict[Promise, Callable[..., bool]] = {
    promises.from_run_to_run: lambda *_: next(runs) % 4 == 3,
    promises.for_any_number_of_threads: lambda *_: torch.get_num_threads() == 8,
    promises.for_any_batch_and_place_in_it: lambda query, *_: query.shape[0] == 1,
    promises.for_any_subset_of_heads: lambda query, *_: query.shape[1] == 1,
    promises.for_any_strides: lambda query, key, value, mask: not value.is_contiguous(),
    promises.with_repeated_kv_heads: lambda query, key, *_: query.shape[1] == key.shape[1],
    promises.with_the_mask_as_a_tensor: lambda query, key, value, mask: isinstance(
        as_mask(mask).parts[0], Dense
    ),
    promises.with_fewer_queries: lambda query, *_: query.shape[2] == 1,
    promises.prompt_whole_or_in_chunks: lambda query, *_: query.shape[2] == 1,
    promises.with_hidden_keys_added: lambda query, key, *_: key.shape[2] > TILE,
    promises.whatever_hidden_keys_hold: lambda query, key, *_: not key.isfinite().all(),
}


def small_problem() -> Case:
    return problem(
        batch=2,
        heads=(4, 2),
        seq_len=3,
        kv_len=8,
        head_dim=5,
        value_head_dim=7,
        dtype=torch.float32,
        kind="randn",
        mask="causal upper left",
        options="sinks",
    )


@pytest.mark.parametrize("promise", PROMISES, ids=named)
def test_a_broken_promise_is_seen(promise: Promise) -> None:
    promise(broken(lambda *_: False), small_problem())
    with pytest.raises(AssertionError, match="logsumexp differs in"):
        promise(broken(FAULTS[promise]), small_problem())
