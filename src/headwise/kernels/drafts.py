"""The memory in which one thread works at the backward pass, beside its desk."""

from __future__ import annotations

from typing import NamedTuple

from headwise.kernels.emission import inner
from headwise.kernels.geometry import LINE, PANEL, STRETCH, TILE
from headwise.kernels.host import BLOCK_ROWS
from headwise.kernels.ledger import LEDGER_ROWS
from headwise.kernels.memory import Floats, Integers, moved
from headwise.kernels.rows import padded_width

_BLOCK_FLOATS = BLOCK_ROWS * TILE


class Draft(NamedTuple):
    """What is worked out for one stretch of keys, and for one block of rows.

    - key_columns `[STRETCH / PANEL, head_dim, PANEL]`, value_columns the same of value_head_dim: packed for
      products with rows of the query and of the upstream gradient
    - key_lines `[width / PANEL, STRETCH, PANEL]`: packed for products with the scores' gradients; width is
      head_dim in whole panels
    - grad_keys `[STRETCH, width]`, grad_values the same of value_head_dim: summed up over the blocks
    - upstream `[BLOCK_ROWS, value_head_dim]`: the gradient of the output
    - grad_weights, factors, slopes `[BLOCK_ROWS, TILE]`: gradients of the weights and then of the scores;
      what dropout multiplied the weights by; the derivative of the softcap
    - maxima, inverses, sums `[BLOCK_ROWS]`: the finite maximum of each row, 1 / its sum, and the sum of its
      weights times their gradients
    """

    key_columns: Floats
    value_columns: Floats
    key_lines: Floats
    grad_keys: Floats
    grad_values: Floats
    upstream: Floats
    grad_weights: Floats
    factors: Floats
    slopes: Floats
    maxima: Floats
    inverses: Floats
    sums: Floats


class Shared(NamedTuple):
    """What the stretches of one KV head share.

    - grad_queries `[rows, width]`: the sums of the queries' gradients, to which stretches add in turn
    - sums `[rows]`: of each row the sum of its weights times their gradients
    - turns `[blocks]`: how many stretches have met each block
    """

    grad_queries: Floats
    sums: Floats
    turns: Integers


def draft_floats(head_dim: int, value_head_dim: int) -> int:
    """Return the size of a draft in float32 numbers."""
    width, value_width = -(-head_dim // PANEL) * PANEL, -(-value_head_dim // PANEL) * PANEL
    keys = STRETCH * (head_dim + value_head_dim + 2 * width + value_width)
    rows = BLOCK_ROWS * value_width + 3 * _BLOCK_FLOATS + 3 * LEDGER_ROWS
    return -(-(keys + rows) // LINE) * LINE + LINE


packed_draft_floats = inner(draft_floats)


def shared_floats(rows: int, head_dim: int) -> int:
    """Return how many float32 numbers the stretches of one KV head share."""
    return rows * (-(-head_dim // PANEL) * PANEL) + -(-rows // LINE) * LINE


packed_shared_floats = inner(shared_floats)


@inner
def shared_at(floats: Floats, turns: Integers, rows: int, head_dim: int) -> Shared:
    """Return what is shared, laid out at these places."""
    return Shared(floats, moved(floats, rows * padded_width(head_dim)), turns)


@inner
def draft_at(floats: Floats, head_dim: int, value_head_dim: int) -> Draft:
    """Return the draft laid out at this place."""
    width, value_width = padded_width(head_dim), padded_width(value_head_dim)
    value_columns = moved(floats, STRETCH * head_dim)
    key_lines = moved(value_columns, STRETCH * value_head_dim)
    grad_keys = moved(key_lines, STRETCH * width)
    grad_values = moved(grad_keys, STRETCH * width)
    upstream = moved(grad_values, STRETCH * value_width)
    grad_weights = moved(upstream, BLOCK_ROWS * value_width)
    factors, slopes = moved(grad_weights, _BLOCK_FLOATS), moved(grad_weights, 2 * _BLOCK_FLOATS)
    maxima = moved(grad_weights, 3 * _BLOCK_FLOATS)
    inverses, sums = moved(maxima, LEDGER_ROWS), moved(maxima, 2 * LEDGER_ROWS)
    return Draft(
        floats, value_columns, key_lines, grad_keys, grad_values, upstream, grad_weights, factors, slopes,
        maxima, inverses, sums,
    )  # fmt: skip
