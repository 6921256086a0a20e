"""The process in which one backend is asked: whatever it does to its process, the parent lives.

It is started by `running` and told on standard input which backend to ask what. Into a pipe it writes one
JSON document a line: what it begins, and what it found.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from importlib import import_module
from typing import Any

from headwise.verbs.check_machine.asking import Question
from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError, required


def main() -> None:
    """Answer one request."""
    request = json.load(sys.stdin)
    with os.fdopen(request["pipe"], "w", encoding="utf-8") as pipe:

        def tell(**message: Any) -> None:
            pipe.write(json.dumps(message) + "\n")
            pipe.flush()

        backend = backend_at(request["home"])
        try:
            for module, package in backend.libraries.items():
                required(module, package=package)
        except CannotRunError as absence:
            tell(missing=str(absence))
            return
        question = None
        for number, unit in enumerate(request["units"]):
            case = _case(unit["case"])
            tell(begun=number)
            if question is None or question.case != case:
                question = Question(case)
            form = Form(unit["form"]["name"], tuple(unit["form"]["statements"]))
            tell(found=asdict(question.asked(backend, form)))


def backend_at(home: str) -> Backend:
    """Return an instance of the class `module:Name`."""
    module, name = home.split(":")
    found: Backend = getattr(import_module(module), name)()
    return found


def _case(told: dict[str, Any]) -> Case:
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in told.items()
    }
    return Case(**given)
