"""Every way to read the weights of an attention as projections of query, key and value, and of the output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Projection, Projections, Sizes
from headwise.verbs.check.subject.held_maps import Held, Order, held_by
from headwise.verbs.check.subject.hints import Hints
from headwise.verbs.check.subject.solving import Widths, solved_sizes
from headwise.verbs.check.subject.stored import StoredMaps, orders_of, parts_as_told, parts_by_name
from headwise.verbs.check.subject.unfusing import BLOCKS, PER_HEAD, taken_apart
from headwise.verbs.check.subject.words import plain


@dataclass(frozen=True, eq=False)
class ReadWeights:
    """What the weights say.

    - sizes: of the heads
    - readings: likeliest first
    - query_path, output_path: where the maps are; None for an output projection that is none, or several
    """

    sizes: Sizes
    readings: tuple[Projections, ...]
    query_path: str
    output_path: str | None


def weights_held(
    owner: Any, hints: Hints, *, name: str, told: Mapping[str, str] | None = None
) -> ReadWeights | None:
    """Return the projections that a module or an object holds; None where it holds no matrix at all.

    Raises:
        ArgumentError: it holds some, and nothing says which is which, or they do not fit together.

    """
    held = held_by(owner)
    if not held.maps and not told:
        return None
    parts = parts_as_told(held, told) if told else _found(held)
    if not _is_complete(parts):
        there = ", ".join(f"{one.path} {list(one.weight.shape)}" for one in held.maps)
        seen = ", ".join(f"{part.path} as {letters}" for letters, part in parts.items())
        raise ArgumentError(
            f"{name} holds {there}; check does not see which of them make query, key and value"
            f"{f' (it took {seen})' if seen else ''}. Say it: weights={{'query': ..., 'key': ..., "
            "'value': ..., 'output': ...}}, or 'qkv' where they are one matrix, each with its path"
        )
    return read_parts(parts, hints, name=name, orders=orders_of(parts.values()))


def read_parts(
    parts: Mapping[str, StoredMaps], hints: Hints, *, name: str, orders: Sequence[Order]
) -> ReadWeights:
    """Return every reading of maps whose parts are known, of those orders of axes that fit.

    Raises:
        ArgumentError: no order fits the sizes.

    """
    refused: list[ArgumentError] = []
    readings: list[Projections] = []
    sizes: Sizes | None = None
    for order in orders:
        maps = {letters: part.as_projection(order) for letters, part in parts.items()}
        try:
            found = solved_sizes(_widths(maps, parts), hints, name=name)
        except ArgumentError as error:
            refused.append(error)
            continue
        sizes = sizes or found
        if found == sizes:
            readings += _readings(maps, parts, sizes)
    if sizes is None:
        raise refused[0]
    query_path = next(part.path for letters, part in parts.items() if "q" in letters)
    output = parts.get("o")
    output_path = output.path if output is not None and len(output.maps) == 1 else None
    return ReadWeights(sizes, _distinct(readings), query_path, output_path)


def _found(held: Held) -> dict[str, StoredMaps]:
    """Return the parts by name, or where names say nothing, by place and shape."""
    named = parts_by_name(held)
    if _is_complete(named):
        return named
    output = {letters: part for letters, part in named.items() if letters == "o"}
    used = {one.path for part in output.values() for one in part.maps}
    rest = [one for one in held.maps if one.path not in used and one.weight.dim() == 2]
    layers = [one for one in rest if one.order is not None] or rest
    letters: tuple[str, ...] = ()
    if len(layers) == 3 or (len(layers) == 4 and not output):
        letters = ("q", "k", "v", "o")
    elif len(layers) == 1 or (len(layers) == 2 and not output):
        is_wide = max(layers[0].weight.shape) > min(layers[0].weight.shape)
        letters = ("qkv", "o") if is_wide else ()
    placed = {letter: StoredMaps(letter, (one,)) for letter, one in zip(letters, layers, strict=False)}
    return named if not placed else {**placed, **output}


def _is_complete(parts: Mapping[str, StoredMaps]) -> bool:
    return sorted("".join(letters for letters in parts if letters != "o")) == ["k", "q", "v"]


def _widths(maps: Mapping[str, Projection], parts: Mapping[str, StoredMaps]) -> Widths:
    rows = {letters: one.weight.shape[0] for letters, one in maps.items() if letters != "o"}
    queries = next(letters for letters in rows if "q" in letters)
    mixed = maps["o"].weight.shape[1] if "o" in maps else None
    heads = parts[queries].heads if queries == "q" else None
    return Widths(rows, mixed, maps[queries].weight.shape[1], heads)


def _readings(
    maps: Mapping[str, Projection], parts: Mapping[str, StoredMaps], sizes: Sizes
) -> list[Projections]:
    apart = {letters: one for letters, one in maps.items() if len(letters) == 1}
    fused = {letters: taken_apart(one, letters, sizes) for letters, one in maps.items() if len(letters) > 1}
    if not fused:
        return [_projections(apart, None)]
    ways = [BLOCKS, PER_HEAD]
    if any(plain(parts[letters].path.split(".")[-1]) == "querykeyvalue" for letters in fused):
        # So named by families that keep one head after another: GPT-NeoX, BLOOM, Falcon.
        ways.reverse()
    found: list[Projections] = []
    for chosen in product(ways, repeat=len(fused)):
        split = {
            letter: part
            for way, one in zip(chosen, fused.values(), strict=True)
            for letter, part in one[way].items()
        }
        found.append(_projections({**apart, **split}, chosen[0]))
    return found


def _projections(maps: Mapping[str, Projection], fused: str | None) -> Projections:
    return Projections(maps["q"], maps["k"], maps["v"], maps.get("o"), fused)


def _distinct(readings: Sequence[Projections]) -> tuple[Projections, ...]:
    kept: list[Projections] = []
    for reading in readings:
        if not any(_same(reading, other) for other in kept):
            kept.append(reading)
    return tuple(kept)


def _same(one: Projections, other: Projections) -> bool:
    return all(
        _equal(getattr(one, name), getattr(other, name)) for name in ("query", "key", "value", "output")
    )


def _equal(one: Projection | None, other: Projection | None) -> bool:
    if one is None or other is None:
        return one is other
    if one.bias is None or other.bias is None:
        return one.bias is other.bias and torch.equal(one.weight, other.weight)
    return torch.equal(one.weight, other.weight) and torch.equal(one.bias, other.bias)
