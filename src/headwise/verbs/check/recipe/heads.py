"""From what the subject is given to the heads of query, key and value."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.rope import Rope
from headwise.verbs.check.asking import Form, Projection, Projections, Sizes
from headwise.verbs.check.recipe.knobs import CannotComputeError, Recipe


class Given(NamedTuple):
    """The tensors of one question; key and value hold those of an earlier call first, `past` of them."""

    form: Form
    sizes: Sizes
    query: Tensor
    key: Tensor
    value: Tensor
    past: int
    readings: tuple[Projections, ...]


class Heads(NamedTuple):
    """Query `[batch, num_heads, seq_len, head_dim]`; key and value with as many heads and `kv_len` rows."""

    query: Tensor
    key: Tensor
    value: Tensor


def heads_of(given: Given, recipe: Recipe) -> Heads:
    """Return the heads, each query head beside the key and value it reads."""
    query, key, value = given.query, given.key, given.value
    past = given.past
    if not recipe.cache_used and past:
        key, value, past = (*(rows.narrow(-2, past, rows.shape[-2] - past) for rows in (key, value)), 0)
    if recipe.batch_mixed:
        if past or given.form is Form.HEADS or query.shape[:2] != key.shape[:2]:
            raise CannotComputeError("batch and tokens of such inputs cannot be mixed")
        query, key, value = (rows.transpose(0, 1) for rows in (query, key, value))
    if given.form is not Form.HEADS:
        if given.form is Form.PROJECTED:
            query, key, value = _projected(query, key, value, _projections(given, recipe), recipe)
        query, key, value = _split_all(query, key, value, given, recipe)
    if recipe.heads_mixed:
        if past or recipe.batch_mixed or query.shape[2] != key.shape[2]:
            raise CannotComputeError("query and key of different lengths cannot have heads and tokens mixed")
        query, key, value = (rows.transpose(1, 2) for rows in (query, key, value))
    query, key, value = _rotated(query, key, value, past, recipe)
    query, key, value = _shared(query, key, value, recipe)
    query, key, value = _swapped(query, _widened(key, query, recipe), _widened(value, query, recipe), recipe)
    return Heads(query, key, value)


def _projections(given: Given, recipe: Recipe) -> Projections:
    maps = given.readings[recipe.reading]
    if recipe.projections_swapped == "query key":
        if maps.query.weight.shape != maps.key.weight.shape:
            raise CannotComputeError("the maps of query and key differ in shape")
        maps = replace(maps, query=maps.key, key=maps.query)
    elif recipe.projections_swapped == "key value":
        if maps.key.weight.shape != maps.value.weight.shape:
            raise CannotComputeError("the maps of key and value differ in shape")
        maps = replace(maps, key=maps.value, value=maps.key)
    return maps


def _projected(
    query: Tensor, key: Tensor, value: Tensor, maps: Projections, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    biased = recipe.projection_biases in ("right", "ignored out")
    return (
        mapped(query, maps.query, biased=biased),
        mapped(key, maps.key, biased=biased),
        mapped(value, maps.value, biased=biased),
    )


def mapped(rows: Tensor, by: Projection, *, biased: bool = True) -> Tensor:
    """Return `rows @ weight.T + bias`."""
    if rows.shape[-1] != by.weight.shape[1]:
        raise CannotComputeError(f"rows of width {rows.shape[-1]} do not fit {tuple(by.weight.shape)}")
    out = rows @ by.weight.mT
    return out + by.bias if by.bias is not None and biased else out


def _split_all(
    query: Tensor, key: Tensor, value: Tensor, given: Given, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = given.sizes
    if recipe.split in ("fused view", "fused head view"):
        return _fused_view(query, key, value, given, recipe)
    return (
        _split(query, sizes.num_heads, recipe),
        _split(key, sizes.num_kv_heads, recipe),
        _split(value, sizes.num_kv_heads, recipe),
    )


def _split(rows: Tensor, heads: int, recipe: Recipe) -> Tensor:
    batch, length, width = rows.shape
    if width % heads:
        raise CannotComputeError(f"{heads} heads do not divide a width of {width}")
    if recipe.split == "view":
        return rows.reshape(batch, heads, length, width // heads)
    if (recipe.split == "width major") != (recipe.head_order == "width major"):
        return rows.reshape(batch, length, width // heads, heads).permute(0, 3, 1, 2)
    return rows.reshape(batch, length, heads, width // heads).transpose(1, 2)


def _fused_view(
    query: Tensor, key: Tensor, value: Tensor, given: Given, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    """Split one fused tensor as if its memory held the heads before the tokens."""
    is_fused = given.form is Form.PROJECTED and given.readings[recipe.reading].fused is not None
    if not is_fused or not query.shape == key.shape == value.shape:
        raise CannotComputeError("there is no fused map of equal parts")
    batch, length, width = query.shape
    heads = given.sizes.num_heads
    if recipe.split == "fused view":
        fused = torch.cat((query, key, value), dim=-1).reshape(batch, 3, heads, length, width // heads)
        return fused[:, 0], fused[:, 1], fused[:, 2]
    fused = torch.cat((query, key, value), dim=-1).reshape(batch, heads, length, 3 * width // heads)
    one, two, three = fused.chunk(3, dim=-1)
    return one, two, three


def _rotated(
    query: Tensor, key: Tensor, value: Tensor, past: int, recipe: Recipe
) -> tuple[Tensor, Tensor, Tensor]:
    rope = recipe.rope
    if rope is None or recipe.rotary == "missing":
        return query, key, value
    if recipe.rotary_base is not None:
        rope = replace(rope, base=recipe.rotary_base)
    if recipe.rotary in ("interleaved", "half_split"):
        rope = replace(rope, pairing=recipe.rotary)
    if (rope.rotary_dim is None and query.shape[-1] % 2) or (rope.rotary_dim or 0) > query.shape[-1]:
        raise CannotComputeError("rotary positions do not fit the width of a head")
    turned_query = _turned(query, rope, 0 if recipe.rotary == "from zero" else past, recipe)
    turned_key = _turned_rows(key, rope, past, recipe)
    if recipe.rotary == "values too":
        return turned_query, turned_key, _turned_rows(value, rope, past, recipe)
    if recipe.rotary == "query only":
        return turned_query, key, value
    return (query if recipe.rotary == "key only" else turned_query), turned_key, value


def _turned_rows(rows: Tensor, rope: Rope, past: int, recipe: Recipe) -> Tensor:
    """Return key or value rows turned as they came: `past` of them earlier, the others behind them."""
    if past and recipe.rotary in ("from zero", "over heads"):
        old, new = rows[:, :, :past], rows[:, :, past:]
        first = 0 if recipe.rotary == "from zero" else past
        return torch.cat((_turned(old, rope, 0, recipe), _turned(new, rope, first, recipe)), dim=2)
    return _turned(rows, rope, 0, recipe)


def _turned(rows: Tensor, rope: Rope, first: int, recipe: Recipe) -> Tensor:
    if recipe.rotary == "over heads":
        rows = rows.transpose(1, 2)
        return rope.rotate(rows, rows, first=first)[0].transpose(1, 2)
    return rope.rotate(rows, rows, first=first)[0]


def _shared(query: Tensor, key: Tensor, value: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor, Tensor]:
    shared = (recipe.shared_head or "").split()
    query, key, value = (
        rows[:, :1].expand_as(rows) if name in shared else rows
        for name, rows in (("query", query), ("key", key), ("value", value))
    )
    return query, key, value


def _widened(rows: Tensor, query: Tensor, recipe: Recipe) -> Tensor:
    """Return key or value with as many heads as query."""
    heads, kv_heads = query.shape[1], rows.shape[1]
    if heads % kv_heads:
        raise CannotComputeError(f"{kv_heads} KV heads do not divide {heads} heads")
    if recipe.kv_heads == "tiled":
        return rows.repeat(1, heads // kv_heads, 1, 1)
    if recipe.kv_heads == "first only":
        return rows[:, :1].expand(-1, heads, -1, -1)
    return rows.repeat_interleave(heads // kv_heads, dim=1)


def _swapped(query: Tensor, key: Tensor, value: Tensor, recipe: Recipe) -> tuple[Tensor, Tensor, Tensor]:
    if recipe.tensors_swapped == "query key":
        if query.shape != key.shape:
            raise CannotComputeError("query and key differ in shape")
        return key, query, value
    if recipe.tensors_swapped == "key value":
        if key.shape != value.shape:
            raise CannotComputeError("key and value differ in shape")
        return query, value, key
    return query, key, value
