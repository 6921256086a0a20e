"""Hostile, cut and foreign files: the bounded reader refuses each at once, naming the file and the fault."""

import struct

import pytest

from headwise.errors import ModelError
from headwise.models.opening.gguf_header import read_gguf_header
from headwise.models.opening.opened_model import open_model

from ...hang import must_end
from ..folders import tiny_gguf
from ..gguf_writer import ARCHITECTURE, ARRAY, STRING, U8, U32, array, header, pair, tensor, text

HOSTILE = {
    "empty": (b"", r"starts with b''"),
    "another format": (b"PK\x03\x04" + bytes(60), r"is no GGUF file: it starts with b'PK"),
    "only the magic": (b"GGUF", r"cut short"),
    "version 1": (header([], [], version=1), r"GGUF version 1; versions 2 and 3"),
    "big-endian": (header([], [], version=3 << 24), r"big-endian"),
    "more tensors than fit": (header([], [], num_tensors=60_000) + bytes(99), r"60000 tensors, and 99 bytes"),
    "2^60 tensors": (header([], [], num_tensors=1 << 60), rf"{1 << 60} tensors; at most"),
    "2^60 pairs": (header([], [], num_pairs=1 << 60), rf"{1 << 60} metadata entries; at most"),
    "string of 2^62": (
        header([text("general.name") + struct.pack("<IQ", STRING, 1 << 62)], []) + bytes(64),
        rf"general.name is said to be {1 << 62} bytes long",
    ),
    "string past the end": (
        header([text("general.name") + struct.pack("<IQ", STRING, 5000)], []) + bytes(64),
        r"cut short",
    ),
    "key of 2^40": (header([struct.pack("<Q", 1 << 40)], []) + bytes(64), r"a metadata key is said to be"),
    "array of 2^40": (
        header([array("general.tags", STRING, [], count=1 << 40)], []) + bytes(64),
        rf"{1 << 40} entries of general.tags; at most",
    ),
    "token array past the end": (
        header([array("tokenizer.ggml.tokens", STRING, [], count=900_000)], []) + bytes(64),
        r"900000 entries of tokenizer.ggml.tokens, and 64 bytes",
    ),
    "string of 2^62 in an array": (
        header([array("general.tags", STRING, [], count=1) + struct.pack("<Q", 1 << 62)], []) + bytes(64),
        r"general.tags is said to be",
    ),
    "array of arrays": (
        header([text("a") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + bytes([9, 0, 0, 0, 1]) * 900], []),
        r"array of arrays",
    ),
    "an honest array of 2 MB": (
        header([ARCHITECTURE, array("general.blob", U8, [], count=2_000_000) + bytes(2_000_000)], []),
        r"2000000 entries of general.blob; at most 65536",
    ),
    "unknown value type": (
        header([text("a") + struct.pack("<I", 77)], []) + bytes(64),
        r"unknown value type 77",
    ),
    "a key twice": (
        header([ARCHITECTURE, ARCHITECTURE], []) + bytes(64),
        r"'general.architecture' comes twice",
    ),
    "not UTF-8": (header([pair("general.name", STRING, b"\xff\xfe")], []) + bytes(64), r"is not UTF-8"),
    "no architecture": (header([pair("a", U32, 7)], []) + bytes(64), r"general.architecture is None"),
    "a path as architecture": (
        header([pair("general.architecture", STRING, "../x")], []) + bytes(64),
        r"general.architecture is '../x'",
    ),
    "alignment of 0": (
        header([ARCHITECTURE, pair("general.alignment", U32, 0)], []) + bytes(64),
        r"general.alignment is 0",
    ),
    "a million dimensions": (
        header([ARCHITECTURE], [text("w") + struct.pack("<I", 1_000_000)]) + bytes(64),
        r"'w' has 1000000 dimensions",
    ),
    "sizes whose product wraps": (
        header([ARCHITECTURE], [tensor("w", (1 << 32, 1 << 32, 4, 1))]) + bytes(64),
        r"the tensor 'w' of sizes \(4294967296, 4294967296, 4, 1\) ends at byte",
    ),
    "a size of 0": (header([ARCHITECTURE], [tensor("w", (0, 4))]) + bytes(64), r"sizes \(0, 4\)"),
    "half a block": (header([ARCHITECTURE], [tensor("w", (33, 4), kind=2)]) + bytes(640), r"blocks of 32"),
    "unknown tensor type": (header([ARCHITECTURE], [tensor("w", (4,), kind=991)]) + bytes(64), r"type 991"),
    "offset past the end": (
        header([ARCHITECTURE], [tensor("w", (4,), offset=1 << 40)]) + bytes(64),
        r"cut short or damaged: the tensor 'w'",
    ),
    "crooked offset": (
        header([ARCHITECTURE], [tensor("w", (4,), offset=7)]) + bytes(64),
        r"byte 7, no multiple of 32",
    ),
    "overlapping tensors": (
        header([ARCHITECTURE], [tensor("v", (16,)), tensor("w", (4,), offset=32)]) + bytes(256),
        r"'v' and 'w' overlap",
    ),
    "a tensor twice": (
        header([ARCHITECTURE], [tensor("w", (4,)), tensor("w", (4,), offset=32)]) + bytes(256),
        r"'w' comes twice",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_at_once(tmp_path, name):
    content, match = HOSTILE[name]
    source = tmp_path / "hostile.gguf"
    source.write_bytes(content)
    with must_end(), pytest.raises(ModelError, match=match) as refused:
        read_gguf_header(source)
    assert "hostile.gguf" in str(refused.value)


@pytest.mark.parametrize("name", ["array of 2^40", "an honest array of 2 MB"])
def test_a_hostile_file_is_refused_when_opened(tmp_path, cache, name):
    content, match = HOSTILE[name]
    source = tmp_path / "hostile.gguf"
    source.write_bytes(content)
    with must_end(), pytest.raises(ModelError, match=match):
        open_model(source)
    # Nothing is left that could be taken for a model.
    assert list((cache / "models").iterdir()) == list((cache / "work").iterdir()) == []


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    whole = tiny_gguf(tmp_path / "whole.gguf").read_bytes()
    assert read_gguf_header(tmp_path / "whole.gguf").num_elements > 10_000
    for length in [*range(4, 300, 13), len(whole) // 3, len(whole) - 4000, len(whole) - 33]:
        part = tmp_path / "part.gguf"
        part.write_bytes(whole[:length])
        with pytest.raises(ModelError, match="cut short"):
            read_gguf_header(part)


def test_a_header_of_many_strings_is_read(tmp_path):
    many = [f"token{place}" for place in range(300_000)]
    source = tmp_path / "large.gguf"
    source.write_bytes(header([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, many)], []))
    with must_end():
        assert read_gguf_header(source).architecture == "llama"
