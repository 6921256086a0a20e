"""A view for the terminal: the model, the text as tokens, the next tokens, and the heads that stand out."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.evidence import STATISTICS
from headwise.models import Token
from headwise.verbs.terminal import printable
from headwise.verbs.view.result import HeadSummary, StandOut, View

SHOWN_TOKENS = 400
BAR_CELLS = 24


def print_view(view: View, console: Console) -> None:
    """Print `view` to `console`."""
    console.print(_facts(view))
    console.print()
    console.print(_token_line(view.tokens))
    console.print()
    if view.next_tokens:
        console.print(_next_tokens(view))
        console.print()
    if view.focus_layer is None:
        console.print(_stand_out_table(view.stand_outs(), len(view.heads)))
    else:
        console.print(_layer_table(view, view.focus_layer))
    console.print()
    console.print(
        f"Largest difference from eager attention on a probe: {view.max_logit_difference:.1e}. "
        "A weight is where a head looked, not why.",
        style="dim",
    )


def _facts(view: View) -> Text:
    facts = view.facts
    cache = (
        f"{facts.kv_bytes_per_token:,} bytes of KV cache per token (2-byte elements)"
        if facts.kv_bytes_per_token
        else "no KV cache"
    )
    line = Text()
    line.append(printable(facts.name), style="bold")
    line.append(
        f"  {facts.layers} layers x {facts.num_heads} heads ({facts.num_kv_heads} KV heads) of {facts.head_dim}, "
        f"{cache}, {'causal' if facts.causal else 'bidirectional'}"
    )
    return line


def _token_line(tokens: tuple[Token, ...]) -> Text:
    """Return the tokens side by side, separated by thin bars, spaces made visible."""
    line = Text(f"{len(tokens)} tokens  ", style="dim")
    for number, token in enumerate(tokens[:SHOWN_TOKENS]):
        if number:
            line.append("│", style="dim")
        shown = printable(token.text).replace(" ", "·")
        line.append(shown, style="default" if token.kind == "text" else "dim italic")
    if len(tokens) > SHOWN_TOKENS:
        line.append(f" … and {len(tokens) - SHOWN_TOKENS} more", style="dim")
    return line


def _next_tokens(view: View) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title="Likeliest next tokens", title_justify="left")
    for heading, justify in (("token", "left"), ("probability", "right"), ("", "left")):
        table.add_column(heading, justify=justify)
    for following in view.next_tokens:
        bar = "█" * round(following.probability * BAR_CELLS)
        table.add_row(
            printable(following.token).replace(" ", "·"), f"{following.probability:.3f}", Text(bar, style="blue")
        )
    return table


def _stand_out_table(found: tuple[StandOut, ...], num_heads: int) -> Table:
    table = Table(
        box=None, padding=(0, 2, 0, 0), title=f"Heads that stand out, of {num_heads}", title_justify="left"
    )
    table.add_column("stands out by")
    _add_head_columns(table)
    for stand_out in found:
        measure = f"{'highest' if stand_out.highest else 'lowest'} {stand_out.statistic.label}"
        row = [Text(measure), *_head_cells(stand_out.summary)]
        column = 3 + STATISTICS.index(stand_out.statistic)
        row[column] = Text(row[column].plain, style="bold")
        table.add_row(*row)
    medians = dict.fromkeys((stand_out.statistic.name for stand_out in found), 0.0)
    medians |= {stand_out.statistic.name: stand_out.median for stand_out in found}
    cells = [Text(_three_digits(medians.get(statistic.name)), style="dim") for statistic in STATISTICS]
    table.add_row(Text("median of all heads", style="dim"), "", "", *cells)
    return table


def _layer_table(view: View, layer: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"Layer {layer}", title_justify="left")
    _add_head_columns(table)
    for summary in view.heads_of(layer):
        table.add_row(*_head_cells(summary))
    return table


def _add_head_columns(table: Table) -> None:
    table.add_column("layer.head", justify="right")
    table.add_column("KV", justify="right")
    for statistic in STATISTICS:
        table.add_column(statistic.label, justify="right")


def _head_cells(summary: HeadSummary) -> list[Text]:
    numbers = [Text(_three_digits(getattr(summary, statistic.name))) for statistic in STATISTICS]
    return [Text(f"{summary.layer}.{summary.head}"), Text(str(summary.kv_head)), *numbers]


def _three_digits(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"
