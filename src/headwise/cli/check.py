"""The command `headwise check`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import typer

from headwise.cli import check_options as given
from headwise.cli.bench import progress as progress_of_shares
from headwise.cli.check_request import (
    CheckForm,
    InFile,
    asked_form,
    asked_of_file,
    checked_seconds,
    in_file,
)
from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.cli.view import progress
from headwise.models.given_text import check_text


def check_command(
    context: typer.Context,
    target: given.TargetArgument = None,
    *,
    machine: given.MachineOption = False,
    text: given.TextOption = None,
    num_heads: given.NumHeadsOption = None,
    num_kv_heads: given.NumKvHeadsOption = None,
    head_dim: given.HeadDimOption = None,
    value_head_dim: given.ValueHeadDimOption = None,
    d_model: given.DModelOption = None,
    causal: given.CausalOption = None,
    causal_align: given.CausalAlignOption = None,
    window: given.WindowOption = None,
    softcap: given.SoftcapOption = None,
    scale: given.ScaleOption = None,
    rope: given.RopeOption = None,
    rope_base: given.RopeBaseOption = None,
    axes: given.AxesOption = None,
    mask_means: given.MaskMeansOption = None,
    argument: given.ArgumentOption = None,
    seed: given.SeedOption = 0,
    time_limit: given.TimeLimitOption = 120.0,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say whether attention is right, and if not, what is wrong.

    FILE.py:NAME: a function, class or module of yours is asked on small inputs and held against the
    reference: right or wrong, its conventions, and where it is wrong, which known fault gives its numbers.
    The file runs in a process of its own with a time limit; what it prints is left out.

    MODEL: the attention of a checkpoint at every layer; copied, dead and tiled heads.

    --machine: every attention backend installed here, on a set of cases that go wrong easily.

    Exit code 1 if something is wrong.
    """
    form = asked_form(target, context)
    if form is CheckForm.MACHINE:
        wrong = _check_machine(as_json=as_json)
    elif (asked := in_file(target or "")) is not None:
        options = asked_of_file(context.params)
        wrong = _check_file(asked, options, checked_seconds(time_limit), as_json=as_json)
    else:
        wrong = _check_model(target or "", text, seed, as_json=as_json)
    if wrong:
        # Here and not above, for this module is loaded before the frame around it.
        from headwise.cli.frame import ExitCode

        raise typer.Exit(ExitCode.FOUND_WRONG)


def _check_file(asked: InFile, options: Mapping[str, Any], seconds: float, *, as_json: bool) -> bool:
    with progress() as notify:
        notify(f"checking {asked.path}" + (f":{asked.name}" if asked.name else ""))
        # torch takes seconds to load, and what is wrong by itself is told at once.
        from headwise.verbs.check.child import check_file
        from headwise.verbs.check.render_json import to_json
        from headwise.verbs.check.render_text import print_check

        found = check_file(asked.path, asked.name, options=options, seconds=seconds)
    if as_json:
        write_json(to_json(found))
    else:
        print_check(found, console())
    return not found.is_right


def _check_model(model: str, text: str | None, seed: int, *, as_json: bool) -> bool:
    if text is not None:
        check_text(text)
    with progress() as notify:
        # torch again.
        from headwise.verbs.check_model import check_model
        from headwise.verbs.check_model.render_json import to_json
        from headwise.verbs.check_model.render_text import print_model_check

        found = check_model(model, text=text, seed=seed, notify=notify)
    if as_json:
        write_json(to_json(found))
    else:
        print_model_check(found, console())
    return not found.is_right


def _check_machine(*, as_json: bool) -> bool:
    with progress_of_shares() as notify:
        # torch again.
        from headwise.verbs.check_machine import check_machine
        from headwise.verbs.check_machine.render_json import to_json
        from headwise.verbs.check_machine.render_text import print_machine_check

        found = check_machine(notify=notify if sys.stderr.isatty() else _sparingly(notify))
    if as_json:
        write_json(to_json(found))
    else:
        print_machine_check(found, console())
    return not found.is_right


def _sparingly(notify: Callable[[str, float], None]) -> Callable[[str, float], None]:
    """Return what tells of each tenth once: a log takes fewer lines than a bar takes steps."""
    told = -1

    def tell(step: str, share: float) -> None:
        nonlocal told
        if int(10 * share) > told:
            told = int(10 * share)
            notify(step, share)

    return tell
