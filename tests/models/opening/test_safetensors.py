"""A `.safetensors` header is bounded and held against the file before it is loaded."""

import json
import struct

import pytest
import torch
from safetensors.torch import save_file

from headwise.errors import ModelError
from headwise.models.opening.safetensors_header import check_safetensors

from ...hang import must_end


def written(path, header, data: bytes = b"", *, said: int | None = None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if said is None else said) + raw + data)
    return path


def entry(begin, end) -> dict:
    return {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}


def test_a_sound_file_passes(tmp_path):
    path = tmp_path / "sound.safetensors"
    save_file({"a": torch.randn(3, 5), "b": torch.zeros(0)}, path, metadata={"format": "pt"})
    check_safetensors(path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"it is 0 bytes long"),
        (b"1234567", r"it is 7 bytes long"),
        (struct.pack("<Q", 1 << 62) + b"{}", rf"said to take {1 << 62} bytes, and at most 25000000"),
        (struct.pack("<Q", 25_000_001) + b"{}", r"said to take 25000001 bytes"),
        (struct.pack("<Q", 500) + b"{}", r"is cut short: its header needs 500 bytes and 2 are there"),
        (struct.pack("<Q", 2) + b"[]", r"its header is a JSON list"),
        (struct.pack("<Q", 2) + b"\xff\xfe", r"its header is not JSON"),
        (struct.pack("<Q", 200_000) + b"[" * 200_000, r"its header is not JSON"),
    ],
    ids=["empty", "short", "2^62", "over the limit", "header cut", "list", "not text", "deep"],
)
def test_a_broken_header_is_refused(tmp_path, content, match):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=match) as refused:
        check_safetensors(path)
    assert "broken.safetensors" in str(refused.value)


@pytest.mark.parametrize(
    ("tensor", "match"),
    [
        (entry(0, 44), r"is cut short: tensor 'w' ends at byte 44 of the data and 40 are there"),
        (entry(8, 4), r"tensor 'w' is said to lie from byte 8 to byte 4"),
        (entry(-8, 4), r"tensor 'w' is said to lie from byte -8"),
        ({"dtype": "F32", "shape": [1]}, r"does not say where tensor 'w' lies"),
        ({"dtype": "F32", "data_offsets": [1]}, r"does not say where tensor 'w' lies"),
        ({"dtype": "F32", "data_offsets": ["a", None]}, r"does not say where tensor 'w' lies"),
        ("text", r"does not say where tensor 'w' lies"),
    ],
)
def test_a_tensor_that_lies_nowhere_is_refused(tmp_path, tensor, match):
    with pytest.raises(ModelError, match=match):
        check_safetensors(written(tmp_path / "w.safetensors", {"w": tensor}, bytes(40)))


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    whole = tmp_path / "whole.safetensors"
    save_file({"a": torch.randn(7, 11), "b": torch.randn(13)}, whole)
    content = whole.read_bytes()
    part = tmp_path / "part.safetensors"
    for length in range(0, len(content), 17):
        part.write_bytes(content[:length])
        with pytest.raises(ModelError, match=r"cut short|bytes long"):
            check_safetensors(part)


def test_too_many_tensors_are_refused_before_they_cost_memory(tmp_path):
    many = {f"t{place}": entry(0, 0) for place in range(100_001)}
    path = written(tmp_path / "many.safetensors", many)
    with must_end(), pytest.raises(ModelError, match=r"lists 100001 tensors, and at most 100000 are read"):
        check_safetensors(path)
