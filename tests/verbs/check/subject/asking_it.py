"""What tests of the subject share: it is asked random rows and held against attention written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Projection, Projections, Role, Sizes
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject import Examined, subject_of


def subject(target: Any, *, arguments: Any = None, weights: Any = None, **expected: Any) -> Examined:
    return subject_of(target, expected=Expected(**expected), arguments=arguments, weights=weights)


def inputs_for(
    asked: Examined, *, batch: int = 2, seq_len: int = 7, kv_len: int | None = None, **options: Any
) -> Inputs:
    """Random inputs of its sizes; of its own tokens alone if it takes no keys."""
    kv_len = kv_len or (seq_len + 4 if asked.lengths_may_differ else seq_len)
    torch.manual_seed(11)
    sizes = asked.sizes
    if asked.form is Form.HEADS:
        shapes = [
            (batch, sizes.num_heads, seq_len, sizes.head_dim),
            (batch, sizes.num_kv_heads, kv_len, sizes.head_dim),
            (batch, sizes.num_kv_heads, kv_len, sizes.value_head_dim),
        ]
    else:
        widths = in_widths(asked)
        lengths = (seq_len, kv_len, kv_len)
        shapes = [(batch, length, width) for length, width in zip(lengths, widths, strict=True)]
    query, key, value = (torch.randn(shape) for shape in shapes)
    if Role.KEY not in asked.takes:
        key = value = query
    elif Role.VALUE not in asked.takes:
        value = key
    given = {Role(name): value for name, value in options.items()}
    return Inputs(query, key, value, given)


def in_widths(asked: Examined) -> tuple[int, int, int]:
    sizes = asked.sizes
    if asked.form is Form.WIDTH:
        of_kv = (sizes.num_kv_heads * sizes.head_dim, sizes.num_kv_heads * sizes.value_head_dim)
        return (sizes.num_heads * sizes.head_dim, *of_kv)
    first = asked.projections()[0]
    return tuple(one.weight.shape[1] for one in (first.query, first.key, first.value))  # type: ignore[return-value]  # three


def attended(inputs: Inputs, sizes: Sizes, mask: Tensor | None = None) -> Tensor:
    """Attention of heads, written out in float64; mask True where a key is seen."""
    group = sizes.num_heads // sizes.num_kv_heads
    key, value = (each.double().repeat_interleave(group, dim=1) for each in (inputs.key, inputs.value))
    scores = inputs.query.double() @ key.mT / sizes.head_dim**0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ value


def of_rows(inputs: Inputs, sizes: Sizes, reading: Projections | None, mask: Tensor | None = None) -> Tensor:
    """Attention of rows, written out in float64, by one reading of the weights if there are any."""
    query, key, value = (each.double() for each in (inputs.query, inputs.key, inputs.value))
    if reading is not None:
        query, key, value = (
            mapped(query, reading.query),
            mapped(key, reading.key),
            mapped(value, reading.value),
        )
    counts = (sizes.num_heads, sizes.num_kv_heads, sizes.num_kv_heads)
    heads = [
        each.unflatten(-1, (count, -1)).transpose(1, 2)
        for each, count in zip((query, key, value), counts, strict=True)
    ]
    joined = attended(Inputs(*heads), sizes, mask).transpose(1, 2).flatten(2)
    return joined if reading is None or reading.output is None else mapped(joined, reading.output)


def mapped(rows: Tensor, projection: Projection) -> Tensor:
    mixed = rows @ projection.weight.double().T
    return mixed if projection.bias is None else mixed + projection.bias.double()


def right_readings(asked: Examined, *, axes: str = "bqd", mask: Tensor | None = None) -> list[int]:
    """Which readings of the weights reproduce what it answers."""
    inputs = inputs_for(asked)
    answered = asked.answer(inputs, axes=axes).output.double()
    return [
        number
        for number, reading in enumerate(asked.projections())
        if torch.allclose(answered, of_rows(inputs, asked.sizes, reading, mask), atol=1e-5)
    ]
