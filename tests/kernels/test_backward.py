"""The backward pass among threads: callers side by side, forks, loaders; always the bits of one thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headwise.kernels import calls, team
from headwise.kernels.team import TEAM
from headwise.masks import Causal, Mask
from headwise.ops import arguments, kernel, kernel_gradient
from headwise.ops.results import Wanted

from ..hang import must_end
from .children import exit_code_of_child, printed_by
from .problems import threads, workers

# From Python 3.12 on a fork beside threads is warned of: that it works is what is tested.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork.. was called.*JAX:RuntimeWarning"),
]


class Differentiated:
    """A problem large enough for several threads, and its gradients from one.

    Stretches take turns at the queries' sums, and KV heads at a bias that they share.
    """

    def __init__(self, num_heads: int, num_kv_heads: int, length: int, mask: Mask | None) -> None:
        generator = torch.Generator().manual_seed(length)
        shapes = [(2, heads, length, 64) for heads in (num_heads, num_kv_heads, num_kv_heads, num_heads)]
        *made, self._upstream = (torch.randn(shape, generator=generator) for shape in shapes)
        bias, sinks = torch.randn(1, 1, 1, length, generator=generator), torch.zeros(num_heads)
        self._call = arguments.check(*made, mask=mask, bias=bias, sinks=sinks)
        with threads(1):
            self._attended = kernel.attend_for_gradient(self._call)

    def gradients(self) -> list[NDArray[np.float32]]:
        wanted = Wanted(*[True] * 5)
        found = kernel_gradient.gradients(self._call, self._attended, self._upstream, None, wanted=wanted)
        return [each.numpy() for each in found if each is not None]

    @cached_property
    def alone(self) -> list[NDArray[np.float32]]:
        with threads(1):
            return self.gradients()

    def is_right(self) -> bool:
        """Return whether the gradients are those of one thread, bit for bit; NumPy needs no threads."""
        pairs = zip(self.gradients(), self.alone, strict=True)
        return all(np.array_equal(one.view(np.int32), other.view(np.int32)) for one, other in pairs)


PROBLEMS = [
    Differentiated(6, 3, 131, Causal()),
    Differentiated(2, 2, 290, None),
    Differentiated(4, 1, 141, Causal()),
]


def all_right() -> bool:
    return all(problem.is_right() for problem in PROBLEMS)


@pytest.fixture(params=["team", "workers"])
def helpers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Let OpenMP's team help, or workers of the kernel's own, and say which."""
    named: str = request.param
    assert all_right()  # the team is lent, and all compiled, when the kernel is first needed
    if named == "workers":
        monkeypatch.setattr(TEAM, "_parallel", None)
    monkeypatch.setattr(team, "_PAUSE_SECONDS", 0.0)
    assert TEAM.is_ready == (named == "team")
    with must_end():
        yield named


@pytest.mark.parametrize("count", range(1, 9))
def test_any_number_of_threads(count: int, helpers: str) -> None:
    with threads(count):
        for _ in range(3):
            assert all_right()
    assert helpers == "team" or len(workers()) >= count - 1


@pytest.mark.usefixtures("helpers")
def test_eight_callers_at_once() -> None:
    begin = threading.Barrier(8)

    def call(number: int) -> bool:
        begin.wait()
        return all(PROBLEMS[(number + turn) % len(PROBLEMS)].is_right() for turn in range(6))

    with threads(3), ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


@pytest.mark.usefixtures("helpers")
def test_a_forked_child_finds_the_same() -> None:
    with threads(3):
        assert all_right()
        assert exit_code_of_child(all_right) == 0
        assert all_right()


LOADER = """
import warnings
import torch
from tests.kernels.problems import threads
from tests.kernels.test_backward import PROBLEMS

class Answers(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, number):
        with threads(3):
            return PROBLEMS[number % 3].is_right()

if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of more workers than processors
    torch.set_num_threads(2)
    assert all(problem.is_right() for problem in PROBLEMS)
    loader = torch.utils.data.DataLoader(
        Answers(), batch_size=None, num_workers=2, multiprocessing_context="fork"
    )
    print([*loader])
"""


def test_in_loader_processes(tmp_path: Path) -> None:
    assert printed_by(tmp_path / "loader.py", LOADER) == f"{[True] * 6}\n"


def test_the_problems_are_large_enough_for_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    threads_for = calls.threads_for

    def noting(cost: float, entries: int, num_threads: int) -> int:
        asked.append(threads_for(cost, entries, num_threads))
        return asked[-1]

    monkeypatch.setattr(calls, "threads_for", noting)
    with threads(4):
        for problem in PROBLEMS:
            problem.gradients()
    assert asked == [4] * len(PROBLEMS)
