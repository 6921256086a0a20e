"""The command `headwise bench`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Annotated

import typer
from rich.console import Console

from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.verbs.bench.works import WORKS, works_named

_NAMES = ", ".join(work.name for work in WORKS)


def bench_command(
    *,
    work: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"A work to time; may be given several times. Of {_NAMES}."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of every backend; as torch is set if left out.")
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, help="Calls of every backend; about a second's worth if left out.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say how fast attention is on this machine.

    Headwise against torch, FlexAttention, ONNX Runtime and JAX, in turn in one run, each result checked. The
    last two come with: pip install 'headwise[bench]'. Exit code 1 if headwise computes something wrong.
    """
    works_named(work)
    # Here and not above, for torch takes seconds to load, and what is wrong by itself should be told at once.
    from headwise.cli.frame import ExitCode
    from headwise.verbs.bench.compute import bench
    from headwise.verbs.bench.heap import settle_heap
    from headwise.verbs.bench.render_json import to_json
    from headwise.verbs.bench.render_text import print_bench

    settle_heap()
    with progress() as notify:
        found = bench(works=work, threads=threads, repeat=repeat, notify=notify)
    if as_json:
        write_json(to_json(found))
    else:
        print_bench(found, console())
    if not found.is_right:
        raise typer.Exit(ExitCode.FOUND_WRONG)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, float], None]]:
    """Show on standard error how far the bench is: a bar in a terminal, lines elsewhere.

    The bar is drawn when a step begins and at no other time, for its own thread would disturb what is timed.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    errors = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if not errors.is_terminal:
        yield lambda step, share: errors.print(f"{share:4.0%} {step}")
        return
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=errors, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda step, share: bar.update(task, description=step, completed=share, refresh=True)
