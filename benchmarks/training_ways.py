"""The works that are trained, the ways to attend in them, and the gradients in float64 they are held to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headwise import ops
from headwise.verbs.bench.backends.torch_sdpa import additive_mask
from headwise.verbs.bench.exact import ROWS
from headwise.verbs.bench.problem import SEED, Problem
from headwise.verbs.bench.works import Work

Way = Callable[[Tensor, Tensor, Tensor], Tensor]
WORKS = {
    work.name: work
    for work in (
        Work("causal", 1, 8, 8, 1024, 1024, 64, causal=True),
        Work("gqa", 1, 16, 4, 1024, 1024, 128, causal=True),
        Work("mqa", 1, 16, 1, 1024, 1024, 64, causal=True),
        Work("mqa_full", 1, 16, 1, 1024, 1024, 64),
        Work("window", 1, 8, 8, 4096, 4096, 64, causal=True, window=256),
        Work("full", 1, 8, 8, 1024, 1024, 64),
        Work("causal_bf16", 1, 8, 8, 1024, 1024, 64, causal=True, dtype="bfloat16"),
    )
}


def ways_of(problem: Problem) -> dict[str, Way]:
    """Return headwise, and every way to this work that torch has for training; masks are made beforehand.

    FlexAttention is none of them: it refuses to train on a CPU.
    """
    return {"headwise": partial(ops.attention, mask=problem.mask), **_ways_of_torch(problem)}


def _ways_of_torch(problem: Problem) -> dict[str, Way]:
    work = problem.work
    if work.window is not None or work.lengths is not None:
        boolean = problem.visible()[:, None]
        return {
            "torch_boolean": partial(scaled_dot_product_attention, attn_mask=boolean),
            "torch_additive": partial(scaled_dot_product_attention, attn_mask=additive_mask(problem)),
        }
    attend = partial(scaled_dot_product_attention, is_causal=work.causal)
    if work.num_kv_heads == work.num_heads:
        return {"torch": attend}
    return {
        "torch_grouped": partial(attend, enable_gqa=True),
        "torch_repeated": partial(_repeated, attend, work.num_heads // work.num_kv_heads),
    }


def _repeated(attend: Way, group_size: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attend(query, *(tensor.repeat_interleave(group_size, dim=1) for tensor in (key, value)))


def leaves_of(problem: Problem) -> tuple[Tensor, ...]:
    """Return query, key and value as tensors that want a gradient."""
    return tuple(tensor.detach().requires_grad_() for tensor in (problem.query, problem.key, problem.value))


def upstream_of(problem: Problem) -> Tensor:
    """Return a gradient of the output, normally distributed, the same every time."""
    random = torch.Generator().manual_seed(SEED + 1)
    return torch.randn(problem.query.shape, generator=random).to(problem.query.dtype)


def exact_gradients(problem: Problem, upstream: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value in float64, computed a block of rows at a time."""
    work = problem.work
    gradients = tuple(
        torch.zeros(tensor.shape, dtype=torch.float64)
        for tensor in (problem.query, problem.key, problem.value)
    )
    for element in range(work.batch):
        for first in range(0, work.seq_len, ROWS):
            for head in range(work.num_heads):
                _add_rows(problem, upstream, gradients, (element, head, slice(first, first + ROWS)))
    return gradients


def _add_rows(
    problem: Problem, upstream: Tensor, gradients: tuple[Tensor, ...], place: tuple[int, int, slice]
) -> None:
    """Add what some rows of one head bring; only the keys from their first to their last visible one."""
    element, head, rows = place
    start, stop = (
        torch.from_numpy(edge[element if edge.shape[0] > 1 else 0, rows])[:, None]
        for edge in (problem.intervals.start, problem.intervals.stop)
    )
    seen = slice(int(start.min()), int(stop.max()))
    scale, kv_head = (
        problem.work.head_dim**-0.5,
        head // (problem.work.num_heads // problem.work.num_kv_heads),
    )
    key, value = (tensor[element, kv_head, seen].double() for tensor in (problem.key, problem.value))
    query, grad_output = (tensor[element, head, rows].double() for tensor in (problem.query, upstream))

    keys = torch.arange(seen.start, seen.stop)
    hidden = (keys < start) | (keys >= stop)
    weights = torch.softmax((scale * query @ key.mT).masked_fill(hidden, -torch.inf), dim=-1)
    grad_weights = grad_output @ value.mT
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True))

    grad_query, grad_key, grad_value = gradients
    grad_query[element, head, rows] = scale * grad_scores @ key
    grad_key[element, kv_head, seen] += scale * grad_scores.mT @ query
    grad_value[element, kv_head, seen] += weights.mT @ grad_output
