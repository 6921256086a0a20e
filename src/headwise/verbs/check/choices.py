"""The conventions that are still possible: what the caller left open, in the order of trying."""

from __future__ import annotations

from itertools import product
from typing import Any

from headwise.rope import Rope
from headwise.verbs.check.asking import Form, Role, Subject
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.faults import Change
from headwise.verbs.check.probes import Probe
from headwise.verbs.check.recipe import Recipe

# What models in use have: Llama 2 and 3, Qwen 2; each in both pairings.
_ROPES = tuple(
    Rope(base=base, pairing=pairing)
    for base in (10_000.0, 500_000.0, 1_000_000.0)
    for pairing in ("half_split", "interleaved")
)
_SOFTCAPS = (20.0, 30.0, 50.0)  # Gemma 2 has 50 in attention
_WINDOWS = (1, 2, 3, 4, 5, 6)
_MASKS = (
    ("attend", "add"), ("ignore", "add"), ("attend", "attend"), ("ignore", "ignore"), ("attend", "other"),
    ("ignore", "other"), ("add", "add"), ("other", "add"),
)  # fmt: skip


class Choices:
    """The conventions of one subject that its caller left open.

    Args:
        subject, expected: what is examined, and what is declared of it.
        readings: how many ways there are to read its weights.
        boolean_masks: whether it takes a boolean mask.
        order_matters: whether the last row depends on the order of the tokens before it. If not, nothing
            turns with the position, and no window ends among them.

    """

    def __init__(
        self,
        subject: Subject,
        expected: Expected,
        *,
        readings: int,
        boolean_masks: bool,
        order_matters: bool,
    ) -> None:
        self._subject, self._expected = subject, expected
        self._readings = readings
        self._boolean_masks = boolean_masks
        self._order_matters = order_matters
        self._kept: dict[tuple[int, frozenset[str] | None], list[Change]] = {}

    def always(self, *, unlike: int, only: frozenset[str] | None = None) -> list[Change]:
        """Return what it may do without being asked.

        Args:
            unlike: how many of them are unlike the usual at once, causality and the reading of weights aside.
            only: which of them may be; any by default.

        """
        if (unlike, only) in self._kept:
            return self._kept[unlike, only]
        names, options = zip(*self._always().items(), strict=True)
        free = {"causal", "reading"}
        places = [
            range(len(given) if only is None or name in only | free else 1)
            for name, given in zip(names, options, strict=True)
        ]
        chosen = [
            chosen
            for chosen in product(*places)
            if sum(place > 0 for name, place in zip(names, chosen, strict=True) if name not in free) == unlike
        ]
        chosen.sort(key=lambda places: (sum(place > 0 for place in places), places))
        self._kept[unlike, only] = [
            {name: given[place] for name, given, place in zip(names, options, each, strict=True)}
            for each in chosen
        ]
        return self._kept[unlike, only]

    def _always(self) -> dict[str, tuple[Any, ...]]:
        subject, expected = self._subject, self._expected
        rows = subject.form is not Form.HEADS and subject.sizes.num_heads > 1
        ropes = (None, *_ROPES) if subject.form is Form.PROJECTED and self._order_matters else (None,)
        windows = _WINDOWS if self._order_matters else ()
        return {
            "reading": tuple(range(max(self._readings, 1))),
            "head_order": ("head major", "width major") if rows else ("head major",),
            "rope": ropes if expected.rope is None else (expected.rope,),
            "causal": self._causal(),
            "window": self._given(Role.WINDOW, expected.window, windows),
            "scale": self._given(Role.SCALE, expected.scale, ()),
            "softcap": self._given(Role.SOFTCAP, expected.softcap, _SOFTCAPS),
        }

    def _causal(self) -> tuple[bool, ...]:
        if Role.CAUSAL in self._subject.takes:
            return (False,)
        if self._expected.causal is None:
            # A window that is declared counts the keys up to the row's own.
            return (False, True) if self._expected.window is None else (True,)
        return (bool(self._expected.causal),)

    def _given(self, role: Role, declared: Any, guesses: tuple[Any, ...]) -> tuple[Any, ...]:
        if role in self._subject.takes:
            return (None,)
        return (None, *guesses) if declared is None else (declared,)

    def alignments(self) -> tuple[Change, ...]:
        """Return how causal and window may be aligned where lengths differ."""
        declared = self._expected.causal
        names = (declared,) if isinstance(declared, str) else ("lower_right", "upper_left")
        return tuple({"alignment": name} for name in names)

    def masks(self) -> tuple[Change, ...]:
        """Return what the entries of a boolean and of a float mask may say."""
        declared = self._expected.mask_means
        allowed = [
            (boolean, floats)
            for boolean, floats in _MASKS
            if declared in (None, boolean) or (declared == "add" and floats == "add")
        ]
        if not self._boolean_masks and declared is None:
            allowed = [pair for pair in allowed if pair[1] == "add"]
        return tuple({"mask_means": boolean, "float_mask": floats} for boolean, floats in allowed)

    def paddings(self) -> tuple[Change, ...]:
        """Return what True in a padding mask may say."""
        declared = self._expected.mask_means
        # What is declared of the mask is said of the only one there is.
        if declared in ("attend", "ignore") and Role.MASK not in self._subject.takes:
            return ({"padding_means": declared},)
        return ({"padding_means": "ignore"}, {"padding_means": "attend"})

    def empties(self, recipe: Recipe) -> tuple[Change, ...]:
        """Return what may stand where a softmax sees nothing."""
        names = ("zero", "nan", "mean")
        # Where whole rows are hidden by a fault, leaving them open would leave nothing to tell it by.
        open_too = recipe.softmax == "keys" and recipe.padding != "on queries"
        return tuple({"empty": name} for name in ((*names, "other") if open_too else names))

    def behind_cache(self) -> tuple[Change, ...]:
        """Return whether new tokens see no later one behind a cache, though they do without."""
        return tuple({"causal_behind_cache": causal} for causal in (False, True))

    def sides(self) -> tuple[Change, ...]:
        """Return to which sides a window may reach where nothing else hides what lies ahead."""
        both = () if self._expected.window is not None else ("both",)
        return tuple({"window_sides": sides} for sides in (*both, "left"))


def is_open_behind_cache(probe: Probe, recipe: Recipe) -> bool:
    """Whether it shows how new tokens that see each other before see each other behind a cache."""
    several = probe.inputs.query.shape[-2] > 1
    return probe.past is not None and several and not (recipe.causal or probe.inputs.options.get(Role.CAUSAL))


def is_two_sided(probe: Probe, recipe: Recipe) -> bool:
    """Whether it shows to which sides a window reaches."""
    options = probe.inputs.options
    windowed = recipe.window or options.get(Role.WINDOW)
    return bool(windowed) and not (recipe.causal or options.get(Role.CAUSAL))


def is_uneven(probe: Probe, recipe: Recipe) -> bool:
    """Whether the alignment of causal and window shows in a probe."""
    inputs = probe.inputs
    placed = recipe.causal or recipe.window or {Role.CAUSAL, Role.WINDOW} & inputs.options.keys()
    differ = inputs.query.shape[-2] != inputs.key.shape[-2]
    return bool(placed) and differ and probe.past is None
