"""Tables of heads for the terminal, and how their numbers are written."""

from __future__ import annotations

from collections.abc import Collection

from rich.table import Table
from rich.text import Text

from headwise.evidence import STATISTICS, Statistic
from headwise.verbs.view.result import HeadSummary


def titled(title: str | None) -> Table:
    """Return an empty table under a title."""
    return Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left", title_style="bold"
    )


def add_head_columns(table: Table) -> None:
    """Give a table the columns that `head_cells` fills."""
    table.add_column("head", justify="right")
    table.add_column("KV", justify="right")
    for statistic in STATISTICS:
        table.add_column(statistic.label, justify="right")


def head_cells(summary: HeadSummary, *, bold: Collection[Statistic] = ()) -> list[Text]:
    """Return a head's place, its KV head and its numbers, some of them bold."""
    numbers = [
        Text(three_digits(getattr(summary, statistic.name)), style="bold" if statistic in bold else "")
        for statistic in STATISTICS
    ]
    return [Text(f"{summary.layer}.{summary.head}"), Text(str(summary.kv_head)), *numbers]


def three_digits(value: float | None) -> str:
    """Return `value` with three significant digits, or three decimals below 1."""
    if value is None:
        return "-"
    size = abs(value)
    decimals = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:.{decimals}f}"
