"""The axes of one parameter: what a framework stores, and the heads within it.

- linear: `[rows, in]`, as torch.nn.Linear; the output projection `[out_dim, heads * width]`
- transposed: `[in, rows]`, as GPT-2's Conv1D; the output projection `[heads * width, out_dim]`
- kernel: `[in, heads, width]`, as Keras and Flax; the output projection `[heads, width, out_dim]`
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from headwise.errors import ArgumentError
from headwise.nn.layouts.rows import divided

Form = Literal["linear", "transposed", "kernel"]
Part = Literal["heads", "elements a head"]


def checked_rank(name: str, given: Tensor, rank: int) -> Tensor:
    """Return what is given, or refuse it for its number of axes."""
    if given.dim() != rank:
        raise ArgumentError(f"{name} has shape {tuple(given.shape)}; it must have {rank} axes")
    return given


def fused_rows(name: str, weight: Tensor, form: Form) -> Tensor:
    """Return a fused weight as `[rows, in]`."""
    matrix = checked_rank(name, weight, 2)
    return matrix.T if form == "transposed" else matrix


def projection_heads(name: str, weight: Tensor, form: Form, *, known: int, what: Part) -> Tensor:
    """Return a query, key or value weight as `[heads, width, in]`, of which one count is known."""
    axis = 0 if what == "heads" else 1
    if form == "kernel":
        by_head = checked_rank(name, weight, 3).permute(1, 2, 0)
        if by_head.shape[axis] != known:
            raise ArgumentError(
                f"{name} has shape {tuple(weight.shape)}, so {by_head.shape[axis]} {what} on "
                f"axis {axis + 1}, where {known} must be"
            )
        return by_head
    rows = fused_rows(name, weight, form)
    if rows.shape[0] == 0 or rows.shape[0] % known:
        raise ArgumentError(
            f"{name} has shape {tuple(weight.shape)}, so {rows.shape[0]} rows, which "
            f"{known} {what} do not divide"
        )
    return divided(rows, known, -1) if axis == 0 else divided(rows, -1, known)


def bias_heads(name: str, bias: Tensor, form: Form, *, heads: int, width: int) -> Tensor:
    """Return a query, key or value bias as `[heads, width]`."""
    wanted = (heads, width) if form == "kernel" else (heads * width,)
    if tuple(bias.shape) != wanted:
        raise ArgumentError(f"{name} has shape {tuple(bias.shape)}; beside its weight it must be {wanted}")
    return bias.reshape(heads, width)


def out_heads(name: str, weight: Tensor, form: Form, *, heads: int) -> Tensor:
    """Return an output weight as `[heads, width, out_dim]`."""
    if form == "kernel":
        if checked_rank(name, weight, 3).shape[0] != heads:
            raise ArgumentError(
                f"{name} has shape {tuple(weight.shape)}, so {weight.shape[0]} heads on axis 0, where "
                f"num_heads={heads} must be"
            )
        return weight
    matrix = checked_rank(name, weight, 2)
    rows = matrix if form == "transposed" else matrix.T
    if rows.shape[0] == 0 or rows.shape[0] % heads:
        raise ArgumentError(
            f"{name} has shape {tuple(weight.shape)} and reads {rows.shape[0]} elements, which "
            f"num_heads={heads} does not divide"
        )
    return divided(rows, heads, -1)


def stored_projection(by_head: Tensor, form: Form) -> Tensor:
    """Return `[heads, width, in]` as the framework stores it: the inverse of `projection_heads`."""
    return by_head.permute(2, 0, 1) if form == "kernel" else stored_rows(by_head.flatten(0, 1), form)


def stored_rows(rows: Tensor, form: Form) -> Tensor:
    """Return fused `[rows, in]` as the framework stores it: the inverse of `fused_rows`."""
    return rows.T if form == "transposed" else rows


def stored_bias(by_head: Tensor, form: Form) -> Tensor:
    """Return `[heads, width]` as the framework stores it: the inverse of `bias_heads`."""
    return by_head if form == "kernel" else by_head.flatten()


def stored_out(by_head: Tensor, form: Form) -> Tensor:
    """Return `[heads, width, out_dim]` as the framework stores it: the inverse of `out_heads`."""
    if form == "kernel":
        return by_head
    rows = by_head.flatten(0, 1)
    return rows if form == "transposed" else rows.T
