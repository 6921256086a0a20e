"""Where a page is to be written, checked beforehand."""

from __future__ import annotations

import os
from pathlib import Path

from headwise.errors import ArgumentError


def checked_page_path(path: Path, *, such_as: str) -> Path:
    """Return `path` if a page can be written there, before anything long is done.

    Args:
        path: what was given as `--out`.
        such_as: the name of a page of this command, for whoever named none.

    Raises:
        ArgumentError: it is a folder or a device, or its folder is missing or closed to writing.

    """
    given = f"--out {path}"
    try:
        is_folder, is_file, exists = path.is_dir(), path.is_file(), path.exists()
        folder_there = path.parent.is_dir()
    except OSError as error:
        raise ArgumentError(f"{given} cannot be looked at: {error.strerror}; name another file") from error
    if is_folder:
        raise ArgumentError(f"{given} is a folder; name the file to write, such as {path / such_as}")
    if exists and not is_file:
        raise ArgumentError(f"{given} is not a regular file; name the file to write, such as {such_as}")
    if not folder_there:
        raise ArgumentError(f"{given} lies in a folder that does not exist; make {path.parent} first")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ArgumentError(f"{given} lies in a folder that you may not write to; name a file elsewhere")
    return path
