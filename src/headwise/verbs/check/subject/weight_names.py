"""Which projection a weight is, by its name: `q_proj`, `W_q`, `to_qkv`, `c_attn`, `in_proj_bias`, ..."""

from __future__ import annotations

from typing import NamedTuple

from headwise.verbs.check.subject.words import words_of


class WeightRole(NamedTuple):
    """The part a weight plays.

    - letters: whose rows it holds, in order, of q, k and v; `"o"` is the output projection
    - is_bias: whether it is the bias of that projection
    """

    letters: str
    is_bias: bool = False

    @property
    def words(self) -> str:
        """What it is called in `weights`: `"query"`, `"qkv"`, `"output_bias"`."""
        name = _LONG.get(self.letters, self.letters)
        return f"{name}_bias" if self.is_bias else name


_LONG = {"q": "query", "k": "key", "v": "value", "o": "output"}
_LETTERS = {
    **{long: short for short, long in _LONG.items()},
    "queries": "q",
    "keys": "k",
    "values": "v",
    "out": "o",
    "querykeyvalue": "qkv",
    "keyqueryvalue": "kqv",
    "keyvalue": "kv",
    "in": "qkv",
    "unify": "o",
    "unifyheads": "o",
    "final": "o",
    "combine": "o",
    "merge": "o",
}
# They say that something is a weight, and not which one.
_FILLERS = frozenset(
    {"w", "weight", "weights", "proj", "projection", "projections", "linear", "lin", "fc", "dense", "layer"}
    | {"to", "c", "attn", "attention", "self", "kernel", "mat", "matrix", "transform", "head", "heads", "mha"}
)
# A projection that is called nothing else mixes the heads, as the last one does.
_OUTPUT_ALONE = frozenset({"proj", "projection", "dense", "linear", "fc", "lin"})

ARGUMENT_WORDS = tuple(
    f"{WeightRole(letters).words}_{kind}"
    for letters in ("q", "k", "v", "o", "qkv", "kv")
    for kind in ("weight", "bias")
)
"""What a user calls them by in `arguments`."""


def weight_role(name: str) -> WeightRole | None:
    """Return the part that a name tells of, or None where it tells of none."""
    words = [_prefix_apart(word) for word in words_of(name)]
    flat = [part for pair in words for part in pair]
    is_bias = "bias" in flat or flat[:1] == ["b"]
    rest = "".join(word for word in flat if word not in _FILLERS and word not in {"bias", "b"})
    letters = _letters(rest)
    if letters is None and not rest:
        letters = "qkv" if {"c", "attn"} <= set(flat) else "o" if _OUTPUT_ALONE & set(flat) else None
    return None if letters is None else WeightRole(letters, is_bias)


def says_weight(name: str) -> bool:
    """Return whether a name says that it is a weight, so that `w_q` is one and `q` is none."""
    flat = [part for word in words_of(name) for part in _prefix_apart(word)]
    return bool({"w", "b", "weight", "weights", "bias", "proj", "projection", "linear"} & set(flat))


def _letters(rest: str) -> str | None:
    if rest in _LETTERS:
        return _LETTERS[rest]
    is_of_letters = 1 <= len(rest) <= 3 and set(rest) <= set("qkv") and len(set(rest)) == len(rest)
    return rest if is_of_letters or rest == "o" else None


def _prefix_apart(word: str) -> tuple[str, ...]:
    """Return `wq` as w and q, `bqkv` as b and qkv, `toqueries` as to and queries."""
    for prefix in ("w", "b", "to"):
        rest = word.removeprefix(prefix)
        if rest not in {word, ""} and _letters(rest) is not None:
            return prefix, rest
    return (word,)
