"""The second visit's own parts: its vector code, its threads, the memory it takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pytest
import torch

from headwise import ops
from headwise.evidence import Collect, Evidence
from headwise.kernels import team
from headwise.kernels.compiled import source_hash
from headwise.kernels.entry import compile_vector_code
from headwise.kernels.geometry import TILE
from headwise.kernels.measuring import (
    DISTANCE,
    ENTROPY,
    INVERSE,
    LOCAL,
    LOG_SUM,
    MAXIMUM,
    PLACE,
    RECORD,
    TILE_KEY,
    TILE_SCORE,
)
from headwise.kernels.team import TEAM
from headwise.kernels.ways import VISIT
from headwise.masks import Causal

from ..hang import must_end
from ..memory_probe import peak_mebibytes
from .emitted import native
from .inner_loops import calls_in, function_in, loops_of
from .problems import threads, workers

COLLECT = Collect(map_size=9, top_k=3, offsets=[5], received=True, weights=True)


@pytest.mark.parametrize("window", [0.0, 8.0, 1e9])
@pytest.mark.parametrize(("start", "stop"), [(0, TILE), (16, 48)])
def test_measured_rows(start: int, stop: int, window: float) -> None:
    """Weights, sums and the largest score, by their formulas in float64; nothing else is touched."""
    rng = np.random.default_rng(3)
    count = 3
    scores = (3 * rng.standard_normal((count, TILE))).astype(np.float32)
    scores[1, start + 3 : start + 9] = -np.inf
    scores[2, stop - 3] = scores[2, stop - 2] = 20.0  # the first of equal ones counts
    keys = np.arange(TILE)
    seen = (keys >= start) & (keys < stop)
    exact = np.where(seen, scores.astype(np.float64), -np.inf)
    maximum, before = exact.max(1), np.float64(0.25)
    total = np.exp(exact - maximum[:, None]).sum(1) + 2.0  # of other tiles
    records = np.zeros((count, RECORD), np.float32)
    place = np.array([-5.0, 30.0, 400.0])
    for field, numbers in (
        (MAXIMUM, maximum),
        (INVERSE, 1 / total),
        (LOG_SUM, np.log(total)),
        (PLACE, place),
    ):
        records[:, field] = numbers
    records[:, [ENTROPY, DISTANCE, LOCAL]] = before
    found = scores.copy()
    native("headwise_measure_rows")(count, found, start, stop, records, window)
    weights = np.exp(exact - maximum[:, None]) / total[:, None]
    np.testing.assert_allclose(found[:, seen], weights[:, seen], rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found[:, ~seen], scores[:, ~seen])
    logarithms = np.log(np.where(weights > 0, weights, 1.0))
    distance = np.abs(place[:, None] - keys)
    for field, terms in (
        (ENTROPY, -weights * logarithms),
        (DISTANCE, weights * distance),
        (LOCAL, weights * (distance <= window)),
    ):
        np.testing.assert_allclose(records[:, field], before + terms.sum(1), rtol=1e-6)
    np.testing.assert_array_equal(records[:, TILE_SCORE], exact.max(1))
    np.testing.assert_array_equal(records[:, TILE_KEY], exact.argmax(1))


def test_what_is_summed_over_the_keys_stays_in_registers() -> None:
    (assembly,) = compile_vector_code(source_hash(), VISIT, on_disk=False).inspect_asm().values()
    measuring = function_in(assembly, "headwise_emitted_measure_rows")
    loops = loops_of(measuring)
    assert [loop.spills for loop in loops] == [()]
    assert loops[0].fused >= 8, "a power of two and two sums a register"
    assert calls_in(measuring) == []


class Observed:
    """A problem large enough for several threads, and its evidence from one."""

    def __init__(self, num_heads: int, num_kv_heads: int, length: int) -> None:
        generator = torch.Generator().manual_seed(length)
        shapes = [(2, heads, length, 64) for heads in (num_heads, num_kv_heads, num_kv_heads)]
        self._tensors = [torch.randn(shape, generator=generator) for shape in shapes]

    def evidence(self) -> Evidence[torch.Tensor]:
        return ops.observe(*self._tensors, mask=Causal(), collect=COLLECT).evidence

    @cached_property
    def alone(self) -> Evidence[torch.Tensor]:
        with threads(1):
            return self.evidence()

    def assert_right(self) -> None:
        found = self.evidence()
        for name, expected in vars(self.alone).items():
            if isinstance(expected, torch.Tensor):
                # To the last bit, any NaN being as good as another.
                np.testing.assert_array_equal(getattr(found, name).numpy(), expected.numpy(), err_msg=name)


PROBLEMS = [Observed(6, 3, 131), Observed(2, 2, 290), Observed(4, 1, 67)]


@pytest.fixture(params=["team", "workers"])
def helpers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let OpenMP's team help, or workers of the kernel's own, and say which."""
    named: str = request.param
    for problem in PROBLEMS:
        assert (
            problem.alone is not None
        )  # the team is lent, and all compiled, when the kernel is first needed
    if named == "workers":
        monkeypatch.setattr(TEAM, "_parallel", None)
    monkeypatch.setattr(team, "_PAUSE_SECONDS", 0.0)
    assert TEAM.is_ready == (named == "team")
    with must_end():
        yield named


@pytest.mark.parametrize("count", range(1, 9))
def test_any_number_of_threads(count: int, helpers: str) -> None:
    with threads(count):
        for problem in PROBLEMS:
            problem.assert_right()
    assert helpers == "team" or len(workers()) >= count - 1


OBSERVED = """
from headwise import Causal, Collect, observe
collect = Collect(map_size=32, top_k=2, received=True, rows=[-1])
def inputs(length):
    return torch.randn(3, 1, 2, length, 64)
def run(*made):
    return observe(*made, mask=Causal(), collect=collect)
"""


ALLOCATORS_MEBIBYTES = 2.0
"""By how much the memory that the allocator holds varies from run to run."""


def test_memory_grows_with_the_keys() -> None:
    """All weights of two heads would be 512 MiB at 8,192 tokens, and four times those at 4,096."""
    short, long = (peak_mebibytes(OBSERVED, length) for length in (4096, 8192))
    assert long < 48.0
    assert long < 2.5 * short + ALLOCATORS_MEBIBYTES
