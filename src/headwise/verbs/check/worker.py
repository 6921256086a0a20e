"""The worker, in which a user's file is imported and asked: what the warden runs in the process it forks."""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from headwise.errors import HeadwiseError
from headwise.rope import Rope
from headwise.verbs.check import check
from headwise.verbs.check.user_file import load_from_file
from headwise.verbs.check.wire import written


def work(request: dict[str, Any], answers: int) -> None:
    """Check what a request names and write the result, or why there is none, to the file `answers`."""
    own = os.getpid()
    # At a segmentation fault, and when the warden stops this process: where it was.
    faulthandler.enable(file=answers)
    # Nothing is left beside the user's file.
    sys.dont_write_bytecode = True
    _write(answers, '{"started": true}')
    try:
        target = load_from_file(Path(request["path"]), request["name"])
        told = f'{{"result": {written(check(target, **_options(request["options"])))}}}'
    except HeadwiseError as error:
        told = _refused(error)
    except BaseException:
        # A fault of headwise, since what the file raises has been told by now.
        told = json.dumps({"failed": traceback.format_exc()})
    _end_if_forked(own)
    _write(answers, told)


def _refused(error: HeadwiseError) -> str:
    return json.dumps({"refused": {"kind": type(error).__name__, "message": str(error)}})


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `check`, what JSON cannot carry made here."""
    if "rope" not in given:
        return given
    return {**given, "rope": Rope(**given["rope"])}


def _end_if_forked(own: int) -> None:
    """End a copy that the user's file has forked, so that one process answers."""
    if os.getpid() != own:
        os._exit(0)


def _write(answers: int, line: str) -> None:
    left = line.encode() + b"\n"
    while left:
        left = left[os.write(answers, left) :]
