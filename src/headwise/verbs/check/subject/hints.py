"""What is known of the sizes before any weight is looked at: from the caller, and from attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from torch import nn

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Role
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.subject.meaning import MEANING_OF_NAME, Part
from headwise.verbs.check.subject.words import plain


class Hint(NamedTuple):
    """A size, and who says so."""

    value: int
    source: str


class Hints(NamedTuple):
    """The sizes that are known; None where nobody says one."""

    num_heads: Hint | None = None
    num_kv_heads: Hint | None = None
    head_dim: Hint | None = None
    value_head_dim: Hint | None = None
    d_model: Hint | None = None


_SIZES = {
    Role.NUM_HEADS: "num_heads",
    Role.NUM_KV_HEADS: "num_kv_heads",
    Part.HEAD_DIM: "head_dim",
    Part.VALUE_HEAD_DIM: "value_head_dim",
    Part.D_MODEL: "d_model",
    Part.GROUP_SIZE: "group_size",
}
# Some call the KV heads so, and some the query heads to each of them.
_AMBIGUOUS = frozenset({"groups", "numgroups", "ngroups", "numquerygroups"})
_SETTINGS = ("config", "cfg", "args", "layout", "hparams", "params")


def hints_of(owner: Any, expected: Expected, told: Hints) -> Hints:
    """Return what the caller says, else what attributes of `owner` say, else what is told of it.

    Raises:
        ArgumentError: both speak of the same size, and say different numbers.

    """
    shown = _shown_by(owner)
    group = shown.pop("group_size", None)
    if group is not None and "num_kv_heads" not in shown and "num_heads" in shown:
        heads = shown["num_heads"].value
        if group.value > 0 and heads % group.value == 0:
            shown["num_kv_heads"] = Hint(heads // group.value, group.source)
    declared = {
        name: Hint(value, f"{name}={value}")
        for name in Hints._fields
        if (value := getattr(expected, name)) is not None
    }
    for name in declared.keys() & shown.keys() - {"d_model"}:
        if declared[name].value != shown[name].value:
            raise ArgumentError(
                f"{declared[name].source} is given, and {type(owner).__name__} has {shown[name].source}; "
                f"leave {name} out, or pass what it has"
            )
    known = {name: hint for name, hint in told._asdict().items() if hint is not None}
    return Hints(**{**known, **shown, **declared})


def _shown_by(owner: Any) -> dict[str, Hint]:
    found: dict[str, Hint] = {}
    for path, part in _places(owner):
        for name, value in vars(part).items():
            meaning = Role.NUM_HEADS if name == "h" else MEANING_OF_NAME.get(plain(name))
            is_size = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if is_size and meaning in _SIZES and plain(name) not in _AMBIGUOUS:
                found.setdefault(_SIZES[meaning], Hint(value, f"{path}{name}={value}"))
    return found


def _places(owner: Any) -> Iterator[tuple[str, Any]]:
    """Return the objects whose attributes count, each with its path: modules first, then their settings."""
    if isinstance(owner, type) or not hasattr(owner, "__dict__"):
        return
    modules = list(owner.named_modules()) if isinstance(owner, nn.Module) else [("", owner)]
    for path, module in modules:
        # A linear layer's own sizes are not those of the attention.
        if not path or list(module.children()):
            yield f"{path}." if path else "", module
    for path, module in modules:
        for name in _SETTINGS:
            settings = getattr(module, name, None)
            if settings is not None and hasattr(settings, "__dict__"):
                yield f"{path}.{name}." if path else f"{name}.", settings
