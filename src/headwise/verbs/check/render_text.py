"""What `check` found, told in the terminal: right or wrong, by how much, the conventions, what to mend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.check.asking import Form
from headwise.verbs.check.result import CheckResult, Explanation, Fault, ProbeResult
from headwise.verbs.terminal import printable, several

PROBES_SHOWN = 8
INDENT = "  "
_GIVEN = {
    Form.HEADS: "query, key and value split into heads",
    Form.WIDTH: "query, key and value of full width",
    Form.PROJECTED: "rows of tokens, with projections",
}


def print_check(found: CheckResult, console: Console) -> None:
    """Print `found` to `console`."""
    console.print(_verdict(found))
    console.print(Text(_by_how_much(found)))
    _print_conventions(found, console)
    _print_cautions(found, console)
    if found.is_right:
        return
    if found.explanations:
        _print_explanations(found, console)
    elif not found.departures:
        _print_nothing_fits(found, console)


def _verdict(found: CheckResult) -> Text:
    verdict = Text(printable(found.name), style="bold")
    if found.is_right:
        return verdict.append(" is ").append("right", style="green").append(".")
    if found.departures:
        told = "; ".join(f"{each.name} is {each.found}, not {each.declared}" for each in found.departures)
        return (
            verdict.append(" is right, but ")
            .append("not as declared", style="red")
            .append(printable(f": {told}."))
        )
    verdict.append(" is ").append("wrong", style="red").append(": ")
    if not found.explanations:
        return verdict.append("no known fault reproduces its numbers.")
    if len(found.explanations) > 1:
        names = " or ".join(explanation.name for explanation in found.explanations)
        return verdict.append(printable(names)).append(", which no probe tells apart.")
    (explanation,) = found.explanations
    return verdict.append(printable(" And ".join(fault.what for fault in explanation.faults)))


def _by_how_much(found: CheckResult) -> str:
    wrong = [probe for probe in found.probes if not probe.is_right]
    asked = several(len(found.probes), "probe")
    which = next((probe for probe in found.probes if _same(probe.error, found.error)), None)
    where = "" if which is None else f" ({printable(which.what)})"
    if found.is_right:
        return f"Right on {asked}; largest error {_beside(found.error, found.allowed)}{where}."
    return f"Wrong on {len(wrong)} of {asked}; error {_beside(found.error, found.allowed)}{where}."


def _print_conventions(found: CheckResult, console: Console) -> None:
    _print_heading("Conventions, as measured", console)
    sizes = found.sizes
    width = f"{sizes.head_dim}"
    if sizes.value_head_dim != sizes.head_dim:
        width += f" (value {sizes.value_head_dim})"
    heads = f"{several(sizes.num_heads, 'query head')} on {several(sizes.num_kv_heads, 'KV head')} of {width}"
    rows = [("given", _GIVEN[found.form]), ("heads", heads)]
    rows += [(convention.name, convention.value) for convention in found.conventions]
    console.print(_table(rows))


def _print_cautions(found: CheckResult, console: Console) -> None:
    if not found.cautions:
        return
    _print_heading("Not wrong, but it goes wrong easily", console)
    for caution in found.cautions:
        console.print(Text(printable(f"{caution.name}: {caution.what}")))
        _print_indented(caution.mend, console)


def _print_explanations(found: CheckResult, console: Console) -> None:
    several_fit = len(found.explanations) > 1
    _print_heading("One of these it is" if several_fit else "What is wrong", console)
    for place, explanation in enumerate(found.explanations):
        if place:
            console.print()
        for fault in explanation.faults:
            # What one explanation says stands in the verdict already.
            _print_fault(fault, console, says_what=several_fit or bool(found.departures))
        _print_indented(_how_near(explanation, found), console, style="dim")


def _print_fault(fault: Fault, console: Console, *, says_what: bool) -> None:
    console.print(Text(printable(fault.name), style="bold"))
    if says_what:
        _print_indented(fault.what, console)
    _print_indented(f"Mend: {fault.mend}", console)


def _how_near(explanation: Explanation, found: CheckResult) -> str:
    which = "Together they reproduce" if len(explanation.faults) > 1 else "It reproduces"
    return (
        f"{which} the numbers of all {several(len(found.probes), 'probe')}, off by "
        f"{_beside(explanation.error, explanation.allowed)}."
    )


def _print_nothing_fits(found: CheckResult, console: Console) -> None:
    _print_heading("What is wrong is not known here", console)
    console.print(
        Text(f"{found.searched:,} faults and pairs of faults were tried, and none gives its numbers.")
    )
    wrong = [probe for probe in found.probes if not probe.is_right]
    if found.nearest is not None:
        names = " and ".join(fault.name for fault in found.nearest.faults) or "no fault at all"
        console.print(
            Text(
                printable(
                    f"Nearest is {names}: it reproduces {found.nearest.probes_reproduced} of "
                    f"{several(len(found.probes), 'probe')} and is off by "
                    f"{_beside(found.nearest.error, found.nearest.allowed)} on another."
                )
            )
        )
    console.print()
    console.print(Text("Wrong on:"))
    console.print(_table(_probe_rows(wrong[:PROBES_SHOWN])))
    if len(wrong) > PROBES_SHOWN:
        console.print(Text(f"and {len(wrong) - PROBES_SHOWN} more; --json has all.", style="dim"))


def _probe_rows(probes: Sequence[ProbeResult]) -> Iterable[tuple[str, str]]:
    return ((probe.name, f"{probe.what}: {_beside(probe.error, probe.allowed)}") for probe in probes)


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    for name, value in rows:
        table.add_row(Text(printable(name)), Text(printable(value)))
    return table


def _print_heading(heading: str, console: Console) -> None:
    console.print()
    console.print(Text(heading, style="bold"))


def _print_indented(text: str, console: Console, *, style: str = "") -> None:
    for line in Text(printable(text), style=style).wrap(console, console.width - len(INDENT)):
        console.print(Text(INDENT).append(line))


def _beside(error: float, allowed: float) -> str:
    shown = f"{error:.1e}" if isfinite(error) else "no number"
    return f"{shown}, where {allowed:.1e} is allowed"


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)  # noqa: PLR0124 - NaN is not itself
