"""How layers and heads are named by a caller: by number where that is enough, else by module path."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex

from torch import Tensor

from headwise.errors import ArgumentError
from headwise.evidence import Evidence
from headwise.models.attachment.discover import AttachedLayer

LayerKey = SupportsIndex | str | AttachedLayer
"""A layer's number where no other layer has it, its module path, or the layer itself."""


def find_layer(layers: Sequence[AttachedLayer], key: LayerKey) -> AttachedLayer:
    """Return the one layer that `key` names.

    Raises:
        ArgumentError: no layer has that number or path, or several have.

    """
    if isinstance(key, AttachedLayer):
        found = [layer for layer in layers if layer == key]
    elif isinstance(key, str):
        found = [layer for layer in layers if layer.name == key]
    elif (number := _whole_number(key)) is not None:
        found = [layer for layer in layers if layer.layer == number]
    else:
        raise ArgumentError(f"layer={key!r} is a {type(key).__name__}; give its number or its module path")
    if len(found) == 1:
        return found[0]
    if found:
        others = {layer.name for layer in found}
        mend = f"name one: {', '.join(sorted(others))}" if len(others) > 1 else "give its number"
        raise ArgumentError(f"layer={key!r} stands for {len(found)} layers; {mend}")
    numbers = sorted({layer.layer for layer in layers})
    raise ArgumentError(f"layer={key!r} does not exist; the attention layers are {_listed(numbers)}")


def find_heads(layer: AttachedLayer, head: SupportsIndex | None, kv_head: SupportsIndex | None) -> range:
    """Return the query heads that `head` or `kv_head` stands for.

    Raises:
        ArgumentError: both or neither are given, or there is no such head.

    """
    if (head is None) == (kv_head is None):
        raise ArgumentError(f"head={head} and kv_head={kv_head}; give exactly one of them")
    name, given, count = (
        ("head", head, layer.num_heads) if kv_head is None else ("kv_head", kv_head, layer.num_kv_heads)
    )
    number = _whole_number(given)
    if number is None or not 0 <= number < count:
        raise ArgumentError(
            f"{name}={given!r} does not exist in layer {layer.layer}, which has {layer.num_heads} query "
            f"heads and {layer.num_kv_heads} KV heads; give 0 to {count - 1}"
        )
    width = layer.group_size if kv_head is not None else 1
    return range(number * width, (number + 1) * width)


class EvidenceByLayer:
    """The evidence of one text: looked up by any name of a layer; iterates over the recorded layers.

    A forward with the cache of the one before goes on with its text, as the steps of `generate` do. Prompt
    and generated tokens are one picture, equal to one forward over the whole text up to rounding, also where
    a cache drops what leaves a window. Rows and keys are numbered by their place in the text, with padding.
    So are those of `Collect(rows=...)`: a row may be asked for before it comes, and negative ones count from
    the end of the text as it stands when it is read.

    Where a cache holds tokens that no watched forward read, the picture begins behind them, at `first_row`. A
    part of the model that is run by itself is a text of its own, of which the latest call is seen. In a text
    that came in several forwards cross-attention has no `previous_token`, `self_token`, `mean_distance`,
    `local` and `at_offsets` (NaN): at which of the other text's keys a row stands depends on how long this
    one will be.

    Reading what the parts do not tell raises UnsupportedError: any layer, where the cache was changed between
    two forwards (beam search reorders it, assisted decoding takes tokens back); a layer with `map_size` and
    without `weights`, for the cells of a map follow the length of the text; a row from before `first_row`.
    """

    first_row: int
    """The place in the text of the first recorded row: 0, or how many tokens a cache held already."""

    def __init__(
        self,
        layers: Sequence[AttachedLayer],
        found: Mapping[AttachedLayer, Evidence[Tensor]],
        first_row: int = 0,
    ) -> None:
        self._layers = layers
        self._found = found
        self.first_row = first_row

    def __getitem__(self, key: LayerKey) -> Evidence[Tensor]:
        layer = find_layer(self._layers, key)
        if layer not in self._found:
            raise ArgumentError(
                f"layer {layer.layer} ({layer.name}) has no evidence of the latest forward in this thread; "
                "set collect=Collect() before running the model, and read it in the thread that ran it"
            )
        return self._found[layer]

    def __contains__(self, key: LayerKey) -> bool:
        return find_layer(self._layers, key) in self._found

    def __iter__(self) -> Iterator[AttachedLayer]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _whole_number(given: object) -> int | None:
    """Return the integer that `given` is; numpy's and torch's count, since head numbers come from argmax."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return None
    try:
        return operator.index(given)
    except TypeError:  # an array or tensor of another size or dtype
        return None


def _listed(numbers: Sequence[int]) -> str:
    if numbers == list(range(len(numbers))) and len(numbers) > 1:
        return f"0 to {numbers[-1]}"
    return ", ".join(map(str, numbers))
