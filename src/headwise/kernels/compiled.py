"""Compiling when first needed, and keeping what was compiled on disk."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import binding
from numba import types

from headwise.kernels.emission import EMITTED
from headwise.kernels.entry import compile_entry, compile_vector_code

_NOTICE_AFTER_SECONDS = 1.0
_lock = threading.RLock()
_entries: dict[bool, Any] = {}
_kept: list[Any] = []  # the vector code lives as long as what was compiled for it


def entry_for(*, is_wide: bool) -> Any:
    """Return the entry for float32 tensors, or for 16-bit ones; compiled or read from disk if need be."""
    found = _entries.get(is_wide)
    if found is not None:
        return found
    with _lock:
        if is_wide not in _entries:
            notice = threading.Timer(_NOTICE_AFTER_SECONDS, _say_what_takes_long)
            notice.daemon = True
            notice.start()
            try:
                _entries[is_wide] = _compiled(types.float32 if is_wide else types.int16)
            finally:
                notice.cancel()
        return _entries[is_wide]


def source_hash() -> str:
    """Return a hash of all that the compiled code is made from; Numba notices edits in one file only."""
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _compiled(element: types.Type) -> Any:
    source = source_hash()
    try:
        return _compile_all(element, source, on_disk=True)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        # Neither beside the package nor in the user's cache folder can anything be written.
        return _compile_all(element, source, on_disk=False)


def _compile_all(element: types.Type, source: str, *, on_disk: bool) -> Any:
    if not _kept:
        vector_code = compile_vector_code(source, on_disk=on_disk)
        addresses = np.zeros(len(EMITTED), dtype=np.int64)
        vector_code(addresses)
        for symbol, address in zip(EMITTED, addresses, strict=True):
            binding.add_symbol(symbol, int(address))
        _kept.append(vector_code)
    return compile_entry(element, source, on_disk=on_disk)


def _say_what_takes_long() -> None:
    sys.stderr.write("headwise: compiling the CPU kernel for this processor, once; this takes some seconds\n")
