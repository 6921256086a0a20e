"""Loaders with processes of their own, and the end of Python: right there too, and it comes."""

from pathlib import Path

import pytest

from .children import printed_by

LOADER = """
import sys
import warnings
import torch
from headwise.kernels.team import TEAM
from tests.kernels.problems import Threaded, threads, workers

class Answers(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, number):
        own, problem = torch.get_num_threads(), Threaded(number)
        # In a forked child torch's own operations would wait for ever for OpenMP's threads.
        with threads(int(sys.argv[2])):
            answer = problem.answer()
        return own, answer.float()

def main():
    warnings.simplefilter("ignore")  # of more workers than processors
    torch.set_num_threads(2)
    assert Threaded(0).answer() is not None and TEAM._parallel is not None
    if sys.argv[3] == "workers":
        TEAM._forget()
        assert Threaded(0).answer() is not None and workers()
    loader = torch.utils.data.DataLoader(
        Answers(), batch_size=None, num_workers=2, multiprocessing_context=sys.argv[1]
    )
    for number, (own, answer) in enumerate(loader):
        assert own == 1  # what torch gives its workers
        assert answer.equal(Threaded(number).alone.float()), number
    print("right", number + 1)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize(("start", "count"), [("fork", "1"), ("fork", "3"), ("spawn", "3")])
@pytest.mark.parametrize("helpers", ["team", "workers"])
def test_in_loader_processes(tmp_path: Path, start: str, count: str, helpers: str) -> None:
    assert printed_by(tmp_path / "loader.py", LOADER, start, count, helpers) == "right 12\n"


IDLE_AT_THE_END = """
from headwise.kernels.team import TEAM
from tests.kernels.problems import Threaded, threads, workers
with threads(4):
    assert Threaded(0).is_right()
    TEAM._forget()
    assert Threaded(0).is_right()
assert len(workers()) == 3
print("done")
"""
# Without torch: a daemon thread inside torch aborts the process when Python ends, whatever it computes.
BUSY_AT_THE_END = """
import threading
import numpy as np
from headwise.kernels.attend import Operands, Sizes, attend
tensors = np.random.default_rng(0).standard_normal((4, 2, 6, 131, 64)).astype(np.float32)
starts, stops = np.zeros(131, np.int64), np.full(131, 131)
query, key, value, output = ((each.ctypes.data, 6 * 131 * 64, 131 * 64, 64, 1) for each in tensors)
edges, held = (starts.ctypes.data, stops.ctypes.data, 0), (tensors, starts, stops)
def compute(times):
    while times:
        attend(
            Sizes(2, 6, 6, 131, 131, 64, 64),
            Operands("float32", query, key, value, output, *edges, owners=held, scale=0.125),
            num_threads=4,
        )
        times -= 1
compute(1)
for _ in range(2):
    threading.Thread(target=compute, args=(-1,), daemon=True).start()
compute(5)
print("done", flush=True)
"""
CALLED_AT_THE_END = """
import atexit
from tests.kernels.problems import Threaded, threads
def last():
    with threads(4):
        assert Threaded(0).is_right()
    print("done")
Threaded(0).answer()
atexit.register(last)
"""


@pytest.mark.parametrize(
    "script", [IDLE_AT_THE_END, BUSY_AT_THE_END, CALLED_AT_THE_END], ids=["idle", "busy", "called"]
)
def test_the_end_of_python(tmp_path: Path, script: str) -> None:
    assert printed_by(tmp_path / "script.py", script) == "done\n"
