"""A bounded reader of GGUF headers.

Every count, length and offset in the file is held against the file's size and a fixed limit before it is
used, and every step costs time proportional to the bytes it reads. What others read later has passed here.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from gguf.constants import GGML_QUANT_SIZES

from headwise.errors import ModelError

MAX_PAIRS = 16_384
MAX_TENSORS = 65_536
MAX_DIMS = 4
MAX_NAME_BYTES = 256
MAX_TOKEN_BYTES = 4_096
MAX_STRING_BYTES = 16_000_000
# Only the tokenizer has long lists, one entry a token or a merge; the largest vocabularies have some 500,000.
MAX_TOKENIZER_ARRAY = 1_000_000
MAX_OTHER_ARRAY = 65_536

_KEPT_LISTS = {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}

_STRING, _ARRAY = 8, 9
_SCALARS = {
    code: struct.Struct("<" + letter)
    for code, letter in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip
_U32, _U64 = _SCALARS[4], _SCALARS[10]
_BLOCKS = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}


@dataclass(frozen=True)
class GgufTensor:
    """Where one tensor lies: its name, sizes (fastest first), storage type, and bytes within the data."""

    name: str
    dims: tuple[int, ...]
    kind: int
    begin: int
    end: int


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file says of itself: architecture, single values, the tokenizer's lists, tensors."""

    architecture: str
    values: dict[str, int | float | bool | str]
    lists: dict[str, list[Any]]
    tensors: tuple[GgufTensor, ...]

    @property
    def num_elements(self) -> int:
        """The number of weights in all tensors together."""
        return sum(math.prod(tensor.dims) for tensor in self.tensors)


def read_gguf_header(path: Path) -> GgufHeader:
    """Read and check everything in a GGUF file but its weights.

    Raises:
        ModelError: naming the file and what is wrong with it.

    """
    size = path.stat().st_size
    with path.open("rb") as handle:
        start = handle.read(4)
        if start != b"GGUF":
            raise ModelError(
                f"{path} is no GGUF file: it starts with {start!r}, and a GGUF file with b'GGUF'"
            )
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Cursor(path, data, size).header()


class _Cursor:
    """A place in the file that moves forward, and never past the end."""

    def __init__(self, path: Path, data: mmap.mmap, size: int) -> None:
        self.path, self.data, self.size, self.at = path, data, size, 4

    def refuse(self, what: str) -> NoReturn:
        raise ModelError(f"{self.path} is damaged or hostile: {what}")

    def header(self) -> GgufHeader:
        version = self.number(_U32)
        if version not in (2, 3):
            hint = " (a big-endian file)" if version in (2 << 24, 3 << 24) else ""
            raise ModelError(
                f"{self.path} has GGUF version {version}{hint}; versions 2 and 3, little-endian, are read"
            )
        num_tensors, num_pairs = self.number(_U64), self.number(_U64)
        # The shortest tensor entry takes 25 bytes, the shortest key and value 13.
        self.bound("tensors", num_tensors, MAX_TENSORS, bytes_each=25)
        self.bound("metadata entries", num_pairs, MAX_PAIRS, bytes_each=13)
        values, lists = self.pairs(num_pairs)
        architecture = values.get("general.architecture")
        if not isinstance(architecture, str) or not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", architecture):
            self.refuse(f"general.architecture is {architecture!r}, which names no architecture")
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 1 <= alignment <= 65_536 or alignment & (alignment - 1):
            self.refuse(f"general.alignment is {alignment!r}, and must be a power of two up to 65536")
        tensors = tuple(self.tensors(num_tensors, alignment))
        self.check_places(tensors, start=-(-self.at // alignment) * alignment)
        return GgufHeader(architecture, values, lists, tensors)

    def pairs(self, count: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        values: dict[str, Any] = {}
        lists: dict[str, list[Any]] = {}
        seen = set()
        for _ in range(count):
            key = self.string("a metadata key", MAX_NAME_BYTES)
            if key in seen:
                self.refuse(f"the metadata key {key!r} comes twice")
            seen.add(key)
            kind = self.number(_U32)
            if kind == _STRING:
                values[key] = self.string(key, MAX_STRING_BYTES)
            elif kind == _ARRAY:
                self.array(key, lists)
            else:
                values[key] = self.number(self.scalar(key, kind))
        return values, lists

    def array(self, key: str, lists: dict[str, list[Any]]) -> None:
        """Go past an array; keep it if it is one of the tokenizer's."""
        kind, count = self.number(_U32), self.number(_U64)
        if kind == _ARRAY:
            self.refuse(f"{key} is an array of arrays, which no model needs")
        longest = MAX_TOKENIZER_ARRAY if key.startswith("tokenizer.") else MAX_OTHER_ARRAY
        if kind != _STRING:
            layout = self.scalar(key, kind)
            self.bound(f"entries of {key}", count, longest, bytes_each=layout.size)
            if key in _KEPT_LISTS:
                lists[key] = list(struct.unpack_from(f"<{count}{layout.format[1:]}", self.data, self.at))
            self.at += count * layout.size
            return
        self.bound(f"entries of {key}", count, longest, bytes_each=_U64.size)
        if key in _KEPT_LISTS:
            lists[key] = [self.string(key, MAX_TOKEN_BYTES) for _ in range(count)]
            return
        for _ in range(count):
            self.skip(self.number(_U64), key, MAX_STRING_BYTES)

    def tensors(self, count: int, alignment: int) -> Iterator[GgufTensor]:
        names = set()
        for _ in range(count):
            name = self.string("a tensor name", MAX_NAME_BYTES)
            if name in names:
                self.refuse(f"the tensor {name!r} comes twice")
            names.add(name)
            num_dims = self.number(_U32)
            if not 1 <= num_dims <= MAX_DIMS:
                self.refuse(f"the tensor {name!r} has {num_dims} dimensions; 1 to {MAX_DIMS} are allowed")
            dims = tuple(self.number(_U64) for _ in range(num_dims))
            kind, begin = self.number(_U32), self.number(_U64)
            if begin % alignment:
                self.refuse(f"the tensor {name!r} starts at byte {begin}, no multiple of {alignment}")
            yield GgufTensor(name, dims, kind, begin, begin + self.num_bytes(name, dims, kind))

    def num_bytes(self, name: str, dims: tuple[int, ...], kind: int) -> int:
        if kind not in _BLOCKS:
            raise ModelError(
                f"{self.path}: the tensor {name!r} is stored as type {kind}, which is not known here"
            )
        block, width = _BLOCKS[kind]
        elements = math.prod(dims)  # Python integers: the product of four 64-bit sizes cannot wrap round
        if elements < 1 or dims[0] % block:
            self.refuse(f"the tensor {name!r} has sizes {dims}; its type is stored in blocks of {block}")
        return elements // block * width

    def check_places(self, tensors: tuple[GgufTensor, ...], *, start: int) -> None:
        free_from, before = 0, ""
        for tensor in sorted(tensors, key=lambda tensor: tensor.begin):
            if tensor.begin < free_from:
                self.refuse(f"the tensors {before!r} and {tensor.name!r} overlap")
            if start + tensor.end > self.size:
                raise ModelError(
                    f"{self.path} is cut short or damaged: the tensor {tensor.name!r} of sizes {tensor.dims} "
                    f"ends at byte {start + tensor.end} and the file has {self.size}; get it again"
                )
            free_from, before = tensor.end, tensor.name

    def scalar(self, key: str, kind: int) -> struct.Struct:
        if kind not in _SCALARS:
            self.refuse(f"{key} has the unknown value type {kind}")
        return _SCALARS[kind]

    def number(self, layout: struct.Struct) -> Any:
        begin = self.at
        self.skip(layout.size, "a number", layout.size)
        (value,) = layout.unpack_from(self.data, begin)
        return value

    def string(self, what: str, longest: int) -> str:
        length = self.number(_U64)
        begin = self.at
        self.skip(length, what, longest)
        try:
            return self.data[begin : self.at].decode("utf-8")
        except UnicodeDecodeError:
            self.refuse(f"{what} at byte {begin} is not UTF-8")

    def skip(self, length: int, what: str, longest: int) -> None:
        if length > longest:
            self.refuse(f"{what} is said to be {length} bytes long; at most {longest} are read")
        if length > self.size - self.at:
            raise ModelError(
                f"{self.path} is cut short: its header goes on past the end of the file ({self.size} bytes); "
                "get it again"
            )
        self.at += length

    def bound(self, what: str, count: int, longest: int, *, bytes_each: int) -> None:
        if count > longest:
            self.refuse(f"it is said to hold {count} {what}; at most {longest} are read")
        if count * bytes_each > self.size - self.at:
            raise ModelError(
                f"{self.path} is cut short: it is said to hold {count} {what}, and "
                f"{self.size - self.at} bytes are left; get it again"
            )
