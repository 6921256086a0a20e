"""A small writer of GGUF files, sound ones and broken ones."""

import struct
from pathlib import Path

import numpy as np

U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10
_FORMATS = {U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<?", U64: "<Q"}


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, kind: int, value) -> bytes:
    body = text(value) if kind == STRING else struct.pack(_FORMATS[kind], value)
    return text(key) + struct.pack("<I", kind) + body


def array(key: str, kind: int, values, *, count: int | None = None) -> bytes:
    """Write an array; `count` says another length than there is."""
    body = b"".join(text(value) if kind == STRING else struct.pack(_FORMATS[kind], value) for value in values)
    said = len(values) if count is None else count
    return text(key) + struct.pack("<IIQ", ARRAY, kind, said) + body


def tensor(name: str, dims: tuple[int, ...], *, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def header(
    pairs: list[bytes],
    tensors: list[bytes],
    *,
    version: int = 3,
    num_pairs: int | None = None,
    num_tensors: int | None = None,
) -> bytes:
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(pairs) if num_pairs is None else num_pairs,
    )
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)


ARCHITECTURE = pair("general.architecture", STRING, "llama")


def write_gguf(path: Path, pairs: list[bytes], weights: dict[str, np.ndarray]) -> Path:
    """Write a sound file with float32 weights."""
    entries, data = [], b""
    for name, values in weights.items():
        raw = np.ascontiguousarray(values, dtype="<f4").tobytes()
        # GGUF counts sizes fastest first, NumPy slowest first.
        entries.append(tensor(name, values.shape[::-1], offset=len(data)))
        data += raw + bytes(-len(raw) % 32)
    start = header(pairs, entries)
    path.write_bytes(start + bytes(-len(start) % 32) + data)
    return path
