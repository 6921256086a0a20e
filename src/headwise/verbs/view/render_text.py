"""A view for the terminal: the model, the text as tokens, the next tokens, and the heads that stand out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.evidence import STATISTICS
from headwise.models.head_scores import SCORES, HeadScores
from headwise.verbs.terminal import printable
from headwise.verbs.view.differences import (
    HeadDifference,
    head_differences,
    tokens_note,
    why_not_head_by_head,
)
from headwise.verbs.view.facts_text import facts_lines, tokens_lines, with_spaces_shown
from headwise.verbs.view.render_json import STRONGEST
from headwise.verbs.view.result import Comparison, View
from headwise.verbs.view.tables import add_head_columns, head_cells, three_digits, titled

BAR_CELLS = 24
DIFFERING = 3
"""Heads a statistic in the table of two views."""


def print_view(shown: View | Comparison, console: Console) -> None:
    """Print a view, or two beside each other, to `console`."""
    if isinstance(shown, View):
        _print_reading(shown, console)
        console.print(_heads_table(shown))
        _print_scores(shown, console)
        _print_foot(shown, console)
        return
    for name, view in (("First", shown.first), ("Second", shown.second)):
        console.print(name, style="bold")
        _print_reading(view, console)
        _print_scores(view, console)
    _print_differences(shown, console)
    _print_foot(shown.first, console)


def _print_reading(view: View, console: Console) -> None:
    console.print(facts_lines(view))
    console.print()
    console.print(tokens_lines(view, console.width))
    console.print()
    if view.next_tokens:
        console.print(_next_tokens(view))
        console.print()


def _print_foot(view: View, console: Console) -> None:
    console.print()
    console.print(
        f"Largest difference from eager attention on a probe: {_difference(view.max_logit_difference)}. "
        "A weight is where a head looked, not why.",
        style="dim",
    )


def _print_scores(view: View, console: Console) -> None:
    if view.head_scores is None:
        return
    console.print()
    # Above the table and not its title, which would be broken to the width of a narrow table.
    title = f"Strongest heads on {view.head_scores.num_tokens} random tokens twice, as layer.head"
    console.print(title, style="bold")
    console.print(_scores_table(view.head_scores))
    for score in SCORES:
        console.print(f"{score.label}: {score.definition}", style="dim")


def _print_differences(comparison: Comparison, console: Console) -> None:
    note, reason = tokens_note(comparison), why_not_head_by_head(comparison)
    if note is not None:
        console.print(f"{note[0].upper()}{note[1:]}.")
        console.print()
    if reason is not None:
        console.print(f"The heads do not stand for each other one by one: {reason}.")
        return
    found = head_differences(comparison, each=DIFFERING)
    few = "No head differs: all measure the same in both"
    console.print("Heads that differ most, as layer.head" if found else few, style="bold")
    if found:
        console.print(_differences_table(found))


def _next_tokens(view: View) -> Table:
    table = titled("Likeliest next tokens")
    table.add_column("token")
    table.add_column("probability", justify="right")
    table.add_column("")
    for following in view.next_tokens:
        bar = "█" * round(following.probability * BAR_CELLS)
        table.add_row(
            with_spaces_shown(following.token),
            f"{following.probability:.3f}",
            Text(bar, style="blue"),
        )
    return table


def _heads_table(view: View) -> Table:
    return _stand_out_table(view) if view.focus_layer is None else _layer_table(view, view.focus_layer)


def _stand_out_table(view: View) -> Table:
    """Return one row for each head that stands out, with every measure that makes it so, then the medians."""
    found = view.stand_outs()
    few = f"No head stands out: all {len(view.heads)} measure the same on this text"
    table = titled(f"Heads that stand out, of {len(view.heads)}, as layer.head" if found else few)
    table.add_column("stands out by", no_wrap=True)
    add_head_columns(table)
    for summary in dict.fromkeys(stand_out.summary for stand_out in found):
        measures = [stand_out for stand_out in found if stand_out.summary == summary]
        names = (f"{'highest' if each.highest else 'lowest'} {each.statistic.label}" for each in measures)
        cells = head_cells(summary, bold=[each.statistic for each in measures])
        table.add_row(Text("\n".join(names)), *cells)
    cells = [Text(three_digits(view.median(statistic)), style="dim") for statistic in STATISTICS]
    table.add_row(Text("median of all heads", style="dim"), "", "", *cells)
    return table


def _layer_table(view: View, layer: int) -> Table:
    path = next((maps.name for maps in view.layers if maps.layer == layer), "")
    table = titled(f"Layer {layer}, as layer.head" + (f" ({printable(path)})" if path else ""))
    add_head_columns(table)
    for summary in view.heads_of(layer):
        table.add_row(*head_cells(summary))
    return table


def _scores_table(scores: HeadScores) -> Table:
    """Return the strongest heads by each score, strongest first."""
    table = titled(None)
    table.add_column("score", no_wrap=True)
    for place in range(min(STRONGEST, len(scores.heads))):
        table.add_column(str(place + 1), no_wrap=True)
    for score in SCORES:
        strongest = scores.strongest(score.name, count=STRONGEST)
        cells = [f"{head.layer}.{head.head} {getattr(head, score.name):.3f}" for head in strongest]
        table.add_row(score.label, *cells)
    return table


def _differences_table(found: Sequence[HeadDifference]) -> Table:
    table = titled(None)
    table.add_column("by", no_wrap=True)
    for name in ("head", "first", "second", "difference"):
        table.add_column(name, justify="right")
    for one in found:
        before, after = (getattr(summary, one.statistic.name) for summary in (one.first, one.second))
        table.add_row(
            one.statistic.label,
            f"{one.first.layer}.{one.first.head}",
            three_digits(before),
            three_digits(after),
            Text(("+" if one.difference > 0 else "") + three_digits(one.difference), style="bold"),
        )
    return table


def _difference(value: float) -> str:
    return f"{value:.1e}" if value else "none"
