"""The command `headwise` and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise import __version__
from headwise.cli.bench import bench_command
from headwise.cli.check import check_command
from headwise.cli.explain import explain_command
from headwise.cli.options import DebugOption
from headwise.cli.plan import plan_command
from headwise.cli.view import view_command

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)
# Extra words are let through so that the command itself can say that a text needs quotes.
app.command("view", context_settings={"allow_extra_args": True})(view_command)
app.command("explain")(explain_command)
app.command("check")(check_command)
app.command("plan")(plan_command)
app.command("bench")(bench_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headwise {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def headwise(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """See, test and trust every attention head.

    Exit codes: 0 done, 1 the thing examined is wrong, 2 the request is wrong, 70 a fault of headwise.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
