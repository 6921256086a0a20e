"""From matrices that are copies to heads that are duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from headwise.verbs.check_model.copies import Copies, Item, Likeness, tied_layers
from headwise.verbs.check_model.result import MATRICES, Finding, HeadPlace, Matrix
from headwise.verbs.check_model.weights import LayerWeights
from headwise.verbs.check_model.words import listed, shared_words
from headwise.verbs.terminal import several

OF_QUERY_HEADS: tuple[Matrix, ...] = ("query", "output")
OF_KV_HEADS: tuple[Matrix, ...] = ("key", "value")

Shared = dict[Matrix, Likeness]
Pair = tuple[Item, Item]


class Groups(NamedTuple):
    """Pairs of query heads, and pairs of KV heads that no pair of query heads accounts for."""

    heads: dict[Pair, Shared]
    kv_heads: dict[Pair, Shared]


def duplicate_findings(
    layers: Sequence[LayerWeights], copies: Mapping[Matrix, Copies], repeating: Collection[int]
) -> Iterator[Finding]:
    """Yield whole layers, heads and KV heads that hold the same matrices as others.

    Query heads of one group read one KV head by design; that is no duplicate. Nor are KV heads of layers
    whose KV heads repeat in an order, at the places `repeating`: that is said once.
    """
    groups = _pairs(layers, copies, repeating)
    whole = _whole_layers(layers, groups.heads)
    for one, two in whole:
        yield _of_layers(layers[one], layers[two])
    rest = {
        pair: shared for pair, shared in groups.heads.items() if (pair[0].layer, pair[1].layer) not in whole
    }
    for (first, matrices), items in _grouped(rest).items():
        yield _of_heads(layers, [first, *items], matrices, [rest[first, item] for item in items])
    for (first, matrices), items in _grouped(groups.kv_heads).items():
        shared = [groups.kv_heads[first, item] for item in items]
        yield _of_kv_heads(layers, [first, *items], matrices, shared)


def tied_remarks(layers: Sequence[LayerWeights]) -> Iterator[Finding]:
    """Yield a remark for layers that hold the same parameters in memory."""
    others: defaultdict[int, list[int]] = defaultdict(list)
    for first, other in tied_layers(layers):
        others[first].append(other)
    for first, places in others.items():
        one = layers[first].layer
        names = listed([layers[place].layer.name for place in places])
        verb = "holds" if len(places) == 1 else "hold"
        words = f"{names} {verb} the same parameters as {one.name}"
        yield Finding("tied-layers", one.layer, one.name, words)


def _pairs(
    layers: Sequence[LayerWeights], copies: Mapping[Matrix, Copies], repeating: Collection[int]
) -> Groups:
    heads: defaultdict[Pair, Shared] = defaultdict(dict)
    kv_heads: defaultdict[Pair, Shared] = defaultdict(dict)
    for matrix in OF_QUERY_HEADS:
        for item, likeness in copies[matrix].items():
            heads[likeness.of, item][matrix] = likeness
    for matrix in OF_KV_HEADS:
        for item, likeness in copies[matrix].items():
            kv_heads[likeness.of, item][matrix] = likeness
    covered: set[Pair] = set()
    for (one, two), shared in heads.items():
        for matrix in OF_KV_HEADS:
            pair = _kv_pair(layers, matrix, one, two)
            if pair is not None and matrix in kv_heads.get(pair, {}):
                shared[matrix] = kv_heads[pair][matrix]
                covered.add(pair)
    left = {
        pair: shared
        for pair, shared in kv_heads.items()
        if pair not in covered and not {item.layer for item in pair} <= set(repeating)
    }
    for pair in [pair for pair in left if all(_has_own_kv_heads(layers[item.layer]) for item in pair)]:
        heads[pair] = left.pop(pair)
    return Groups(dict(heads), left)


def _kv_pair(layers: Sequence[LayerWeights], matrix: Matrix, one: Item, two: Item) -> Pair | None:
    """Return the KV heads that two query heads read, the earlier first; None where they read one."""
    read = []
    for item in (one, two):
        layer = layers[item.layer]
        if matrix not in layer.sources:
            return None
        read.append(Item(item.layer, layer.number(matrix, item.head)))
    return None if read[0] == read[1] else (min(read), max(read))


def _has_own_kv_heads(layer: LayerWeights) -> bool:
    return all(
        matrix not in layer.sources or layer.count(matrix) == layer.layer.num_heads for matrix in OF_KV_HEADS
    )


def _is_whole(layers: Sequence[LayerWeights], pair: Pair, shared: Collection[Matrix]) -> bool:
    """Return whether two heads share every matrix that could be examined, or read one KV head anyway."""
    one, two = pair
    examined = set(layers[one.layer].sources) & set(layers[two.layer].sources)
    by_design: set[Matrix] = {
        matrix for matrix in OF_KV_HEADS if matrix in examined and _kv_pair(layers, matrix, one, two) is None
    }
    return examined <= set(shared) | by_design


def _whole_layers(layers: Sequence[LayerWeights], heads: Mapping[Pair, Shared]) -> set[tuple[int, int]]:
    """Return the pairs of layers whose heads are all the same, number by number."""
    counts: defaultdict[tuple[int, int], int] = defaultdict(int)
    for (one, two), shared in heads.items():
        if one.layer != two.layer and one.head == two.head and _is_whole(layers, (one, two), shared):
            counts[one.layer, two.layer] += 1
    return {pair for pair, count in counts.items() if count == layers[pair[0]].layer.num_heads}


def _grouped(pairs: Mapping[Pair, Shared]) -> dict[tuple[Item, tuple[Matrix, ...]], list[Item]]:
    """Return who shares the same matrices with the same first head."""
    found: defaultdict[tuple[Item, tuple[Matrix, ...]], list[Item]] = defaultdict(list)
    for (first, item), shared in pairs.items():
        found[first, tuple(matrix for matrix in MATRICES if matrix in shared)].append(item)
    return dict(found)


def _of_heads(
    layers: Sequence[LayerWeights],
    items: Sequence[Item],
    matrices: tuple[Matrix, ...],
    shared: Sequence[Shared],
) -> Finding:
    first, *others = items
    is_whole = all(_is_whole(layers, (first, item), matrices) for item in others)
    names = _names(layers, items, "head")
    what = shared_words(matrices, shared)
    place = layers[first.layer].layer
    group = (
        {layers[item.layer].number("key", item.head) for item in items} if _in_groups(layers, items) else ()
    )
    by_design = "; W_K and W_V they share as heads of one group" if len(group) == 1 else ""
    return Finding(
        "duplicate-heads" if is_whole else "shared-weights",
        place.layer,
        place.name,
        f"{names} are copies of each other: the same {what}{by_design}"
        if is_whole
        else f"{names} have the same {what}{by_design}",
        heads=_places(layers, items),
        matrices=matrices,
        numbers=_numbers(matrices, shared),
        mend=(
            f"look at how the checkpoint was put together: {several(len(items), 'head')} do the work of one"
            if is_whole
            else "look at how the checkpoint was put together: heads that were trained share no matrix"
        ),
    )


def _in_groups(layers: Sequence[LayerWeights], items: Sequence[Item]) -> bool:
    """Return whether heads are of one layer, in which several query heads read one KV head."""
    layer = layers[items[0].layer]
    return (
        len({item.layer for item in items}) == 1
        and "key" in layer.sources
        and layer.count("key") < layer.layer.num_heads
    )


def _of_kv_heads(
    layers: Sequence[LayerWeights],
    items: Sequence[Item],
    matrices: tuple[Matrix, ...],
    shared: Sequence[Shared],
) -> Finding:
    place = layers[items[0].layer].layer
    return Finding(
        "duplicate-kv-heads",
        place.layer,
        place.name,
        f"{_names(layers, items, 'KV head')} have the same {shared_words(matrices, shared)}, and the query "
        "heads that read them are others",
        kv_heads=_places(layers, items),
        matrices=matrices,
        numbers=_numbers(matrices, shared),
        mend="look at how the checkpoint was put together: KV heads that were trained share no matrix",
    )


def _of_layers(one: LayerWeights, two: LayerWeights) -> Finding:
    places = [one.layer, two.layer]
    return Finding(
        "duplicate-layers",
        one.layer.layer,
        one.layer.name,
        f"all {one.layer.num_heads} heads are those of layer {two.layer.layer} ({two.layer.name}), number by "
        "number",
        heads=tuple(
            HeadPlace(place.layer, place.name, head) for place in places for head in range(place.num_heads)
        ),
        matrices=tuple(matrix for matrix in MATRICES if matrix in one.sources and matrix in two.sources),
        mend="look at how the checkpoint was put together: one layer was stacked or loaded twice",
    )


def _names(layers: Sequence[LayerWeights], items: Sequence[Item], noun: str) -> str:
    if len({item.layer for item in items}) == 1:
        return f"{noun}s {listed([str(item.head) for item in items])}"
    return listed([f"{noun} {item.head} of layer {layers[item.layer].layer.layer}" for item in items])


def _places(layers: Sequence[LayerWeights], items: Sequence[Item]) -> tuple[HeadPlace, ...]:
    return tuple(
        HeadPlace(layers[item.layer].layer.layer, layers[item.layer].layer.name, item.head) for item in items
    )


def _numbers(matrices: Sequence[Matrix], shared: Sequence[Shared]) -> dict[str, float]:
    """Return of each matrix the factor of the last copy and the largest difference of all."""
    found: dict[str, float] = {}
    for matrix in matrices:
        likenesses = [each[matrix] for each in shared]
        found[f"{matrix}_factor"] = likenesses[-1].factor
        found[f"{matrix}_difference"] = max(each.difference for each in likenesses)
    return found
