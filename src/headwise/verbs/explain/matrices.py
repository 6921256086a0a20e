"""Labelled matrices for the terminal: side by side where they fit, cut short where they are large."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from headwise.verbs.explain.result import Matrix
from headwise.verbs.terminal import printable

MOST_ROWS = 12
LABEL_CELLS = 12
GAP = 2
UNBOUNDED = 10_000
MASKED = "·"


@dataclass(frozen=True)
class Labelled:
    """A matrix, the name that stands above it, and a name for each of its columns."""

    name: str
    matrix: Matrix
    columns: Sequence[str]


def print_side_by_side(rows: Sequence[str], matrices: Sequence[Labelled], console: Console) -> None:
    """Print matrices that share their rows next to each other; where the console is too narrow, below."""
    side_by_side = Table.grid(padding=(0, 2 * GAP, 0, 0))
    first, *others = matrices
    tables = [_table(first, rows, console.width), *(_table(other, None, console.width) for other in others)]
    side_by_side.add_row(*tables)
    unbounded = console.options.update(max_width=UNBOUNDED)
    if Measurement.get(console, unbounded, side_by_side).maximum <= console.width:
        console.print(side_by_side)
        return
    for position, labelled in enumerate(matrices):
        if position:
            console.print()
        console.print(_table(labelled, rows, console.width))


def token_labels(tokens: Sequence[str]) -> list[str]:
    """Return each token as it can be printed, with its position if the same label stands elsewhere too."""
    labels = []
    for token in tokens:
        label = Text(printable(token))
        label.truncate(LABEL_CELLS, overflow="ellipsis")
        labels.append(label.plain)
    return [
        f"{label} ({position})" if labels.count(label) > 1 else label for position, label in enumerate(labels)
    ]


def four_decimals(number: float) -> str:
    """Return a number to four decimals, a masked one as a dot, and never "-0.0000"."""
    return f"{round(float(number), 4) + 0.0:.4f}" if np.isfinite(number) else MASKED


def _table(labelled: Labelled, rows: Sequence[str] | None, width: int) -> Table:
    """Return the matrix as a table, without row labels if `rows` is None: they stand further left."""
    row_names = None if rows is None else [_label(name) for name in rows[:MOST_ROWS]]
    columns = [_label(name) for name in labelled.columns]
    left = width - (max(name.cell_len for name in row_names) + GAP if row_names else 0)
    shown = labelled.matrix[:MOST_ROWS]
    cells = [[Text(four_decimals(number)) for number in row] for row in shown]
    widest = max(cell.cell_len for row in [columns, *cells] for cell in row) + GAP
    fitting = max((left + GAP) // widest, 1)

    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, title_justify="left", title_style="bold")
    table.title = Text(f"{labelled.name}  {list(labelled.matrix.shape)}", style="bold", no_wrap=True)
    if row_names is not None:
        table.add_column()
    for name in columns[:fitting]:
        table.add_column(name, justify="right", min_width=widest - GAP, no_wrap=True)
    for position, row in enumerate(cells):
        table.add_row(*([] if row_names is None else [row_names[position]]), *row[:fitting])
    if fitting < len(columns) or len(shown) < len(labelled.matrix):
        table.caption_justify = "left"
        table.caption = Text(
            f"{len(shown)} of {len(labelled.matrix)} rows, {min(fitting, len(columns))} of {len(columns)} "
            "columns; --json has all"
        )
    return table


def _label(name: str) -> Text:
    return Text(name, style="dim", no_wrap=True)
