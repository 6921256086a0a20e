"""KV heads that were written out for more query heads: each in its place, or the whole row of them tiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headwise.verbs.check_model.copies import Copies, Item
from headwise.verbs.check_model.result import Finding, HeadPlace
from headwise.verbs.check_model.weights import LayerWeights


@dataclass(frozen=True)
class KvOrder:
    """How the KV heads of a layer repeat: `h` with `h % original` (tiled) or `h // copies` (in place)."""

    order: Literal["tiled", "in place"]
    original: int


def kv_orders(layers: Sequence[LayerWeights], keys: Copies, values: Copies) -> dict[int, KvOrder]:
    """Return how KV heads repeat, by the place of the layer, where both keys and values say so.

    A pair of two KV heads that are equal is a pattern only where every layer has it, else a pair of copies.
    """
    found: dict[int, KvOrder] = {}
    for place, layer in enumerate(layers):
        if not {"key", "value"} <= set(layer.sources) or layer.count("key") != layer.count("value"):
            continue
        kinds = [
            tuple(_kind_of(Item(place, head), copies) for copies in (keys, values))
            for head in range(layer.count("key"))
        ]
        order = order_of(kinds)
        if order is not None:
            found[place] = order
    pairs = [place for place in found if layers[place].count("key") == 2]
    if len(pairs) < sum(1 for layer in layers if "key" in layer.sources and layer.count("key") == 2):
        for place in pairs:
            del found[place]
    return found


def order_of(kinds: Sequence[object]) -> KvOrder | None:
    """Return the order in which equal heads stand, None where it is neither of the two.

    Example:
        >>> order_of("abab"), order_of("aabb"), order_of("abba")
        (KvOrder(order='tiled', original=2), KvOrder(order='in place', original=2), None)

    """
    count, original = len(kinds), len(set(kinds))
    if not 0 < original < count or count % original:
        return None
    copies = count // original
    if all(kind == kinds[head // copies * copies] for head, kind in enumerate(kinds)):
        return KvOrder("in place", original)
    if all(kind == kinds[head % original] for head, kind in enumerate(kinds)):
        return KvOrder("tiled", original)
    return None


def order_finding(layer: LayerWeights, order: KvOrder) -> Finding:
    """Return what is to be said of a layer whose KV heads repeat: a fault where they are tiled."""
    count, place = layer.count("key"), layer.layer
    copies, group = count // order.original, place.num_heads // order.original
    heads = tuple(HeadPlace(place.layer, place.name, head) for head in range(count))
    numbers = {"num_kv_heads": count, "original_num_kv_heads": order.original}
    if order.order == "in place":
        return Finding(
            "kv-heads-repeated",
            place.layer,
            place.name,
            f"its {count} KV heads are {order.original}, each written out {copies} times in its place; it "
            f"is grouped-query attention with num_kv_heads={order.original} in another form, at "
            f"{copies} times the KV cache",
            kv_heads=heads,
            matrices=("key", "value"),
            numbers=numbers,
        )
    row = " ".join(str(head % order.original) for head in range(count))
    return Finding(
        "kv-heads-tiled",
        place.layer,
        place.name,
        f"its {count} KV heads are {order.original} in the order {row}: head h and head h + {order.original} "
        f"are equal, so that the whole row of KV heads was tiled; in grouped-query attention query head h "
        f"reads KV head h // {group}",
        kv_heads=heads,
        matrices=("key", "value"),
        numbers=numbers,
        mend=(
            f"convert again with each KV head {copies} times in its place (repeat_interleave, not repeat or "
            f"tile), or keep num_kv_heads={order.original}; it is right only if the query heads and W_O were "
            "put into the tiled order too, which weights alone cannot show"
        ),
    )


def _kind_of(item: Item, copies: Copies) -> Item:
    likeness = copies.get(item)
    is_equal = likeness is not None and abs(likeness.factor - 1) < 1e-2 and likeness.bias_too is not False
    return likeness.of if likeness is not None and is_equal else item
