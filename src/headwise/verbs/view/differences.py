"""How two views differ, head by head."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.evidence import STATISTICS, Statistic
from headwise.verbs.view.result import Comparison, HeadSummary, View


@dataclass(frozen=True)
class HeadDifference:
    """A head of two views and how much more it measures in the second."""

    statistic: Statistic
    first: HeadSummary
    second: HeadSummary
    difference: float


def why_not_head_by_head(comparison: Comparison) -> str | None:
    """Return why the heads of two views cannot be set against each other one by one; None where they can."""
    grids = [_grid(comparison.first), _grid(comparison.second)]
    if grids[0].keys() != grids[1].keys():
        layers = [_layers(grid) for grid in grids]
        return f"heads are recorded in {layers[0]} in the first and in {layers[1]} in the second"
    for layer, heads in grids[0].items():
        if grids[1][layer] != heads:
            return f"layer {layer} has {heads} heads in the first and {grids[1][layer]} in the second"
    return None


def tokens_note(comparison: Comparison) -> str | None:
    """Return what to know of the tokens where the two views do not have the same; None where they do."""
    first, second = comparison.first, comparison.second
    if [token.text for token in first.tokens] == [token.text for token in second.tokens]:
        return None
    counts = f"{len(first.tokens)} and {len(second.tokens)}"
    if first.text == second.text:
        return f"the two models cut the text into other tokens ({counts})"
    return f"the texts have {counts} tokens; some numbers depend on the length, entropy and distance most"


def head_differences(comparison: Comparison, *, each: int | None = 3) -> tuple[HeadDifference, ...]:
    """Return for every statistic the heads that differ most, the largest difference first.

    Args:
        comparison: two views.
        each: how many heads a statistic; None for all.

    Returns:
        The differences in the order of `STATISTICS`; nothing where heads do not stand for each other. A head
        without the number in one of the views, or with no difference, is left out.

    """
    if why_not_head_by_head(comparison) is not None:
        return ()
    found: list[HeadDifference] = []
    for statistic in STATISTICS:
        differing = [
            HeadDifference(statistic, first, second, after - before)
            for first, second in zip(comparison.first.heads, comparison.second.heads, strict=True)
            if (before := getattr(first, statistic.name)) is not None
            and (after := getattr(second, statistic.name)) is not None
            and after != before
        ]
        found += sorted(differing, key=lambda one: -abs(one.difference))[:each]
    return tuple(found)


def _grid(view: View) -> dict[int, int]:
    heads: dict[int, int] = {}
    for summary in view.heads:
        heads[summary.layer] = heads.get(summary.layer, 0) + 1
    return heads


def _layers(grid: dict[int, int]) -> str:
    numbers = list(grid)
    if len(numbers) > 1 and numbers == list(range(len(numbers))):
        return f"layers 0 to {numbers[-1]}"
    return f"layers {', '.join(map(str, numbers))}"
