"""A piece of right user code, and what is drawn for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import ModuleType
from typing import Any

import torch

from .variant_body import Sight

FUNCTION_NAMES = (("query", "key", "value"), ("q", "k", "v"), ("queries", "keys", "values"))


@dataclass(frozen=True)
class Variant:
    """One piece of right user code, what its author says of it, and the conventions that it follows."""

    seed: int
    source: str
    call: str
    declared: Mapping[str, Any]
    conventions: Mapping[str, str]

    def made(self) -> Any:
        """What is handed to `check`."""
        torch.manual_seed(self.seed)
        module = ModuleType(f"variant_{self.seed}")
        exec(compile(self.source, f"variant_{self.seed}.py", "exec"), vars(module))  # noqa: S102  # our own
        return eval(self.call, vars(module))  # noqa: S307  # our own

    def __str__(self) -> str:
        return f"variant {self.seed}, check(..., {dict(self.declared)}):\n{self.source}\n{self.call}"


def drawn_sight(draw: Random, *, flag: bool = True) -> Sight:
    causal = draw.choice(("always", "flag", "never") if flag else ("always", "never"))
    window = draw.choice((None, None, 3, 5)) if causal == "always" else None
    mask = draw.choice((None, "attend", "ignore", "add"))
    padding = draw.choice((None, None, "hides", "keeps"))
    return Sight(causal, draw.random() < 0.2, window, mask, padding)


def options_of(sight: Sight) -> list[str]:
    named = {"mask": sight.mask, "padding": sight.padding}
    return [
        *(f"{name}=None" for name, drawn in named.items() if drawn),
        *(["is_causal=False"] if sight.causal == "flag" else []),
    ]


def conventions_of(sight: Sight, axes: str, **more: str) -> dict[str, str]:
    """What `check` has to report, by its names for it."""
    means = {"attend": "True means attend", "ignore": "True means ignore"}
    letters = {"b": "batch", "h": "heads", "q": "tokens", "d": "width"}
    found = {
        "axes": f"[{', '.join(letters[letter] for letter in axes)}]",
        "causal": {"always": "always", "flag": "by its flag", "never": "no"}[sight.causal],
        "window": "none" if sight.window is None else f"{sight.window} keys, the row's own among them",
        **more,
    }
    if sight.mask in ("attend", "ignore"):
        found["boolean mask"] = means[sight.mask]
    if sight.mask == "add":
        found["float mask"] = "added to the scores"
    if sight.padding is not None:
        found["padding mask"] = means["ignore" if sight.padding == "hides" else "attend"]
    return found


def alignment_of(sight: Sight) -> dict[str, str]:
    """What `check` has to report of code that takes more keys than queries."""
    if sight.causal == "never":
        return {}
    return {"causal alignment": "upper_left" if sight.upper_left else "lower_right"}


def drawn_declared(draw: Random, sight: Sight, **more: Any) -> dict[str, Any]:
    """What cannot be guessed is said; what can, now and then."""
    declared = {name: said for name, said in more.items() if said is not None}
    if sight.window is not None and draw.random() < 0.6:
        declared["window"] = sight.window
    if sight.mask and draw.random() < 0.3:
        declared["mask_means"] = sight.mask
    if sight.causal == "always" and draw.random() < 0.3:
        declared["causal"] = True
    if sight.padding is not None:
        declared["arguments"] = {"padding": "padding"}
    return declared
