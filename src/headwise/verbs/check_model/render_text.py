"""What was found of a model, for the terminal: the verdict, what is wrong by kind, and the layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headwise.verbs.check_model.result import Finding, LayerCheck, ModelCheck
from headwise.verbs.terminal import printable, several

TABLE_ROWS = 12
"""Of more layers than these the table shows as many with the largest error in terms of what is allowed."""


def print_model_check(found: ModelCheck, console: Console) -> None:
    """Print what was found to `console`."""
    console.print(_verdict(found))
    console.print(Text(printable(_what_ran(found)), style="dim"))
    _print_findings("Wrong", found.findings, console)
    _print_findings("Remarks", found.remarks, console)
    _print_layers(found, console)
    _print_left_out(found, console)


def _verdict(found: ModelCheck) -> Text:
    name = printable(found.model)
    if found.is_right:
        return Text(f"{name}: nothing wrong was found", style="bold green")
    return Text(f"{name}: {several(len(found.findings), 'finding')}", style="bold red")


def _what_ran(found: ModelCheck) -> str:
    what = f'"{found.text}"' if found.text is not None else "random numbers"
    if found.text is None and found.num_tokens:
        what = f"random tokens (seed {found.seed})"
    length = f", {several(found.num_tokens, 'token')}" if found.num_tokens else ""
    return (
        f"{found.family}, {several(len(found.layers), 'attention layer')}, ran with {found.implementation} "
        f"attention in {found.dtype} on {what}{length}"
    )


def _print_findings(heading: str, findings: Sequence[Finding], console: Console) -> None:
    if not findings:
        return
    console.print()
    console.print(Text(heading, style="bold"))
    for where, finding in _together(findings):
        console.print(Text.assemble((f"{finding.kind}  ", "bold"), printable(f"{where}{finding.words}")))
        if finding.mend:
            console.print(Padding(Text(f"mend: {printable(finding.mend)}", style="dim"), (0, 0, 0, 4)))


def _together(findings: Sequence[Finding]) -> Iterator[tuple[str, Finding]]:
    """Yield one finding for all layers that have the same to say, and where."""
    said: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        said.setdefault((finding.kind, finding.words), []).append(finding)
    for same in said.values():
        layers = [finding.layer for finding in same if finding.layer is not None]
        if not layers:
            yield "", same[0]
        elif len(same) == 1:
            yield f"layer {layers[0]} ({same[0].layer_name}): ", same[0]
        elif len(set(layers)) < len(layers):  # the stacks of an encoder-decoder number their layers alike
            yield f"{', '.join(str(finding.layer_name) for finding in same)}: ", same[0]
        else:
            yield f"layers {_runs(layers)}: ", same[0]


def _runs(numbers: Iterable[int]) -> str:
    """Return numbers with runs as ranges: 0-3, 7."""
    parts = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda each: each[1] - each[0]):
        members = [number for _, number in run]
        parts.append(str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}")
    return ", ".join(parts)


def _print_layers(found: ModelCheck, console: Console) -> None:
    console.print()
    console.print(Text("Attention against the definition in float64", style="bold"))
    shown = sorted(found.layers, key=_badness, reverse=True)[:TABLE_ROWS]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("layer", "module", "heads", "error", "allowed", ""):
        table.add_column(name, justify="left" if name in {"module", ""} else "right")
    for layer in found.layers:
        if layer in shown:
            heads = (
                f"{layer.num_heads}"
                if layer.num_heads == layer.num_kv_heads
                else (f"{layer.num_heads}/{layer.num_kv_heads}")
            )
            table.add_row(
                str(layer.layer),
                Text(printable(layer.name)),
                heads,
                f"{layer.error:.1e}",
                f"{layer.allowed:.1e}",
                _judgement(layer),
            )
    console.print(table)
    if len(found.layers) > len(shown):
        console.print(
            Text(
                f"The {len(shown)} of {len(found.layers)} layers that come nearest to what is allowed; "
                "--json has all.",
                style="dim",
            )
        )


def _judgement(layer: LayerCheck) -> Text:
    if not layer.is_finite:
        return Text("given NaN", style="red")
    return Text("right") if layer.is_right else Text("wrong", style="red")


def _badness(layer: LayerCheck) -> float:
    if not layer.is_finite:
        return math.inf
    return layer.error / layer.allowed if layer.allowed else float(layer.error > 0)


def _print_left_out(found: ModelCheck, console: Console) -> None:
    reasons: dict[str, list[LayerCheck]] = {}
    for layer in found.layers:
        if layer.not_found is not None:
            reasons.setdefault(layer.not_found, []).append(layer)
    if not reasons and not found.unseen:
        return
    console.print()
    console.print(Text("Not examined", style="bold"))
    for reason, layers in reasons.items():
        names = ", ".join(layer.name for layer in layers[:3])
        more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
        console.print(Text(printable(f"{names}{more}: {reason}")))
    for unseen in found.unseen:
        console.print(Text(printable(f"{unseen.name}: {unseen.reason}")))
