"""Compiled code on disk: what no version has used for a month goes, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headwise.kernels import compiled, ways
from headwise.kernels.on_disk.pruning import DAY_SECONDS, KEPT_DAYS, tend

OURS, OTHERS = "0123456789abcdef", "fedcba9876543210"
NAMES = (
    "entry.vector_code_0_{}-213.py311.nbi",
    "entry.vector_code_0_{}-213.py311.1.nbc",
    "entry.packed_{}-59.py312t.nbi",
    "entry.packed_{}-59.py312t.12.nbc",
)
OF_NO_KERNEL = (
    "entry.packed-59.py311.nbi",
    "entry.cpython-311.pyc",
    f"entry.packed_{OTHERS}-59.py311.1.nbc.tmp.0123456789abcdef",
    f"reference.packed_{OTHERS}-59.py311.nbi",
    f"entry.packed_{OTHERS}.txt",
)


def put(folder: Path, source: str, *, days: float) -> list[Path]:
    """Put the files of a version there, last used so many days ago."""
    paths = [folder / name.format(source) for name in NAMES]
    for path in paths:
        path.write_bytes(b"code")
        age(path, days)
    return paths


def age(path: Path, days: float) -> None:
    moment = time.time() - days * DAY_SECONDS
    os.utime(path, (moment, moment))


def days_unused(path: Path) -> float:
    return (time.time() - path.stat().st_mtime) / DAY_SECONDS


@pytest.mark.parametrize(("days", "stays"), [(0, True), (KEPT_DAYS - 1, True), (KEPT_DAYS + 1, False)])
def test_files_of_other_versions_go_when_nobody_used_them_for_a_month(
    tmp_path: Path, days: float, stays: bool
) -> None:
    others = put(tmp_path, OTHERS, days=days)
    tend(tmp_path, OURS * 4)
    assert [path.exists() for path in others] == [stays] * len(others)
    if stays:
        assert days_unused(others[0]) == pytest.approx(days, abs=0.1), "that they were seen is no use of them"


def test_what_is_not_the_kernels_stays_however_old(tmp_path: Path) -> None:
    for name in OF_NO_KERNEL:
        (tmp_path / name).touch()
        age(tmp_path / name, 1000)
    put(tmp_path, OTHERS, days=1000)
    tend(tmp_path, OURS * 4)
    assert {path.name for path in tmp_path.iterdir()} == set(OF_NO_KERNEL)


@pytest.mark.parametrize(("days", "noted"), [(1000, True), (2, True), (0.5, False)])
def test_use_is_noted_to_a_day(tmp_path: Path, days: float, noted: bool) -> None:
    ours = put(tmp_path, OURS, days=days)
    tend(tmp_path, OURS * 4)
    expected = 0.0 if noted else days
    assert [days_unused(path) for path in ours] == pytest.approx([expected] * len(ours), abs=0.1)


def test_two_versions_in_use_both_stay(tmp_path: Path) -> None:
    paths = put(tmp_path, OURS, days=0) + put(tmp_path, OTHERS, days=0)
    for turn in range(10):  # each is used every forty days, in turns
        for path in paths:
            age(path, days_unused(path) + 20)
        tend(tmp_path, (OURS, OTHERS)[turn % 2] * 4)
        assert all(path.exists() for path in paths)


def test_what_is_gone_or_somebody_elses_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tend(tmp_path / "gone", OURS * 4)
    paths = put(tmp_path, OURS, days=1000) + put(tmp_path, OTHERS, days=1000)
    refused = []

    def refuse(path: str | Path) -> None:
        refused.append(Path(path))
        raise PermissionError(1, "Operation not permitted", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refuse)
        patch.setattr(Path, "unlink", refuse)
        tend(tmp_path, OURS * 4)
    assert set(refused) == set(paths)


def test_a_file_that_goes_at_the_same_moment_is_not_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = put(tmp_path, OURS, days=1000)
    look = Path.stat

    def look_and_lose(path: Path, **options: bool) -> os.stat_result:
        found = look(path, **options)
        path.unlink()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", look_and_lose)
        tend(tmp_path, OURS * 4)
    assert not any(path.exists() for path in ours)


def test_the_kernel_tends_what_it_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiled, "_addressed", set())

    def start() -> None:
        compiled._give_addresses(ways.EVERY_WAY, OURS * 4, on_disk=True)

    def files() -> set[Path]:
        return {path for path in tmp_path.rglob("*") if path.is_file()}

    start()
    ours = files()
    assert sorted(path.suffix for path in ours) == [".nbc", ".nbi"]
    for path in ours:  # another version, as before an edit
        path.with_name(path.name.replace(OURS, OTHERS)).write_bytes(b"code")
    both = files()
    assert len(both) == 4
    for path in both:
        age(path, KEPT_DAYS + 1)
    start()
    assert files() == ours
    assert all(days_unused(path) < 0.1 for path in ours)
