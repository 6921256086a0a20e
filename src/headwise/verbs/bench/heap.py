"""The C library's heap as it is while a program runs on, and not while it starts.

glibc gives a block back to the system when it is freed if it is larger than a threshold, and takes it anew
page by page. The threshold grows with what the process has freed so far, up to 32 MiB. Until it is there, it
hangs on chance whether the output of a call is such a block: a backend then loses up to half its speed in one
process and nothing in the next. (On a virtual machine a page costs 2 microseconds, and 1 MiB has 256.)
"""

from __future__ import annotations

import ctypes

# The parameters' numbers are those of glibc's malloc.h; the values are where its own thresholds end.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT = 32 * 2**20


def settle_heap() -> bool:
    """Set the thresholds of this process to where glibc itself takes them; return whether there are any.

    For the whole process and for good, so a command does it and no function of the library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # musl, macOS
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT) and mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_KEPT))
