"""What surrounds every command: exit codes, errors in one line, an interrupted run, a closed pipe."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import typer

from headwise.cli.app import app
from headwise.cli.options import wants_debug
from headwise.errors import HeadwiseError
from headwise.verbs.terminal import printable

# The root of usage errors, which typer takes from click in some releases and from its own copy in others.
UsageError: Any = typer.BadParameter.__base__


class ExitCode(IntEnum):
    """How a command ended."""

    DONE = 0
    FOUND_WRONG = 1  # what was examined is wrong
    BAD_REQUEST = 2
    FAULT = 70  # of headwise itself; sysexits.h gives this number to internal errors
    DISK_FULL = 74  # sysexits.h again, for input and output that fail
    INTERRUPTED = 130  # as a shell reports a program ended by SIGINT
    CLOSED_PIPE = 141  # as a shell reports a program ended by SIGPIPE


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; `arguments` are those of the process by default.

    Example:
        >>> main(["plan", "--num-heads", "7", "--d-model", "512"]) == ExitCode.BAD_REQUEST
        True

    """
    _prepare_streams()
    shared: dict[str, Any] = {}
    try:
        code = _invoke(sys.argv[1:] if arguments is None else list(arguments), shared)
        sys.stdout.flush()
    except BaseException as error:  # a panic in a Rust extension is no Exception
        return _ended_by(error, debug=wants_debug(shared))
    return code


def _invoke(arguments: list[str], shared: dict[str, Any]) -> int:
    # Not `app()`: it would turn any end of file into "Aborted" and a closed pipe into exit code 1.
    command = typer.main.get_command(app)
    try:
        with command.make_context("headwise", arguments, obj=shared) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return ExitCode.DONE


def _ended_by(error: BaseException, *, debug: bool) -> int:
    # rich makes a SystemExit of a closed pipe. A BrokenPipeError may also come from a pipe to a child.
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        return ExitCode.CLOSED_PIPE
    if isinstance(error, BrokenPipeError) and _reader_is_gone():
        _discard_output()
        return ExitCode.CLOSED_PIPE
    if isinstance(error, SystemExit):
        raise error
    if debug:
        traceback.print_exception(error)
    message, code = _message_and_code(error)
    with contextlib.suppress(OSError):  # there is nobody left to tell if standard error is gone too
        sys.stderr.write("\n".join(printable(line) for line in message.splitlines()) + "\n")
        sys.stderr.flush()
    return code


def _message_and_code(error: BaseException) -> tuple[str, ExitCode]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", ExitCode.INTERRUPTED
    if isinstance(error, UsageError):
        help_of = error.ctx.command_path if error.ctx else "headwise"
        return f"error: {error.format_message()}\nTry '{help_of} --help'.", ExitCode.BAD_REQUEST
    if isinstance(error, HeadwiseError):
        return f"error: {error}", ExitCode.BAD_REQUEST
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"error: {error.strerror}; make room and run it again", ExitCode.DISK_FULL
    return (
        f"error: headwise failed: {type(error).__name__}: {error}\n"
        "This is a fault of headwise, not of the request; run it again with --debug for the traceback.",
        ExitCode.FAULT,
    )


def _prepare_streams() -> None:
    """Give the process the streams it may lack, and let no character be unprintable."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started the process
            setattr(sys, name, io.TextIOWrapper(io.FileIO(os.devnull, "w"), encoding="utf-8"))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")


def _reader_is_gone() -> bool:
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _discard_output() -> None:
    """Point standard output nowhere, or Python complains at exit about what it could not write."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
