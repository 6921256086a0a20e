"""From maps as they are stored to `rows @ weight.T + bias`: the order of the axes, and heads side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Projection
from headwise.verbs.check.subject.held_maps import Held, HeldMap, Order
from headwise.verbs.check.subject.weight_names import weight_role

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class StoredMaps:
    """The maps of one part: one, or one for each head.

    - letters: as of `WeightRole`
    - maps: in the order of the heads
    - bias: where it stands apart from the matrix
    """

    letters: str
    maps: tuple[HeldMap, ...]
    bias: Tensor | None = None

    @property
    def path(self) -> str:
        """Where it is, for messages."""
        return self.maps[0].path

    @property
    def heads(self) -> int | None:
        """How many heads the storage itself shows; None where it shows none."""
        if len(self.maps) > 1:
            return len(self.maps)
        return self.maps[0].weight.shape[0] if self.maps[0].weight.dim() == 3 else None

    def as_projection(self, order: Order) -> Projection:
        """Return the one map, where a matrix that says nothing of its order is stored in `order`."""
        matrices = [_matrix(one, one.order or order, self.letters) for one in self.maps]
        weight = torch.cat(matrices, dim=1 if self.letters == "o" else 0)
        biases = [one.bias for one in self.maps if one.bias is not None]
        if self.bias is not None:
            return Projection(weight, self.bias.flatten())
        if not biases:
            return Projection(weight)
        # The outputs of several maps into the model's width are added up; those of heads stand side by side.
        return Projection(weight, torch.stack(biases).sum(0) if self.letters == "o" else torch.cat(biases))


def orders_of(parts: Iterable[StoredMaps]) -> tuple[Order, ...]:
    """Return the orders to try for matrices that say nothing, likeliest first: `x @ w` has `[in, out]`."""
    silent = any(one.order is None for part in parts for one in part.maps)
    return ("in_out", "out_in") if silent else ("out_in",)


def parts_by_name(held: Held) -> dict[str, StoredMaps]:
    """Return the maps whose names tell what they are, by letters.

    Maps whose paths differ by a number only, `heads.0.key` and `heads.1.key`, are those of the heads.
    """
    grouped: dict[str, list[HeldMap]] = {}
    for one in held.maps:
        grouped.setdefault(_NUMBER.sub("*", one.path), []).append(one)
    biases = {
        role.letters: vector
        for path, vector in held.vectors.items()
        if (role := weight_role(_last_word(path))) is not None and role.is_bias
    }
    found: dict[str, StoredMaps] = {}
    for maps in grouped.values():
        role = weight_role(_last_word(maps[0].path))
        if role is None or role.is_bias or role.letters in found:
            continue
        bias = None if any(one.bias is not None for one in maps) else biases.get(role.letters)
        found[role.letters] = StoredMaps(role.letters, tuple(maps), bias)
    return found


def parts_as_told(held: Held, told: Mapping[str, str]) -> dict[str, StoredMaps]:
    """Return the maps that the user names: the word of a part to the path of its weight.

    Raises:
        ArgumentError: there is no such part or path.

    """
    maps = {name: one for one in held.maps for name in (one.path, f"{one.path}.weight")}
    found: dict[str, StoredMaps] = {}
    biases: dict[str, Tensor] = {}
    for word, path in told.items():
        role = weight_role(word)
        if role is None or word not in {role.words, f"{role.words}_weight"}:
            raise ArgumentError(
                f"weights has {word!r}; use query, key, value, output, or qkv or kv where they are fused, "
                "and one of these with _bias"
            )
        if (role.is_bias and path not in held.vectors) or (not role.is_bias and path not in maps):
            there = held.vectors if role.is_bias else [one.path for one in held.maps]
            raise ArgumentError(
                f"weights={{{word!r}: {path!r}}}: there is no such path; there are "
                f"{', '.join(there) or 'none'}"
            )
        if role.is_bias:
            biases[role.letters] = held.vectors[path]
        else:
            found[role.letters] = StoredMaps(role.letters, (maps[path],))
    return {letters: StoredMaps(letters, part.maps, biases.get(letters)) for letters, part in found.items()}


def _last_word(path: str) -> str:
    """Return the last name of a path that is no number: `to_out` of `to_out.0`."""
    names = [name for name in path.split(".") if not name.isdigit()]
    return names[-1] if names else ""


def _matrix(one: HeldMap, order: Order, letters: str) -> Tensor:
    weight = one.weight
    if weight.dim() == 2:
        return weight if order == "out_in" else weight.T
    if letters == "o":
        # [heads, width, out] or [heads, out, width] -> [out, heads * width]
        by_head = weight if order == "in_out" else weight.transpose(1, 2)
        return by_head.flatten(0, 1).T
    # [heads, in, width] or [heads, width, in] -> [heads * width, in]
    by_head = weight.transpose(1, 2) if order == "in_out" else weight
    return by_head.flatten(0, 1)
