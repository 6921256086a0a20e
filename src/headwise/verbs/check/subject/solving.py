"""The sizes of heads, from the widths of the weights and what else is known."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Sizes
from headwise.verbs.check.subject.hints import Hint, Hints


@dataclass(frozen=True)
class Widths:
    """How wide the maps of one attention are; None where it has no such map.

    - rows: of each part, by its letters: `{"q": 42, "kv": 36}`
    - mixed: what the output projection takes
    - d_model: what the query's map takes
    - heads: how many the storage itself shows, of the part that holds the queries
    """

    rows: dict[str, int]
    mixed: int | None
    d_model: int
    heads: int | None = None

    @property
    def shown(self) -> str:
        """The widths in words, for messages."""
        told = [f"{letters} {width} wide" for letters, width in self.rows.items()]
        return ", ".join(told if self.mixed is None else [*told, f"heads joined {self.mixed} wide"])


def solved_sizes(widths: Widths, hints: Hints, *, name: str) -> Sizes:
    """Return the sizes that the weights have.

    Raises:
        ArgumentError: nothing tells how many heads there are, or what is told does not fit the weights.

    """
    num_heads = _num_heads(widths, hints, name)
    head_dim = _head_dim(widths, hints, num_heads, name)
    num_kv_heads, value_head_dim = _key_and_value(widths, hints, num_heads, head_dim, name)
    sizes = Sizes(num_heads, num_kv_heads, head_dim, value_head_dim, widths.d_model)
    for size, hint in hints._asdict().items():
        has = getattr(sizes, size)
        is_binding = size != "d_model" or (hint is not None and hint.source.startswith("d_model="))
        if hint is not None and is_binding and hint.value != has:
            raise ArgumentError(
                f"{name}: {hint.source}, but its weights ({widths.shown}, for {num_heads} heads) have {size}="
                f"{has}; pass what they have, or say which weights are which by weights="
            )
    _check(sizes, widths, name)
    return sizes


def _num_heads(widths: Widths, hints: Hints, name: str) -> int:
    if hints.num_heads is not None:
        return hints.num_heads.value
    if widths.heads is not None:
        return widths.heads
    if hints.head_dim is not None and "q" in widths.rows:
        return _divided(widths.rows["q"], hints.head_dim, "query rows", widths, name)
    raise ArgumentError(
        f"{name} does not tell how many heads it has; pass num_heads=, 1 where it has only one"
    )


def _head_dim(widths: Widths, hints: Hints, num_heads: int, name: str) -> int:
    heads = hints.num_heads or Hint(num_heads, f"num_heads={num_heads}")
    if "q" in widths.rows:
        return _divided(widths.rows["q"], heads, "query rows", widths, name)
    if hints.head_dim is not None:
        return hints.head_dim.value
    if widths.mixed is not None and hints.value_head_dim is None:
        return _divided(widths.mixed, heads, "joined heads", widths, name)
    # All of them fused, and of one width.
    fused = max(widths.rows.values())
    kv_heads = num_heads if hints.num_kv_heads is None else hints.num_kv_heads.value
    count = num_heads + 2 * kv_heads
    return _divided(fused, Hint(count, f"{count} heads of query, key and value"), "rows", widths, name)


def _key_and_value(widths: Widths, hints: Hints, num_heads: int, head_dim: int, name: str) -> tuple[int, int]:
    """Return num_kv_heads and value_head_dim."""
    width = Hint(head_dim, f"head_dim={head_dim}")
    if "k" in widths.rows and "v" in widths.rows:
        num_kv_heads = _divided(widths.rows["k"], width, "key rows", widths, name)
        heads = Hint(num_kv_heads, f"num_kv_heads={num_kv_heads}")
        return num_kv_heads, _divided(widths.rows["v"], heads, "value rows", widths, name)
    if "q" in widths.rows:
        both = sum(rows for letters, rows in widths.rows.items() if letters != "q")
    else:
        both = sum(widths.rows.values()) - num_heads * head_dim
    value_head_dim = head_dim
    if hints.value_head_dim is not None:
        value_head_dim = hints.value_head_dim.value
    elif widths.mixed is not None:
        heads = Hint(num_heads, f"num_heads={num_heads}")
        value_head_dim = _divided(widths.mixed, heads, "joined heads", widths, name)
    pair = head_dim + value_head_dim
    return _divided(
        both, Hint(pair, f"a key and a value, {pair}"), "rows of both", widths, name
    ), value_head_dim


def _divided(width: int, by: Hint, what: str, widths: Widths, name: str) -> int:
    if width < by.value or width % by.value:
        raise ArgumentError(
            f"{name}: {by.source} does not divide its {width} {what} ({widths.shown}); pass the sizes it "
            "has, num_heads= and num_kv_heads=, or say which weights are which by weights="
        )
    return width // by.value


def _check(sizes: Sizes, widths: Widths, name: str) -> None:
    joined = sizes.num_heads * sizes.value_head_dim
    if widths.mixed is not None and widths.mixed != joined:
        raise ArgumentError(
            f"{name}: {sizes.num_heads} heads with values {sizes.value_head_dim} wide join to {joined}, and "
            f"its output projection takes {widths.mixed} ({widths.shown})"
        )
    if sizes.num_heads % sizes.num_kv_heads:
        raise ArgumentError(
            f"{name}: its weights ({widths.shown}) have {sizes.num_kv_heads} KV heads, which do not divide "
            f"{sizes.num_heads} heads; pass num_heads= and num_kv_heads=, or weights="
        )
