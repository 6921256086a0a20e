"""How far an output is off, held to plain attention in float64, a block of rows at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.verbs.bench.problem import Problem

ROWS = 256

# What is off by more than this share of the largest exact value is wrong, not rounded.
ALLOWED = {"float32": 1e-4, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Error:
    """The largest difference from the exact output, and its share of the largest exact value; may be NaN."""

    largest: float
    relative: float
    within: bool


def exact_output(problem: Problem) -> Tensor:
    """Return attention in float64, `[batch, num_heads, seq_len, head_dim]`."""
    work = problem.work
    output = torch.empty(work.batch, work.num_heads, work.seq_len, work.head_dim, dtype=torch.float64)
    for element in range(work.batch):
        for first in range(0, work.seq_len, ROWS):
            rows = slice(first, first + ROWS)
            for head in range(work.num_heads):
                output[element, head, rows] = _exact_rows(problem, element, head, rows)
    return output


def _exact_rows(problem: Problem, element: int, head: int, rows: slice) -> Tensor:
    """Return some rows of one head; only the keys between their first and last visible one are looked at."""
    start, stop = (
        torch.from_numpy(edge[element if edge.shape[0] > 1 else 0, rows])[:, None]
        for edge in (problem.intervals.start, problem.intervals.stop)
    )
    seen = slice(int(start.min()), int(stop.max()))
    kv_head = head // (problem.work.num_heads // problem.work.num_kv_heads)
    key, value = (tensor[element, kv_head, seen].double() for tensor in (problem.key, problem.value))
    scores = problem.query[element, head, rows].double() @ key.mT * problem.work.head_dim**-0.5
    keys = torch.arange(seen.start, seen.stop)
    return torch.softmax(scores.masked_fill((keys < start) | (keys >= stop), -torch.inf), dim=-1) @ value


def error_of(found: Tensor, exact: Tensor, dtype: str) -> Error:
    """Return how far `found` is off; an output of another shape is off by no number."""
    if found.shape != exact.shape:
        return Error(largest=math.nan, relative=math.nan, within=False)
    largest = float((found.double() - exact).abs().max())
    relative = largest / float(exact.abs().max())
    return Error(largest=largest, relative=relative, within=relative <= ALLOWED[dtype])
