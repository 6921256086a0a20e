import io
import json
import math

import pytest
from rich.console import Console

from headwise.verbs.bench.render_json import to_json
from headwise.verbs.bench.render_text import print_bench
from headwise.verbs.bench.result import Absence, Bench, Clock, Peaks, Row, Timing
from headwise.verbs.bench.works import WORKS, Work
from headwise.verbs.machine import Machine

NAMES = ("headwise", "torch_sdpa", "torch_math", "flex_attention", "onnxruntime", "jax")
MACHINE = Machine("A Processor of 3.5 GHz", 4, 2, 0.25, {"python": "3.11.9", "torch": "2.13.0"})
LONGEST = 12345.678  # milliseconds


def timing(backend: str, milliseconds: float, *, error: float = 3e-7, is_right: bool = True) -> Timing:
    return Timing(backend, milliseconds / 1000, 5, error, error, is_right, f"form of {backend}")


def row(
    work: Work, milliseconds: list[float], clock: Clock = "thread", absent: tuple[Absence, ...] = ()
) -> Row:
    names = [name for name in NAMES if name not in {absence.backend for absence in absent}]
    timings = tuple(timing(name, taken) for name, taken in zip(names, milliseconds, strict=True))
    return Row(
        work, clock, useful_flops=10**9, kv_bytes=10**7, read_seconds=5e-4, timings=timings, absences=absent
    )


def shown(bench: Bench, width: int) -> str:
    stream = io.StringIO()
    print_bench(bench, Console(file=stream, width=width, markup=False, highlight=False, emoji=False))
    return stream.getvalue()


def a_bench(*rows: Row, threads: int = 1) -> Bench:
    return Bench(MACHINE, threads, Peaks(1e11, 2e10), rows)


FULL, DECODE = WORKS[0], WORKS[9]


def test_what_a_person_reads() -> None:
    no_jax = (Absence("jax", "JAX is not installed; pip install 'headwise[bench]'"),)
    slow = row(FULL, [20.0, 30.4, 1234.0, 50.0, 60.0], absent=no_jax)
    text = shown(a_bench(slow, row(DECODE, [1.0, 2.5, 3.0, 4.0, 5.0, 0.6])), 120)
    lines = text.splitlines()
    assert lines[0] == "A Processor of 3.5 GHz  2 CPUs, load 0.25; timed on 1 thread"
    assert lines[1] == "Peaks: 100.0 GFLOP/s, 20.0 GB/s read"
    assert lines[2] == "python 3.11.9, torch 2.13.0"
    assert "Milliseconds a call, CPU time of the calling thread" in text
    assert "Largest error, as a share of the largest exact value" in text
    (heading, full, decode, *_) = (
        line.split() for line in lines if line.startswith(("work", "full-64", "decode"))
    )
    assert heading == ["work", "headwise", "SDPA", "math", "Flex", "ORT", "JAX", "x", "share"]
    assert full == ["full-64", "20.0", "30.4", "1234", "50.0", "60.0", "-", "1.52", "50%"]
    assert decode == ["decode-gqa-32k", "1.00", "2.50", "3.00", "4.00", "5.00", "0.600", "0.60", "50%", "r"]
    assert "decode-gqa-32k 1,32/8,1x32768,128 " in text
    assert "full-64        1,8,2048x2048,64 " in text
    assert "\n- JAX on full-64: JAX is not installed; pip install 'headwise[bench]'\n" in text


def test_a_reason_that_holds_everywhere_is_told_once_and_names_no_work() -> None:
    absent = (Absence("flex_attention", "no compiler \x1b[31m"),)
    times = [20.0, 30.0, 40.0, 50.0, 60.0]
    text = shown(a_bench(row(FULL, times, absent=absent), row(DECODE, times, absent=absent)), 80)
    assert text.count("no compiler") == 1
    assert "\n- Flex: no compiler \\x1b[31m\n" in text


def test_a_wrong_result_is_marked_in_both_tables_and_has_no_ratio() -> None:
    timings = (
        timing("headwise", 20.0, error=0.5, is_right=False),
        timing("jax", 9.0, error=math.nan, is_right=False),
    )
    wrong = Row(FULL, "thread", 10**9, 10**7, 1.0, timings, ())
    lines = [line.split() for line in shown(a_bench(wrong), 80).splitlines() if line.startswith("full-64")]
    assert lines[0] == ["full-64", "20.0!", "-", "-", "-", "-", "9.00!", "-", "50%"]
    assert lines[1] == ["full-64", "1,8,2048x2048,64", "5e-01!", "-", "-", "-", "-", "nan!"]


@pytest.mark.parametrize("width", [80, 120])
def test_every_work_has_one_whole_line_in_each_table(width: int) -> None:
    rows = [row(work, [LONGEST, 1.0, 2345.6, 0.001, 234.5, LONGEST]) for work in WORKS]
    text = shown(a_bench(*rows), width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text
    for work in WORKS:
        times, errors = (line.split() for line in lines if line.startswith(f"{work.name} "))
        assert times[1:7] == ["12346", "1.00", "2346", "0.001", "234", "12346"]
        assert errors[2:] == ["3e-07"] * 6


@pytest.mark.parametrize(
    ("clocks", "told"),
    [
        (("wall",), "wall time"),
        (("process", "thread"), "CPU time of the process or CPU time of the calling thread"),
    ],
)
def test_the_clock_is_named(clocks: tuple[Clock, ...], told: str) -> None:
    rows = [row(FULL, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], clock) for clock in clocks]
    assert f"Milliseconds a call, {told}" in shown(a_bench(*rows), 120)


def test_the_json_document() -> None:
    no_jax = (Absence("jax", "gone"),)
    document = to_json(a_bench(row(FULL, [20.0, 30.0, 40.0, 50.0, 60.0], absent=no_jax), threads=2))
    assert json.loads(json.dumps(document, allow_nan=False)) == json.loads(json.dumps(document))
    assert document["machine"]["versions"] == MACHINE.versions
    assert document["threads"] == 2
    assert document["peaks"] == {"fma_flops_per_second": 1e11, "read_bytes_per_second": 2e10}
    (work,) = document["works"]
    assert list(work["timings"]) == list(NAMES[:-1])
    assert work["absences"] == {"jax": "gone"}
    assert (work["name"], work["kv_len"], work["best_peer"]) == ("full-64", 2048, "torch_sdpa")
    assert work["ratio"] == pytest.approx(1.5)
    assert work["fma_share"] == pytest.approx(0.5)
    assert work["read_share"] == pytest.approx(0.025)
    timing = work["timings"]["headwise"]
    assert timing["form"] == "form of headwise"
    assert timing["useful_flops_per_second"] == pytest.approx(5e10)
    assert timing["kv_bytes_per_second"] == pytest.approx(5e8)


def test_what_is_no_number_is_null_in_json() -> None:
    timings = (timing("headwise", 20.0, error=math.nan, is_right=False), timing("jax", 9.0, error=math.inf))
    (work,) = to_json(a_bench(Row(FULL, "thread", 1, 1, 1.0, timings, ())))["works"]
    assert work["timings"]["headwise"]["largest_error"] is None
    assert work["timings"]["jax"]["relative_error"] is None
    json.dumps(work, allow_nan=False)
