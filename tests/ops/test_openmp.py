"""Where OpenMP is found: the very library that torch shares its operations out with."""

import ctypes
from pathlib import Path

import pytest
import torch

from headwise.ops import openmp


class Place(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("at", ctypes.c_void_p),
    )


def test_it_lies_in_a_library_that_torch_brought() -> None:
    address, place = openmp.parallel_address(), Place()
    assert address is not None
    assert ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(place))
    assert place.name == b"GOMP_parallel"
    assert Path(place.file.decode()).is_relative_to(Path(torch.__file__).parent)


def test_without_the_library_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_LIBRARY", tmp_path / "libtorch_cpu.so")
    assert openmp.parallel_address() is None


def test_without_the_function_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp.ctypes, "CDLL", lambda _path: object())
    assert openmp.parallel_address() is None
