"""Compiling when first needed, and keeping what was compiled on disk."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import binding

from headwise.kernels import host
from headwise.kernels.emission import emitted_in
from headwise.kernels.entry import (
    compile_backward,
    compile_packed,
    compile_streamed,
    compile_vector_code,
    compile_visit,
)
from headwise.kernels.on_disk import pruning
from headwise.kernels.ways import BACKWARD, EVERY_WAY, PACKED, STREAMED, VISIT

_COMPILERS = {
    PACKED: compile_packed,
    STREAMED: compile_streamed,
    VISIT: compile_visit,
    BACKWARD: compile_backward,
}

_NOTICE_AFTER_SECONDS = 1.0
_FUNCTION_OF_FRAME = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

Entry: TypeAlias = Callable[[Any], None]
"""A way in: a function of one frame. It runs without holding Python's lock."""

_lock = threading.RLock()
# A fork waits for a compilation: a child would inherit the locks, ours and Numba's, with nobody to open them.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_told = threading.Event()
_entries: dict[str, Entry] = {}
_kept: list[Any] = []  # the code lives as long as there are addresses of it
_addressed: set[str] = set()  # the groups of vector functions that LLVM knows


def entry_for(way: str) -> Entry:
    """Return the way in for many rows or for few, or that of the second visit or of the backward pass.

    Compiled when it is first asked for, or read from disk.
    """
    found = _entries.get(way)
    if found is not None:
        return found
    with _lock:
        if way not in _entries:
            notice = threading.Timer(_NOTICE_AFTER_SECONDS, _say_what_takes_long)
            notice.daemon = True
            notice.start()
            try:
                _entries[way] = kept_on_disk(partial(_compile_all, way))
            finally:
                notice.cancel()
        return _entries[way]


def source_hash() -> str:
    """Return a hash of all that the compiled code is made from: the package, Numba and the processor.

    Numba itself notices edits in one file only.
    """
    found = hashlib.sha256(repr((numba.__version__, host.processor())).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def kept_on_disk(make: Callable[..., Any]) -> Any:
    """Return what `make(source, on_disk=...)` compiles, read from disk and kept there if that can be."""
    source = source_hash()
    with _lock:
        try:
            return make(source, on_disk=True)
        except Exception:  # no folder to write to, a full disk, a damaged file: it can do without
            return make(source, on_disk=False)


def _compile_all(way: str, source: str, *, on_disk: bool) -> Entry:
    for group in (EVERY_WAY, way):
        if group not in _addressed:
            _give_addresses(group, source, on_disk=on_disk)
    code = _COMPILERS[way](source, on_disk=on_disk)
    _kept.append(code)
    return _FUNCTION_OF_FRAME(code.address)


def _give_addresses(group: str, source: str, *, on_disk: bool) -> None:
    """Compile the vector functions of a group and tell LLVM where they are."""
    emitted = emitted_in(group)
    vector_code = compile_vector_code(source, group, on_disk=on_disk)
    if on_disk and group == EVERY_WAY:  # once a process
        pruning.tend(vector_code.stats.cache_path, source)
    _kept.append(vector_code)
    addresses = np.zeros(len(emitted), dtype=np.int64)
    vector_code(addresses)
    for symbol, address in zip(emitted, addresses, strict=True):
        binding.add_symbol(symbol, int(address))
    _addressed.add(group)


def _say_what_takes_long() -> None:
    """Tell a person what is waited for, once: a first `view` compiles three ways one after the other."""
    if _told.is_set():
        return
    _told.set()
    sys.stderr.write(
        "headwise: compiling the CPU kernel for this processor, or reading it from disk; "
        "this takes some seconds\n"
    )
