"""The user's cache folder: model folders that are built once, whole or not at all.

A folder is built beside its place and moved there with one rename, so a process killed half way leaves
nothing that could be taken for a model. A lock file keeps two processes from doing the same work at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from headwise.errors import ModelError

# Told in one line about a step that takes long.
Notify = Callable[[str], None]

# Written last into a folder: the name and size of every file that belongs to it.
_MANIFEST = "headwise-manifest.json"


def cache_root() -> Path:
    """Return the cache folder: `HEADWISE_CACHE`, else `headwise` under the user's cache folder."""
    chosen = os.environ.get("HEADWISE_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    # The XDG specification says that a relative path there is to be ignored.
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "headwise"


def build_once(key: str, build: Callable[[Path, Path], None], *, notify: Notify) -> Path:
    """Return the finished folder named `key`, building it first if it is not there or not whole.

    Args:
        key: the folder's name; it must say everything that decides the folder's content.
        build: called as `build(folder, scratch)`; fills the empty `folder`, may use the empty `scratch`.
        notify: told when another process is waited for, or a folder that is not whole is replaced.

    Returns:
        The folder, to be read and never written.

    Raises:
        ModelError: the cache folder cannot be written, or whatever `build` raises.

    """
    root = cache_root()
    final = root / "models" / key
    if is_whole(final):
        return final
    try:
        with _only_process(root / "locks" / f"{key}.lock", notify):
            # While this process waited, another one may have finished the folder.
            if not is_whole(final):
                _build(root / "work", final, build, notify)
    except OSError as error:
        raise ModelError(
            f"the cache folder {root} cannot be used: {error.strerror or error}; free some space or permit "
            "writing there, or name another folder in the environment variable HEADWISE_CACHE"
        ) from error
    return final


def is_whole(folder: Path) -> bool:
    """Say whether every file of a finished folder is there with the size it was finished with."""
    try:
        files = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(work: Path, final: Path, build: Callable[[Path, Path], None], notify: Notify) -> None:
    work.mkdir(parents=True, exist_ok=True)
    final.parent.mkdir(parents=True, exist_ok=True)
    # What a killed process left behind. The lock says nobody is at work on this key; a child of the killed
    # process that still writes does so into a folder with another random ending.
    for leftover in work.glob(f"{final.name}.*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{final.name}.", dir=work, ignore_cleanup_errors=True) as place:
        folder, scratch = Path(place, "folder"), Path(place, "scratch")
        folder.mkdir()
        scratch.mkdir()
        build(folder, scratch)
        _seal(folder)
        if final.exists():
            notify(f"{final} is incomplete; replacing it")
            shutil.rmtree(final)
        folder.replace(final)
        _flush(final.parent)


def _seal(folder: Path) -> None:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    manifest = folder / _MANIFEST
    manifest.write_text(json.dumps({path.name: path.stat().st_size for path in files}), encoding="utf-8")
    for path in (*files, manifest, folder):
        _flush(path)


def _flush(path: Path) -> None:
    """Ask the system to put a file, or the names in a folder, on the disk before going on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _only_process(lock: Path, notify: Notify) -> Iterator[None]:
    """Hold the lock file; the system lets go of it when the process ends, however it ends."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notify(f"another process is preparing {lock.stem}; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
