"""Looking at a `.safetensors` header before the file is loaded.

The format is safe to load, but a header may be as large as 100 MB and hold a million empty tensors, which
costs seconds and gigabytes. Here the header is bounded and held against the file's real size first.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from headwise.errors import ModelError

MAX_HEADER_BYTES = 25_000_000
MAX_TENSORS = 100_000


def check_safetensors(path: Path) -> None:
    """Refuse a `.safetensors` file whose header is too large, broken, or promises more than the file holds.

    Raises:
        ModelError: naming the file and what is wrong with it.

    """
    size = path.stat().st_size
    with path.open("rb") as handle:
        prefix = handle.read(8)
        if len(prefix) < 8:
            raise ModelError(f"{path} is no safetensors file: it is {size} bytes long, the shortest has 10")
        (header_bytes,) = struct.unpack("<Q", prefix)
        if header_bytes > MAX_HEADER_BYTES:
            raise ModelError(
                f"{path}: the header is said to take {header_bytes} bytes, and at most {MAX_HEADER_BYTES} "
                "are read; this is no safetensors file, or not one to open"
            )
        if header_bytes > size - 8:
            raise ModelError(
                f"{path} is cut short: its header needs {header_bytes} bytes and {size - 8} are there; "
                "get it again"
            )
        header = _parse(path, handle.read(header_bytes))
    header.pop("__metadata__", None)
    if len(header) > MAX_TENSORS:
        raise ModelError(f"{path} lists {len(header)} tensors, and at most {MAX_TENSORS} are read")
    data_bytes = size - 8 - header_bytes
    for name, tensor in header.items():
        _check_tensor(path, name, tensor, data_bytes)


def _parse(path: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no safetensors file: its header is not JSON ({error})") from error
    if not isinstance(header, dict):
        raise ModelError(f"{path} is no safetensors file: its header is a JSON {type(header).__name__}")
    return header


def _check_tensor(path: Path, name: str, tensor: Any, data_bytes: int) -> None:
    try:
        begin, end = tensor["data_offsets"]
        in_order = 0 <= begin <= end
    except (TypeError, KeyError, ValueError) as error:
        raise ModelError(f"{path}: the header does not say where tensor {name[:80]!r} lies") from error
    if not in_order:
        raise ModelError(f"{path}: tensor {name[:80]!r} is said to lie from byte {begin} to byte {end}")
    if end > data_bytes:
        raise ModelError(
            f"{path} is cut short: tensor {name[:80]!r} ends at byte {end} of the data and {data_bytes} are "
            "there; get it again"
        )
