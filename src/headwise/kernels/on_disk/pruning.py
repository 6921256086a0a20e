"""Removing compiled code that nobody has asked for in a month.

What Numba keeps on disk for the kernel is named after all it is made from. So every edit, every release and
every processor has files of its own beside those of the others, and nothing takes their place.

Several versions may be at work on one folder at once. A file counts as used when a process of its version
starts to need the kernel, and its time on disk is when it was used last, to a day: not every process has to
write. A process that finds a file gone compiles: Numba reads whole files at once, looks for the data of an
index that may have lost it, and takes no index for an empty one. So whatever happens at the same moment, too
much can be compiled, but nothing wrong run.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from time import time

DAY_SECONDS = 86_400
KEPT_DAYS = 30

_KEPT = re.compile(r"entry\.\w+_([0-9a-f]{16})-\d+\.py\w+(?:\.\d+)?\.nb[ic]")
"""The name of an index or of data, of any version: what `entry.name_on_disk` gives, and Numba's part."""


def tend(folder: str | Path, source: str) -> None:
    """Note that the files made from `source` are used; remove those of others that were not for a month."""
    now = time()
    with suppress(OSError):  # what cannot be listed is left alone
        for path in Path(folder).iterdir():
            made_from = _KEPT.fullmatch(path.name)
            if made_from:
                with suppress(OSError):  # another process was first, or it is somebody else's
                    _tend_file(path, now - path.stat().st_mtime, is_used=made_from[1] == source[:16])


def _tend_file(path: Path, unused_seconds: float, *, is_used: bool) -> None:
    if is_used:
        if unused_seconds > DAY_SECONDS:
            os.utime(path)  # and not `touch`, which would leave an empty file where another process was first
    elif unused_seconds > KEPT_DAYS * DAY_SECONDS:
        path.unlink()
