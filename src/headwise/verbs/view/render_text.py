"""A view for the terminal: the model, the text as tokens, the next tokens, and the heads that stand out."""

from __future__ import annotations

from collections.abc import Collection

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.evidence import STATISTICS, Statistic
from headwise.models.tokens import Token
from headwise.verbs.terminal import printable, several
from headwise.verbs.view.result import HeadSummary, View

SHOWN_TOKENS = 400
BAR_CELLS = 24


def print_view(view: View, console: Console) -> None:
    """Print `view` to `console`."""
    console.print(_facts(view))
    console.print()
    console.print(_token_lines(view.tokens, console.width))
    console.print()
    if view.next_tokens:
        console.print(_next_tokens(view))
        console.print()
    if view.focus_layer is None:
        console.print(_stand_out_table(view))
    else:
        console.print(_layer_table(view, view.focus_layer))
    console.print()
    console.print(
        f"Largest difference from eager attention on a probe: {_difference(view.max_logit_difference)}. "
        "A weight is where a head looked, not why.",
        style="dim",
    )


def _facts(view: View) -> Text:
    facts = view.facts
    direction = "causal" if facts.causal else "bidirectional"
    kv_heads = f", {several(facts.num_kv_heads, 'KV head')}" if facts.num_kv_heads != facts.num_heads else ""
    cache = f"{facts.kv_bytes_per_token:,} bytes of KV cache per token in 16 bits"
    line = Text()
    line.append(printable(facts.name), style="bold")
    heads = f"{several(facts.layers, 'layer')} x {several(facts.num_heads, 'head')} of {facts.head_dim}"
    line.append(f"  {heads}{kv_heads}, {direction}\n")
    line.append(cache if facts.kv_bytes_per_token else "no KV cache")
    return line


def _token_lines(tokens: tuple[Token, ...], width: int) -> Text:
    """Return the tokens side by side, between thin bars, spaces made visible; lines break at the bars."""
    lines = Text(f"{several(len(tokens), 'token')}  ", style="dim")
    used = lines.cell_len
    shown = tokens[:SHOWN_TOKENS]
    for number, token in enumerate(shown, start=1):
        piece = Text(_with_spaces_shown(token.text), style="not dim" if token.kind == "text" else "italic")
        piece.append("│" if number < len(shown) else "", style="dim")
        if used and used + piece.cell_len > width:
            lines.append("\n")
            used = 0
        lines.append_text(piece)
        used += piece.cell_len
    if len(tokens) > SHOWN_TOKENS:
        lines.append(f" … and {len(tokens) - SHOWN_TOKENS:,} more")
    return lines


def _with_spaces_shown(text: str) -> str:
    return printable(text).replace(" ", "·")


def _next_tokens(view: View) -> Table:
    table = _titled("Likeliest next tokens")
    table.add_column("token")
    table.add_column("probability", justify="right")
    table.add_column("")
    for following in view.next_tokens:
        bar = "█" * round(following.probability * BAR_CELLS)
        table.add_row(
            _with_spaces_shown(following.token),
            f"{following.probability:.3f}",
            Text(bar, style="blue"),
        )
    return table


def _stand_out_table(view: View) -> Table:
    """Return one row for each head that stands out, with every measure that makes it so, then the medians."""
    found = view.stand_outs()
    few = f"No head stands out: all {len(view.heads)} measure the same on this text"
    table = _titled(f"Heads that stand out, of {len(view.heads)}, as layer.head" if found else few)
    table.add_column("stands out by", no_wrap=True)
    _add_head_columns(table)
    for summary in dict.fromkeys(stand_out.summary for stand_out in found):
        measures = [stand_out for stand_out in found if stand_out.summary == summary]
        names = (f"{'highest' if each.highest else 'lowest'} {each.statistic.label}" for each in measures)
        cells = _head_cells(summary, bold=[each.statistic for each in measures])
        table.add_row(Text("\n".join(names)), *cells)
    cells = [Text(_three_digits(view.median(statistic)), style="dim") for statistic in STATISTICS]
    table.add_row(Text("median of all heads", style="dim"), "", "", *cells)
    return table


def _layer_table(view: View, layer: int) -> Table:
    table = _titled(f"Layer {layer}, as layer.head")
    _add_head_columns(table)
    for summary in view.heads_of(layer):
        table.add_row(*_head_cells(summary))
    return table


def _add_head_columns(table: Table) -> None:
    table.add_column("head", justify="right")
    table.add_column("KV", justify="right")
    for statistic in STATISTICS:
        table.add_column(statistic.label, justify="right")


def _difference(value: float) -> str:
    return f"{value:.1e}" if value else "none"


def _titled(title: str) -> Table:
    return Table(
        box=None, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left", title_style="bold"
    )


def _head_cells(summary: HeadSummary, *, bold: Collection[Statistic] = ()) -> list[Text]:
    numbers = [
        Text(_three_digits(getattr(summary, statistic.name)), style="bold" if statistic in bold else "")
        for statistic in STATISTICS
    ]
    return [Text(f"{summary.layer}.{summary.head}"), Text(str(summary.kv_head)), *numbers]


def _three_digits(value: float | None) -> str:
    """Return `value` with three significant digits, or three decimals below 1."""
    if value is None:
        return "-"
    decimals = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{decimals}f}"
