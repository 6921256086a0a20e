"""What was found on a machine, for the terminal: groups and backends in a table, a line for each finding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.check_machine.result import Examined, Finding, MachineCheck, Verdict
from headwise.verbs.terminal import printable, several

_STYLES = {"right": "green", "differs": "yellow", "wrong": "bold red"}
_FOOTNOTE = (
    "Cases that are right; ~ right by another convention; ! wrong. What a backend has no form of is not "
    "counted; Flex, which compiles for seconds, is asked less. hw: headwise."
)


def print_machine_check(found: MachineCheck, console: Console) -> None:
    """Print `found` to `console`."""
    console.print(_machine(found))
    console.print()
    present = [
        each for each in found.examined if any(finding.verdict != "cannot" for finding in each.findings)
    ]
    console.print(_table(found, present))
    console.print(_FOOTNOTE, style="dim")
    _print_findings("Wrong", "wrong", "!", found, console)
    _print_findings("Right by another convention", "differs", "~", found, console)
    _print_refusals(found, present, console)
    console.print()
    console.print(_sentence(found))


def _machine(found: MachineCheck) -> Text:
    machine = found.machine
    listed = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    text = Text(printable(machine.processor), style="bold")
    text.append(f"  {several(machine.usable_cpus, 'CPU')}; {found.seconds:.0f} s\n", style="not bold")
    return text.append(printable(listed), style="not bold dim")


def _table(found: MachineCheck, present: Sequence[Examined]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("of", justify="right", no_wrap=True, style="dim")
    for each in present:
        table.add_column(each.label.replace(" ", "\n"), justify="right", no_wrap=True)
    for group, count in found.groups.items():
        table.add_row(group, str(count), *(_cell(each, group) for each in present))
    return table


def _cell(each: Examined, group: str) -> Text:
    verdicts = [*each.verdicts(group).values()]
    marks: dict[Verdict, str] = {"right": "", "differs": "~", "wrong": "!"}
    text = Text()
    for verdict, mark in marks.items():
        count = verdicts.count(verdict)
        if count:
            text.append(f"{mark}{count}", style=_STYLES[verdict])
    return text or Text("-", style="dim")


def _print_findings(heading: str, verdict: str, mark: str, found: MachineCheck, console: Console) -> None:
    """Print one finding for each backend, group and kind, with the number of others like it, and its line."""
    kinds = [kind for each in found.examined for kind in _kinds(each, verdict)]
    if not kinds:
        return
    console.print()
    console.print(Text(heading, style="bold").append(", each with a line that shows it", style="not bold"))
    for each, alike in kinds:
        finding = alike[0]
        text = Text(f"{mark} {each.label}", style=_STYLES[verdict])
        text.append(f" {finding.group}: {_told(finding)}{_more(alike)}", style="not bold default")
        console.print(text)
        # Not folded by us: a line that is pasted must be one line.
        console.print(Text(str(finding.line), style="dim"), soft_wrap=True)


def _kinds(each: Examined, verdict: str) -> Iterator[tuple[Examined, list[Finding]]]:
    def kind(finding: Finding) -> tuple[str, str, str]:
        return finding.group, finding.convention or "", finding.reason or ""

    of_verdict = sorted((one for one in each.findings if one.verdict == verdict), key=kind)
    for _, alike in groupby(of_verdict, key=kind):
        yield each, list(alike)


def _told(finding: Finding) -> str:
    form = f" ({finding.form})" if finding.form else ""
    if finding.reason is not None:
        return f"{finding.case}{form}: {printable(finding.reason)}"
    what = "" if finding.convention is None else f"{finding.convention}; "
    return f"{finding.case}{form}: {what}{_numbers(finding)}"


def _numbers(finding: Finding) -> str:
    """Return the two numbers with as many digits as tell them apart."""
    found, exact = finding.found, finding.exact
    if not isinstance(found, float) or not isinstance(exact, float):
        return f"gives {found}, exact is {exact}"
    digits = next((digits for digits in (4, 8) if f"{found:.{digits}g}" != f"{exact:.{digits}g}"), 17)
    limit = f", allowed are {finding.limit:.0e}" if finding.verdict == "wrong" else ""
    return f"gives {found:.{digits}g}, exact is {exact:.{digits}g}{limit}"


def _more(alike: Sequence[Finding]) -> str:
    return f" (and {len(alike) - 1} more like it)" if len(alike) > 1 else ""


def _print_refusals(found: MachineCheck, present: Sequence[Examined], console: Console) -> None:
    """Print why a backend has no column, or no form of some cases: each reason with its number of cases."""
    console.print()
    for each in found.examined:
        cases: dict[str, set[tuple[str, str]]] = {}
        for finding in each.findings:
            if finding.verdict == "cannot":
                cases.setdefault(str(finding.reason), set()).add((finding.group, finding.case))
        told = "; ".join(f"{reason} ({len(of)})" for reason, of in cases.items())
        if each.missing is not None:
            told = each.missing
        elif told and each in present:
            told = f"no form of some cases: {told}"
        if told:
            console.print(Text(f"- {each.label}: {printable(told)}", style="dim"))


def _sentence(found: MachineCheck) -> Text:
    verdicts = {finding.verdict for each in found.examined for finding in each.findings}
    if not verdicts - {"cannot"}:
        return Text("Nothing here could be asked.", style="bold yellow")
    if found.is_right:
        return Text("Attention is right on this machine.", style="bold green")
    labels = ", ".join(each.label for each in found.examined if not each.is_right)
    return Text(f"Wrong on this machine: {labels}.", style="bold red")
