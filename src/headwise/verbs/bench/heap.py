"""The memory that a process frees, kept in it: how it is while a program runs on, and not while it starts.

glibc gives a large block back to the system when it is freed, or the top of the heap once enough of it is
free, and takes it anew page by page. Whether that happens to the output of a call hangs on what else the
process has freed, so that a backend loses up to half its speed in one process and nothing in the next: on a
virtual machine a page costs 2 microseconds, and an output of 1 MiB has 256.
"""

from __future__ import annotations

import ctypes

# From glibc's malloc.h. Blocks of any size come from the heap, and none of it is given back.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_NEVER, _NONE = 2**31 - 1, 0


def hold_heap() -> bool:
    """Let this process keep what it frees, for all backends alike; return whether its C library can.

    For the whole process and for good, so a command does it and no function of the library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    return bool(mallopt(_M_MMAP_MAX, _NONE) and mallopt(_M_TRIM_THRESHOLD, _NEVER))
