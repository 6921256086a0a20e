"""A user's file: loading it, finding the name in it, and what its errors say of where they are."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from headwise.errors import ArgumentError
from headwise.models.short_cause import short_cause
from headwise.verbs.check.subject.raised import place_of

NAMES_SHOWN = 12


def load_from_file(path: Path, name: str) -> Any:
    """Import a Python file and return what has the name in it.

    Args:
        path: the file, as messages name it.
        name: a name in it.

    A file that lies in a package is imported as a part of it, so that its relative imports work; else its
    folder is put on the path, as when it is run.

    Raises:
        ArgumentError: the file cannot be imported, or has no such name, or it is nothing that can be called.

    """
    try:
        module = _import(path)
    except SystemExit as error:
        raise ArgumentError(
            f"{path} ends the program while it is imported{_where(error, path)}; put what is to run only "
            'as a program under: if __name__ == "__main__":'
        ) from error
    except BaseException as error:
        raise ArgumentError(
            f"{path} cannot be imported: {_told(error)}{_where(error, path)}{_hint(error)}"
        ) from error
    return _named(module, path, name)


def _import(path: Path) -> ModuleType:
    path = path.absolute()
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    if path.stem == "__init__":
        parts.pop()
    if len(parts) > 1 or path.stem == "__init__":
        module = importlib.import_module(".".join(parts))
        if module.__file__ is not None and Path(module.__file__).samefile(path):
            return module
    return _import_alone(path)


def _import_alone(path: Path) -> ModuleType:
    # A name that is taken, such as json, would be found in the place of what others mean by it.
    name = path.stem if path.stem.isidentifier() and not _is_taken(path.stem) else f"checked_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _is_taken(name: str) -> bool:
    return name in sys.modules or name in sys.stdlib_module_names


def _named(module: ModuleType, path: Path, name: str) -> Any:
    there = vars(module)
    if name in there and callable(there[name]):
        return there[name]
    callables = _callables(module)
    if name in there:
        raise ArgumentError(
            f"{name} in {path} is of type {type(there[name]).__name__} and cannot be called; name a "
            f"function, a class or a module: {_list(callables)}"
        )
    if not name:
        raise ArgumentError(
            f"{path} was named, and not what to check in it; write {path}:NAME: {_list(callables)}"
        )
    close = difflib.get_close_matches(name, callables, n=1)
    meant = f" (did you mean {close[0]}?)" if close else ""
    raise ArgumentError(f"{path} has no {name}{meant}; {_list(callables)}")


def _callables(module: ModuleType) -> list[str]:
    """Return what can be called and was written in this file, in its order; all that can be if none was."""
    public = {
        name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")
    }
    own = [name for name, value in public.items() if getattr(value, "__module__", None) == module.__name__]
    return own or list(public)


def _list(names: list[str]) -> str:
    if not names:
        return "it has nothing that can be called"
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return f"it has {', '.join(names[:NAMES_SHOWN])}{more}"


def _told(error: BaseException) -> str:
    kind = type(error).__name__
    # The whole text of a syntax error repeats the line.
    cause = error.msg if isinstance(error, SyntaxError) else short_cause(error)
    return kind if cause == kind else f"{kind}: {cause}"


def _where(error: BaseException, path: Path) -> str:
    """Return where an error arose, in the file if it went through it, as the end of a sentence."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f" (line {error.lineno} of {Path(error.filename or path).name})"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path.absolute() and frame.lineno is not None
    ]
    if lines:
        return f" (line {lines[-1]} of {path.name})"
    # Of a package's own __init__.py, say, which is imported before the file.
    place = place_of(error, None)
    return f" (at {place})" if place else ""


def _hint(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("headwise"):
        return f"; install it for {sys.executable}, or run headwise from the environment that has it"
    if isinstance(error, ImportError) and "relative import" in str(error):
        return "; its folder lacks an __init__.py, which would make it a part of a package"
    return ""
