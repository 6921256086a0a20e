"""What the subject raised, in one message: the exception, its place in the user's file, what was asked."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from headwise.errors import SubjectError

_OURS = str(Path(__file__).parents[3])
_INSTALLED = tuple(
    {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}
)


def raised_by(
    error: BaseException,
    *,
    name: str,
    defined_at: tuple[str, int] | None,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> SubjectError:
    """Return the error that tells of another one.

    Args:
        error: what the subject raised.
        name: of the subject.
        defined_at: the file and the line where the subject is written; None where that is not known.
        args: what it was given by position.
        kwargs: what it was given by name.

    """
    said = " ".join(str(error).split()) or "no text"
    place = place_of(error, None if defined_at is None else defined_at[0])
    where = "" if place is None else f" at {place}"
    if place is None and defined_at is not None:
        where = f" ({name} is written at {defined_at[0]}:{defined_at[1]})"
    return SubjectError(
        f"{name} raised {type(error).__name__}: {said[:400]}{where}; it was asked with {told(args, kwargs)}"
    )


def place_of(error: BaseException, file: str | None) -> str | None:
    """Return file, line and text of the deepest line of the user's that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    in_file = [frame for frame in frames if file is not None and frame.filename == file]
    outside = [frame for frame in frames if not frame.filename.startswith((_OURS, *_INSTALLED))]
    for found in (in_file, outside):
        if found:
            last = found[-1]
            return f"{last.filename}:{last.lineno}" + (f" ({last.line.strip()})" if last.line else "")
    return None


def told(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return arguments in words: tensors by dtype and shape, the others as they are."""
    return ", ".join([*map(_shown, args), *(f"{name}={_shown(value)}" for name, value in kwargs.items())])


def _shown(value: Any) -> str:
    if isinstance(value, Tensor | np.ndarray):
        kind = "" if isinstance(value, Tensor) else "array "
        return f"{kind}{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_shown, value))})"
    return repr(value)[:80]
