"""The peaks: what a processor can do, asked for from any thread, measured on vectors and nothing else."""

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwise.kernels import probes
from headwise.kernels.emission import FLOAT, INT64
from headwise.kernels.host import GEOMETRY

from .emitted import assembly_here
from .inner_loops import loops_of


@pytest.mark.parametrize("probe", [probes.fma_rates, probes.read_rates])
def test_a_probe_gives_what_a_processor_can_do(probe: Callable[..., list[float]]) -> None:
    meetings: list[None] = []

    def rates() -> list[float]:
        return probe(meet=lambda: meetings.append(None), clock=time.thread_time)

    with ThreadPoolExecutor(2) as pool:
        found = [rate for each in [pool.submit(rates) for _ in range(2)] for rate in each.result()]
    assert len(meetings) == len(found)
    assert all(1e8 < each < 1e13 for each in found)


@pytest.mark.parametrize("function", [probes._multiplying, probes._reading])
def test_other_threads_run_meanwhile(function: Callable[[], object]) -> None:
    assert function().targetoptions["nogil"]


KINDS = (FLOAT.as_pointer(), INT64)


def test_the_peak_is_measured_in_registers() -> None:
    loop, *_ = loops_of(assembly_here(probes._emit_multiplying, KINDS))
    assert loop.fused % probes._CHAINS == 0
    assert loop.spills == ()


def test_memory_is_read_in_whole_vectors() -> None:
    whole = re.compile({4: r"\bq\d+.*\[x", 8: r"\(%r.*%ymm", 16: r"\(%r.*%zmm"}[GEOMETRY.lanes])
    loads = [line for line in assembly_here(probes._emit_reading, KINDS).splitlines() if whole.search(line)]
    assert len(loads) >= probes._STREAMS // 2  # two at a time on ARM
