"""Limits of benchmarks: each holds a figure that is measured, or the driver says so."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as driver
from benchmarks import attention
from headwise.verbs.bench.works import WORKS

RESULTS = sorted(driver.RESULTS.glob("*.json"))
Drive = Callable[..., tuple[int, str]]


@pytest.mark.parametrize("path", RESULTS, ids=[path.stem for path in RESULTS])
def test_every_limit_of_a_kept_result_holds_one_of_its_figures(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["benchmark"] in driver.BENCHMARKS
    assert result["limits"] | result.get("least", {}) != {}
    assert driver.unmatched(result) == []


def test_every_limit_of_attention_holds_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(threads: int) -> dict[str, Any]:
        timings = {
            name: {"seconds": 0.001 * threads, "is_right": True} for name in ("headwise", "torch_sdpa")
        }
        found = {"timings": timings, "fma_share": 0.5, "read_share": 0.25, "ratio": 1.0}
        peaks = {"fma_flops_per_second": 1e11, "read_bytes_per_second": 1e10}
        return {"peaks": peaks, "works": [{"name": work.name, **found} for work in WORKS]}

    monkeypatch.setattr(attention, "bench", bench)
    assert set(attention.LEAST) <= set(attention.measure())
    assert len(attention.LEAST) == len(attention.THREADS) * len(attention.AT_LEAST) + 4


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Drive:
    """Run the driver on a benchmark of two figures; return its exit code and what it complains of."""

    def run(limits: dict[str, float], least: dict[str, float]) -> tuple[int, str]:
        measured = SimpleNamespace(
            measure=lambda: {"a-1_ms": 2.0, "b_ratio": 3.0}, LIMITS=limits, LEAST=least
        )
        monkeypatch.setattr(driver, "BENCHMARKS", {"made-up": measured})
        monkeypatch.setattr("sys.argv", ["benchmarks", "made-up"])
        code = driver.main()
        told = capsys.readouterr()
        assert json.loads(told.out)[0]["figures"] == {"a-1_ms": 2.0, "b_ratio": 3.0}
        return code, told.err

    return run


@pytest.mark.parametrize(
    ("limits", "least", "code"),
    [
        ({"a-1_ms": 2.0}, {"b_ratio": 3.0}, 0),
        ({"a-1_ms": 1.9}, {}, 1),
        ({}, {"b_ratio": 3.1}, 1),
        ({}, {}, 0),
    ],
)
def test_a_limit_that_is_missed_ends_with_one(
    drive: Drive, limits: dict[str, float], least: dict[str, float], code: int
) -> None:
    assert drive(limits, least) == (code, "")


@pytest.mark.parametrize("kind", ["limits", "least"])
def test_a_limit_that_holds_nothing_is_an_error(drive: Drive, kind: str) -> None:
    limits = {"limits": {"a-1_ms": 1.0}, "least": {"b_ratio": 1.0}}
    limits[kind]["a_1_ms"] = 0.0
    assert drive(**limits) == (
        2,
        "made-up: there is a limit for a_1_ms, and no such figure was measured\n",
    )
