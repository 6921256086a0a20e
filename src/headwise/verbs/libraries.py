"""Libraries that need not be here: what a verb says where one is missing, or cannot do what is asked."""

from __future__ import annotations

import importlib
from typing import Any


class CannotRunError(Exception):
    """A backend has no form of what is asked, or is not there; the message is one line that a user reads."""


def required(module: str, *, package: str) -> Any:
    """Return a module that may be missing.

    Raises:
        CannotRunError: it cannot be imported.

    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise CannotRunError(f"{package} is not installed; pip install 'headwise[bench]'") from error
