"""The OpenMP library that torch shares its operations out with."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

_LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"


def parallel_address() -> int | None:
    """Return where OpenMP's `GOMP_parallel` lies that torch itself calls, None where torch has none.

    GNU's library has it, and those of LLVM and Intel have it on Linux. A lookup in the library that holds
    torch's operations finds the one that it was linked with, whatever else the process has loaded.
    """
    try:
        return ctypes.cast(ctypes.CDLL(str(_LIBRARY)).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None
