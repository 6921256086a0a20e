"""What the user named: a catalogue model, a folder, a GGUF file, or a model of the hub."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwise.errors import ArgumentError, ModelError
from headwise.models.opening.catalogue import CATALOGUE

SourceKind = Literal["catalogue", "folder", "gguf", "hub"]

PICKLE_SUFFIXES = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
_MODEL_SUFFIXES = PICKLE_SUFFIXES | {".safetensors", ".gguf"}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Args:
        kind: which of the four.
        name: the catalogue name or hub id, or the path as given.
        path: the folder, or the GGUF file; None for the catalogue and the hub.
        weights: the one `.safetensors` file that was named, or None for the folder's own choice.

    """

    kind: SourceKind
    name: str
    path: Path | None = None
    weights: Path | None = None


def find_source(given: str | Path) -> Source:
    """Work out what `given` names, without reading any model.

    A catalogue name wins over a file of that name (write `./NAME` for the file), a file or folder that exists
    wins over a hub id.

    Raises:
        ArgumentError: `given` is no text and no path, or empty.
        ModelError: there is no such model, or it is a pickle.

    """
    if not isinstance(given, str | os.PathLike):
        raise ArgumentError(f"source={given!r} is a {type(given).__name__}; pass a name, a hub id or a path")
    name = os.fspath(given)
    if not name.strip() or "\0" in name:
        raise ArgumentError(f"source={name!r} names no model; pass {_choices()}")
    if isinstance(given, str) and name in CATALOGUE:
        return Source("catalogue", name)
    path = Path(name).expanduser()
    try:
        if path.is_dir():
            return Source("folder", name, path.absolute())
        if path.exists():
            return _file(name, path)
    except OSError as error:
        raise ModelError(f"{name[:200]} cannot be looked at: {error.strerror}") from error
    is_path = not isinstance(given, str) or path.suffix.lower() in _MODEL_SUFFIXES
    if not is_path and _HUB_ID.fullmatch(name):
        return Source("hub", name)
    raise ModelError(_unknown(name, is_path=is_path or os.sep in name))


def refuse_pickle(path: Path) -> ModelError:
    """Return the error for a pickle checkpoint, saying how to get a file that is safe to open."""
    return ModelError(
        f"{path} is a pickle checkpoint: opening one can run any code, so headwise never does. Where you "
        "trust it, convert it once to .safetensors: in Python, transformers.AutoModelForCausalLM (or the "
        "class the model needs).from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)"
    )


def _file(name: str, path: Path) -> Source:
    suffix = path.suffix.lower()
    if not path.is_file():
        raise ModelError(f"{name} is neither a folder nor a regular file")
    if suffix == ".safetensors":
        return Source("folder", name, path.absolute().parent, weights=path.absolute())
    if suffix in PICKLE_SUFFIXES:
        raise refuse_pickle(path)
    with path.open("rb") as handle:
        start = handle.read(4)
    if suffix == ".gguf" or start == b"GGUF":
        return Source("gguf", name, path.absolute())
    raise ModelError(
        f"{name} is no model file: it is neither .safetensors nor .gguf; pass one of these, or a folder"
    )


def _unknown(name: str, *, is_path: bool) -> str:
    if is_path:
        return f"there is no file or folder {name[:300]}; pass {_choices()}"
    near = difflib.get_close_matches(name.lower(), CATALOGUE, n=1, cutoff=0.4)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"there is no model {name[:300]!r}{meant}; pass {_choices()}"


def _choices() -> str:
    return (
        f"a name of the catalogue ({', '.join(CATALOGUE)}), a folder with config.json and .safetensors, a "
        ".safetensors or .gguf file, or a hub id such as org/name"
    )
