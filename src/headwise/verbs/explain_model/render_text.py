"""A traced call told in the terminal: text, Q K V, a row of scores and weights, what is added, the logit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.explain.matrices import Labelled, four_decimals, print_side_by_side, token_labels
from headwise.verbs.explain_model.result import LogitParts, ModelTrace
from headwise.verbs.terminal import printable

KEYS_SHOWN = 12
HEADS_SHOWN = 10
BAR_CELLS = 24
CAVEAT = "Attention is not explanation; what a head does is a hypothesis to test by ablation."
LOGIT_CAVEAT = (
    "Direct contributions leave out what later layers make of a head, and an amount counts only against what "
    "other tokens get."
)


def print_trace(trace: ModelTrace, console: Console) -> None:
    """Print `trace` to `console`."""
    names = token_labels([_plain(token.text) for token in trace.tokens])
    _tell_text(trace, names, console)
    _tell_projections(trace, names, console)
    _tell_row(trace, names, console)
    _tell_added(trace, console)
    _tell_next_tokens(trace, console)
    if trace.logit is None:
        _heading(f"{6 if trace.next_tokens else 5}. The logit, part by part", console)
        console.print(Text(printable(f"Left out: {trace.no_logit}.")))
    else:
        _tell_logit(trace, trace.logit, console)
    console.print()
    console.print(
        Text(
            f"Largest difference from eager attention on a probe: {trace.max_logit_difference:.1e}. {CAVEAT}",
            style="dim",
        )
    )


def _tell_text(trace: ModelTrace, names: Sequence[str], console: Console) -> None:
    title = f"{trace.model}, layer {trace.layer}, head {trace.head}: one call, step by step"
    console.print(Text(printable(title), style="bold"))
    shared = (
        f"of {trace.num_kv_heads}, which query heads share" if trace.num_kv_heads < trace.num_heads else ""
    )
    console.print(
        Text(
            printable(
                f"{trace.family}; {trace.layer_name}, one of {trace.num_layers} attention layers; query head "
                f"{trace.head} of {trace.num_heads}, KV head {trace.kv_head} {shared}".rstrip()
                + ". Layers, heads and tokens count from 0."
            )
        )
    )
    _heading("1. The text as tokens", console)
    line = Text()
    for position, token in enumerate(trace.tokens):
        style = "bold underline" if position == trace.position else ""
        line.append(f"{position} ", style="dim").append(_plain(token.text), style=style)
        line.append("  ")
    console.print(line)
    console.print(
        Text(f'The query is token {trace.position}, "{_plain(trace.tokens[trace.position].text)}".')
    )


def _tell_projections(trace: ModelTrace, names: Sequence[str], console: Console) -> None:
    _heading("2. Queries, keys and values of this head", console)
    console.print(
        Text("As the attention call gets them: positions that rotate queries and keys are already in.")
    )
    for name, matrix in (("Q", trace.query), ("K", trace.key), ("V", trace.value)):
        console.print()
        columns = [str(column) for column in range(matrix.shape[1])]
        print_side_by_side(names, [Labelled(name, matrix, columns)], console)


def _tell_row(trace: ModelTrace, names: Sequence[str], console: Console) -> None:
    row = trace.row
    _heading(f'3. Scores and weights of "{names[trace.position]}"', console)
    bounded = f", then bounded by {row.softcap:g} tanh(score / {row.softcap:g})" if row.softcap else ""
    console.print(
        Text(
            f"score = q . k, times the scale {row.scale:.4g}{bounded}; weights = softmax over the "
            f"{np.count_nonzero(row.visible)} of {len(row.visible)} tokens that the mask lets it see."
        )
    )
    console.print()
    seen = np.flatnonzero(row.visible)
    shown = np.sort(seen[np.argsort(-row.weights[seen], kind="stable")][:KEYS_SHOWN])
    header = ["token", "q . k", "scaled", *(["bias"] if row.added is not None else []), "weight"]
    rows = [
        [
            f"{key} {names[key].removesuffix(f' ({key})')}",
            f"{row.scores[key]:.3f}",
            f"{row.scaled[key]:.3f}",
            *([f"{row.added[key]:.3f}"] if row.added is not None else []),
            f"{row.weights[key]:.4f}",
            "█" * round(row.weights[key] * BAR_CELLS),
        ]
        for key in shown
    ]
    console.print(_table([*header, ""], rows))
    if len(shown) < len(seen):
        console.print(Text(f"The {len(shown)} of {len(seen)} that weigh most; --json has all.", style="dim"))
    if row.sink is not None:
        console.print(Text(f"A learned sink takes {row.sink:.4f} of the softmax and gives nothing."))
    console.print()
    console.print(
        Text(
            f"Output of the head = weights V. Largest difference from what the layer computed: "
            f"{row.output_difference:.1e}."
        )
    )


def _tell_added(trace: ModelTrace, console: Console) -> None:
    _heading("4. What each head of the layer adds", console)
    console.print(
        Text(
            printable(
                f"Each head's output goes through its own slice of the output projection "
                f"({trace.projection}). Their sum, with the bias if there is one, is what the attention "
                "block gives."
            )
        )
    )
    console.print()
    direct = None
    if trace.logit is not None:
        direct = next(one for one in trace.logit.layers if one.layer == trace.layer)
    rows = [
        [
            f"head {head}" + (" (this one)" if head == trace.head else ""),
            f"{np.linalg.norm(added):.4f}",
            *([] if direct is None else [f"{direct.heads[head]:+.4f}"]),
        ]
        for head, added in enumerate(trace.added)
    ]
    if trace.bias is not None:
        bias = [] if direct is None else [f"{direct.bias:+.4f}"]
        rows.append(["bias", f"{np.linalg.norm(trace.bias):.4f}", *bias])
    last = ["all together", f"{np.linalg.norm(trace.block):.4f}"]
    rows.append(last if direct is None else [*last, f"{direct.heads.sum() + direct.bias:+.4f}"])
    console.print(_table(["", "length of what it adds", *([] if direct is None else ["to the logit"])], rows))
    console.print()
    console.print(
        Text(
            "Largest difference of the sum from the block's output, over all tokens: "
            f"{trace.sum_difference:.1e}."
        )
    )


def _tell_next_tokens(trace: ModelTrace, console: Console) -> None:
    if not trace.next_tokens:
        return
    _heading("5. The likeliest next tokens", console)
    rows = (
        [
            _plain(token.text),
            f"{token.logit:.4f}",
            f"{token.probability:.4f}",
            "█" * round(token.probability * BAR_CELLS),
        ]
        for token in trace.next_tokens
    )
    console.print(_table(["token", "logit", "probability", ""], rows))


def _tell_logit(trace: ModelTrace, parts: LogitParts, console: Console) -> None:
    chosen = _plain(trace.next_tokens[0].text)
    _heading(f'6. The logit of "{chosen}", part by part', console)
    console.print(
        Text(
            printable(
                f"The final norm ({parts.norm_name}) multiplies by one number for all parts, held at "
                f"{parts.norm_scale:.4g}, so that the logit is a sum of what each part adds."
            )
        )
    )
    console.print()
    amounts = {
        "embedding": parts.embedding,
        "attention heads": parts.heads_total,
        "attention biases": parts.biases_total,
        "MLPs": parts.mlps_total,
        "norm and unembedding biases": parts.constant,
        "sum": parts.total,
        "logit": parts.logit,
    }
    console.print(_table(["", "adds"], ([name, f"{amount:+.4f}"] for name, amount in amounts.items())))
    console.print(
        Text(
            f"Difference of the sum from the logit: {parts.difference:+.1e}; of the parts from what the norm "
            f"reads, at most {parts.residual_difference:.1e}. {LOGIT_CAVEAT}"
        )
    )
    own = trace.next_tokens[0].logit
    if abs(own - parts.logit) > 1e-3 * max(1.0, abs(own)):
        console.print(Text(f"The model turns this logit into {own:.4f} afterwards (a scale or a bound)."))
    console.print()
    ranked = sorted(
        ((one.layer, head, float(amount)) for one in parts.layers for head, amount in enumerate(one.heads)),
        key=lambda one: -abs(one[2]),
    )
    rows = ([f"{layer}.{head}", f"{amount:+.4f}"] for layer, head, amount in ranked[:HEADS_SHOWN])
    console.print(_table([f"strongest of {len(ranked)} heads, as layer.head", "adds"], rows))
    place = [(layer, head) for layer, head, _ in ranked].index((trace.layer, trace.head)) + 1
    amount = ranked[place - 1][2]
    console.print(Text(f"This head, {trace.layer}.{trace.head}: {four_decimals(amount)}, place {place}."))


def _plain(text: str) -> str:
    """Return a token without the spaces around it, or what stands for spaces alone."""
    return printable(text.strip(" ")) or "␣"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(header):
        last = place == len(header) - 1 and not name
        table.add_column(Text(name, style="dim"), justify="right" if place and not last else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _heading(heading: str, console: Console) -> None:
    console.print()
    console.print(Text(heading, style="bold"))
