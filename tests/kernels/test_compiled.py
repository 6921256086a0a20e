"""Compiling: once a machine, once a process, anew after an edit, and also where nothing can be written."""

import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from numba import njit, types
from numba.core import caching

from headwise.kernels import compiled, entry, host, ways

PACKAGE = Path(compiled.__file__).parents[1]
PATIENCE_SECONDS = 900
NOTICE = (
    "headwise: compiling the CPU kernel for this processor, or reading it from disk; "
    "this takes some seconds\n"
)
COUNTING = """
import sys
from numba.core import event
from headwise.kernels import compiled, ways
with event.install_recorder("numba:compile") as recorder:
    {}
print(sum(each.is_start for _, each in recorder.buffer))
"""
ENTRY = COUNTING.format("compiled.entry_for(ways.STREAMED)")
SMALL = """
from numba import njit, types

def make(source, *, on_disk):
    @njit(types.int64(types.int64), cache=on_disk)
    def plus_one(number):
        len(source)
        return number + 1
    return plus_one
""" + COUNTING.format("assert compiled.kept_on_disk(make)(1) == 2")

ORDER = """
import sys
for name in sys.argv[1:]:
    __import__("headwise.kernels." + name)
import torch
from headwise import ops
torch.manual_seed(0)
query, key, value = torch.randn(1, 2, 1, 32), *torch.randn(2, 1, 2, 71, 32)
found, exact = (ops.attention(query, key, value, impl=impl) for impl in ("cpu", "reference"))
assert (found - exact).abs().max() < 1e-5
print("right")
"""


def files_in(folder: Path) -> dict[str, float]:
    """Return what is kept there, and when each was written."""
    return {path.name: path.stat().st_mtime for path in folder.rglob("*.nb[ci]")}


def printed_by(script: Path | str, *arguments: str, cache: Path, source: Path = PACKAGE.parent) -> str:
    """Return what a script prints in a fresh process, which says nothing else but the notice."""
    done = subprocess.run(
        [sys.executable, *([script] if isinstance(script, Path) else ["-c", script]), *arguments],
        env=os.environ | {"NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr in ("", NOTICE)
    return done.stdout


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which an entry is kept."""
    cache = tmp_path_factory.mktemp("cache")
    assert int(printed_by(ENTRY, cache=cache)) > 10
    return cache


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package, to be edited."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "headwise", ignore=shutil.ignore_patterns("__pycache__"))
    return source


def test_a_second_process_compiles_nothing(warm_cache: Path) -> None:
    kept = files_in(warm_cache)
    assert printed_by(ENTRY, cache=warm_cache) == "0\n"
    assert files_in(warm_cache) == kept


@pytest.mark.parametrize("first", [["packing"], ["streaming", "ledger"], ["products"]], ids=str)
def test_the_order_of_imports_does_not_matter(warm_cache: Path, first: list[str]) -> None:
    kept = files_in(warm_cache)
    assert printed_by(ORDER, *first, cache=warm_cache) == "right\n"
    assert files_in(warm_cache) == kept


def test_an_edit_anywhere_compiles_anew(copied: Path, tmp_path: Path) -> None:
    script, cache = tmp_path / "small.py", tmp_path / "cache"
    script.write_text(SMALL, encoding="utf-8")
    assert [printed_by(script, cache=cache, source=copied) == "0\n" for _ in range(2)] == [False, True]
    with (copied / "headwise" / "kernels" / "exponential.py").open("a", encoding="utf-8") as edited:
        edited.write("\n# An edit in a file that holds none of the functions kept on disk.\n")
    assert [printed_by(script, cache=cache, source=copied) == "0\n" for _ in range(2)] == [False, True]


def test_the_hash_takes_in_every_file(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied / "headwise" / "kernels"
    monkeypatch.setattr(compiled, "__file__", str(folder / "compiled.py"))
    found = {compiled.source_hash()}
    assert compiled.source_hash() in found
    for number, path in enumerate(sorted(folder.glob("*.py")), start=2):
        path.write_text(path.read_text(encoding="utf-8") + "# edited\n", encoding="utf-8")
        found.add(compiled.source_hash())
        assert len(found) == number


def make_small(source: str, *, on_disk: bool) -> Any:
    """Compile something small the way the kernel is."""

    @njit(types.int64(types.int64), cache=on_disk)
    def plus_one(number: int) -> int:
        len(source)
        return number + 1

    return plus_one


def refuse(*_given: Any, **_options: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    return tmp_path


def test_it_is_kept_on_disk(cache: Path) -> None:
    assert compiled.kept_on_disk(make_small)(1) == 2
    kept = files_in(cache)
    assert len(kept) == 2
    found = compiled.kept_on_disk(make_small)
    assert found(1) == 2
    assert sum(found.stats.cache_hits.values()) == 1
    assert files_in(cache) == kept


def test_nowhere_to_write(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    with pytest.raises(RuntimeError, match="cannot cache"):
        make_small("", on_disk=True)
    assert compiled.kept_on_disk(make_small)(1) == 2
    assert files_in(cache) == {}


def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", refuse)
    with pytest.raises(OSError, match="No space left"):
        make_small("", on_disk=True)
    assert compiled.kept_on_disk(make_small)(1) == 2


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_a_damaged_file(cache: Path, ending: str) -> None:
    compiled.kept_on_disk(make_small)
    (damaged,) = cache.rglob(f"*.{ending}")
    damaged.write_bytes(b"")
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        make_small(compiled.source_hash(), on_disk=True)
    assert compiled.kept_on_disk(make_small)(1) == 2


def test_what_fails_without_the_disk_too_is_told() -> None:
    def fail(_source: str, *, on_disk: bool) -> None:
        raise ValueError(f"on_disk={on_disk}")

    with pytest.raises(ValueError, match="on_disk=False"):
        compiled.kept_on_disk(fail)


class Compiler:
    """Stands for compiling: takes its time and counts."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.count = 0

    def __call__(self, _make: Callable[..., Any]) -> Any:
        self.count += 1
        time.sleep(self.seconds)
        return object()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    found = Compiler(0.3)
    monkeypatch.setattr(compiled, "_entries", {})
    monkeypatch.setattr(compiled, "_told", threading.Event())
    monkeypatch.setattr(compiled, "kept_on_disk", found)
    return found


def test_callers_at_once_compile_once(compiler: Compiler) -> None:
    begin = threading.Barrier(6)

    def ask(_number: int) -> Any:
        begin.wait()
        return compiled.entry_for(ways.PACKED)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(ask, range(6)))) == 1
    assert compiler.count == 1


def test_each_entry_is_compiled_for_itself(compiler: Compiler) -> None:
    compiler.seconds = 0.0
    found = [compiled.entry_for(way) for way in (ways.PACKED, ways.STREAMED, ways.VISIT)]
    assert len(set(found)) == compiler.count == 3


def test_one_notice_on_stderr_if_it_takes_long(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "_NOTICE_AFTER_SECONDS", 0.05)
    for way in (ways.STREAMED, ways.STREAMED, ways.PACKED):
        compiled.entry_for(way)
    assert compiler.count == 2
    assert capsys.readouterr() == ("", NOTICE)


def test_no_notice_if_it_does_not(compiler: Compiler, capsys: pytest.CaptureFixture[str]) -> None:
    compiled.entry_for(ways.STREAMED)
    time.sleep(0.1)
    assert capsys.readouterr() == ("", "")
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_an_error_is_followed_by_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_entries", {})
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "kept_on_disk", refuse)
        with pytest.raises(OSError, match="No space left"):
            compiled.entry_for(ways.STREAMED)
    assert compiled.entry_for(ways.STREAMED) is not None


@pytest.mark.parametrize("make", [entry.compile_packed, entry.compile_streamed, entry.compile_visit])
def test_code_of_another_source_has_a_name_of_its_own_on_disk(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is compiled is the function; here it is only looked at.
    monkeypatch.setattr(entry, "cfunc", lambda *_, **__: lambda function: function)
    names = {make(source, on_disk=False).__qualname__ for source in ("0" * 64, "1" * 64)}
    assert len(names) == 2


def test_another_processor_has_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here = compiled.source_hash()
    name, features = host.processor()
    monkeypatch.setattr(host, "processor", lambda: (name, {**features, "fma": False}))
    assert compiled.source_hash() != here
