"""The OpenMP team: used where it comes in time, left alone where it does not, forgotten after a fork."""

import ctypes
import os
from typing import Any

import pytest

from headwise.kernels import frame, team
from headwise.kernels.schedule import LATE
from headwise.kernels.team import Team

PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Lent:
    """A stand-in for OpenMP: it calls the function once a thread, one after the other."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.function = PARALLEL(self.run)
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def run(self, entry: int, given: int, threads: int, flags: int) -> None:
        assert flags == 0
        self.asked.append(threads)
        for _ in range(threads):
            ENTRY(entry)(given)


@pytest.fixture
def numbers() -> ctypes.Array[ctypes.c_int64]:
    sizes = frame.Sizes(1, 1, 1, 1, 1, 1, 1)
    nowhere = (0, 0, 0, 0, 0)
    operands = frame.Operands("float32", nowhere, nowhere, nowhere, nowhere, 0, 0, 0, None, 1.0)
    return frame.frame_of(sizes, operands, ring=1, desks=0, desk_floats=0, buffers=0)


def test_an_entry_is_called_by_every_thread(numbers: Any) -> None:
    lent, found, given = Lent(), Team(), []
    assert not found.is_ready
    found.join(lent.address)
    assert found.is_ready
    found.run(ENTRY(given.append), numbers, 3)
    assert lent.asked == [3]
    assert given == [ctypes.addressof(numbers)] * 3
    assert found.is_ready


def test_a_team_that_comes_late_is_left_alone_for_a_moment(
    numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [5.0]
    monkeypatch.setattr(team, "monotonic", lambda: now[0])
    lent, found = Lent(), Team()
    found.join(lent.address)
    late = len(numbers) - 2 - (frame.PER_HEAD - LATE)  # from the end: two counters for the one KV head

    def come_late(_frame: int) -> None:
        numbers[late] += 1
        now[0] += took

    took = 0.4 * team._LONG_SECONDS
    found.run(ENTRY(come_late), numbers, 2)
    assert found.is_ready, "it was only being woken"
    took = 0.6 * team._LONG_SECONDS
    found.run(ENTRY(come_late), numbers, 2)
    assert not found.is_ready
    now[0] += team._PAUSE_SECONDS
    assert found.is_ready


# If another test has loaded JAX, it warns of every fork.
@pytest.mark.filterwarnings("ignore:os.fork.. was called.*JAX:RuntimeWarning")
def test_a_forked_child_has_none() -> None:
    lent, found = Lent(), Team()
    found.join(lent.address)
    child = os.fork()
    if child == 0:
        os._exit(int(found.is_ready))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert found.is_ready
