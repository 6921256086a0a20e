"""A bench for the terminal: the machine, what each backend took, how far it was off, what could not run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.bench.backends import BACKENDS
from headwise.verbs.bench.result import Bench, Row, Timing
from headwise.verbs.bench.works import Work
from headwise.verbs.terminal import printable, several

_LABELS = {backend.name: backend.label for backend in BACKENDS}
_CLOCKS = {
    "thread": "CPU time of the calling thread",
    "process": "CPU time of the process",
    "wall": "wall time",
}
_FOOTNOTE = (
    "Medians of calls taken in turn. x: how many times as fast headwise is as the best peer (bold). Share: "
    "of the multiply-add peak, useful FLOPs alone; of read bandwidth (r) where one query reads a cache. "
    "Sizes: batch, query heads/KV heads, queries x keys, head_dim. ! marks what is off by more than rounding "
    "and thus no peer."
)


def print_bench(bench: Bench, console: Console) -> None:
    """Print `bench` to `console`."""
    console.print(_machine(bench))
    console.print()
    clocks = dict.fromkeys(_CLOCKS[row.clock] for row in bench.rows)
    _print_heading("Milliseconds a call", " or ".join(clocks), console)
    console.print(_times(bench))
    console.print()
    _print_heading("Largest error", "as a share of the largest exact value", console)
    console.print(_errors(bench))
    _print_absences(bench, console)
    console.print()
    console.print(_FOOTNOTE, style="dim")


def _machine(bench: Bench) -> Text:
    machine, peaks = bench.machine, bench.peaks
    lines = Text(printable(machine.processor), style="bold")
    cpus, threads = several(machine.usable_cpus, "CPU"), several(bench.threads, "thread")
    listed = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    for style, line in (
        ("not bold", f"  {cpus}, load {machine.load}; timed on {threads}\n"),
        ("not bold", f"Peaks: {peaks.fma_flops / 1e9:.1f} GFLOP/s, {peaks.read_bytes / 1e9:.1f} GB/s read\n"),
        ("not bold dim", printable(listed)),
    ):
        lines.append(line, style=style)
    return lines


def _times(bench: Bench) -> Table:
    table = _table()
    table.add_column("work", no_wrap=True)
    for label in (*_LABELS.values(), "x", "share"):
        table.add_column(label, justify="right", no_wrap=True)
    for row in bench.rows:
        cells = [_time(row, row.timing_of(name)) for name in _LABELS]
        table.add_row(row.work.name, *cells, _ratio(row), _share(bench, row))
    return table


def _time(row: Row, timing: Timing | None) -> Text:
    if timing is None:
        return Text("-", style="dim")
    shown = _three_digits(1000 * timing.seconds)
    if not timing.is_right:
        return Text(f"{shown}!", style="red")
    return Text(shown, style="bold" if timing == row.best_peer else "")


def _ratio(row: Row) -> Text:
    return Text("-", style="dim") if row.ratio is None else Text(f"{row.ratio:.2f}", style="bold")


def _share(bench: Bench, row: Row) -> str:
    if row.work.is_decode:
        return f"{bench.read_share(row):.0%} r"
    return f"{bench.fma_share(row):.0%}  "


def _errors(bench: Bench) -> Table:
    table = _table()
    for heading in ("work", "sizes"):
        table.add_column(heading, no_wrap=True)
    for label in _LABELS.values():
        table.add_column(label, justify="right", no_wrap=True)
    for row in bench.rows:
        cells = [_error(row.timing_of(name)) for name in _LABELS]
        table.add_row(row.work.name, Text(_sizes(row.work), style="dim"), *cells)
    return table


def _error(timing: Timing | None) -> Text:
    if timing is None:
        return Text("-", style="dim")
    shown = f"{timing.relative_error:.0e}"
    return Text(shown) if timing.is_right else Text(f"{shown}!", style="red")


def _sizes(work: Work) -> str:
    """Return batch, heads (and KV heads where they are fewer), queries x keys, and head_dim."""
    heads = str(work.num_heads)
    if work.num_kv_heads != work.num_heads:
        heads += f"/{work.num_kv_heads}"
    return f"{work.batch},{heads},{work.seq_len}x{work.kv_len},{work.head_dim}"


def _print_absences(bench: Bench, console: Console) -> None:
    """Print each reason once, with the works it holds for."""
    works_of: dict[tuple[str, str], list[str]] = {}
    for row in bench.rows:
        for absence in row.absences:
            works_of.setdefault((absence.backend, absence.reason), []).append(row.work.name)
    if works_of:
        console.print()
    for (backend, reason), works in works_of.items():
        where = "" if len(works) == len(bench.rows) else f" on {', '.join(works)}"
        console.print(f"- {_LABELS[backend]}{where}: {printable(reason)}")


def _print_heading(heading: str, remark: str, console: Console) -> None:
    console.print(Text(heading, style="bold").append(f", {remark}", style="not bold"))


def _table() -> Table:
    return Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")


def _three_digits(milliseconds: float) -> str:
    decimals = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2 if milliseconds >= 1 else 3
    return f"{milliseconds:.{decimals}f}"
