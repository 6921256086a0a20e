"""Turning a GGUF file into a plain model folder, in a child process that is given limits.

GGUF readers have a history of memory faults and endless loops on prepared files, so the file is never read
in the user's process. The result, float32 weights with config and tokenizer, is kept in the cache under the
file's SHA-256: the second time, the file is only hashed.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from headwise.errors import HeadwiseError, ModelError, UnsupportedError
from headwise.models.opening.cache_folder import Notify, build_once

# Raise it whenever the converted folder would come out differently, so that older folders are not used.
CONVERSION_FORMAT = 2

# The child has one refusal to tell; anything else on its standard output is not from headwise.
REFUSED = 3
_KINDS: dict[str, type[HeadwiseError]] = {"ModelError": ModelError, "UnsupportedError": UnsupportedError}


def gguf_folder(path: Path, *, notify: Notify) -> Path:
    """Return a model folder with the content of a GGUF file, converting it the first time.

    Raises:
        ModelError: the file is no GGUF file, is damaged, asks for too much, or cannot be converted.
        UnsupportedError: the file is sound, but its architecture or tokenizer cannot be reproduced.

    """
    try:
        with path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    key = f"gguf-{digest[:32]}-{conversion_tag()}"
    return build_once(
        key, lambda folder, scratch: convert(path, folder, scratch, notify=notify), notify=notify
    )


def conversion_tag() -> str:
    """Name everything beside the file itself that decides how a conversion comes out."""
    return f"c{CONVERSION_FORMAT}-transformers{version('transformers')}"


def convert(path: Path, folder: Path, scratch: Path, *, notify: Notify, seconds: float | None = None) -> None:
    """Fill `folder` from a GGUF file, in a child process.

    Args:
        path: the GGUF file.
        folder: an empty folder for the model.
        scratch: a folder for what the child prints.
        notify: told before the child starts.
        seconds: the longest time to wait; by default five minutes and more for files over some gigabytes.

    """
    size = path.stat().st_size
    allowed = time_allowed(size) if seconds is None else seconds
    notify(f"converting {path.name} ({size / 1e6:.1f} MB) to plain weights (only this once)")
    # -P: a file of the working directory must not stand in for a module.
    command = [
        sys.executable,
        "-P",
        "-m",
        "headwise.models.opening.gguf_convert",
        str(path.absolute()),
        str(folder),
    ]
    printed = scratch / "converter.log"
    with printed.open("wb") as log:
        try:
            done = subprocess.run(  # noqa: S603 - our own module, with two paths as plain arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(),
                timeout=allowed,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelError(
                f"{path}: reading it was stopped after {allowed:g} seconds; the file is hostile, or this "
                "machine is too busy: try again, or open the model as a folder of safetensors"
            ) from error
    if done.returncode:
        raise _refusal(path, done.returncode, done.stdout, printed)


def time_allowed(size: int) -> int:
    """Return the seconds that a file of `size` bytes may take: five minutes, and a second for each 10 MB."""
    return 300 + size // 10_000_000


def _environment() -> dict[str, str]:
    return os.environ | {
        # Memory is limited by address space, of which every thread and every arena takes a share unused.
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "2",
        "TOKENIZERS_PARALLELISM": "false",
        # A file on this machine is all the child is to read.
        "HF_HUB_OFFLINE": "1",
    }


def _refusal(path: Path, code: int, answer: bytes, printed: Path) -> HeadwiseError:
    if code == REFUSED:
        told = json.loads(answer)
        return _KINDS[told["kind"]](told["message"])
    if code == -signal.SIGXCPU:
        why = "it took more processor time than it was given"
    elif code < 0:
        why = f"the reading process was ended by {signal.Signals(-code).name}, as when memory runs out"
    else:
        last = printed.read_bytes()[-2000:].decode("utf-8", errors="replace").strip().splitlines()
        why = f"the reading process failed ({last[-1][:300] if last else 'without a word'})"
    return ModelError(f"{path} could not be converted: {why}; try the model as a folder of safetensors")
