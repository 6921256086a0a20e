"""What runs in a process of its own may do what it likes: it ends, why is told, and nothing of it is left."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwise.verbs.check import contained
from headwise.verbs.check.contained import Heard, run_contained

WORKER = """
import faulthandler, json, os

def work(request, answers):
    faulthandler.enable(file=answers)
    os.write(answers, b'{"started": true}\\n')
    exec(compile(request["code"], "the_code.py", "exec"), {"answers": answers, "request": request})
    os.write(answers, b'{"result": "done"}\\n')
"""
Run = Callable[..., Heard]


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker that runs the code it is given, without anything that takes time to load."""
    (tmp_path / "light_worker.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


@pytest.fixture
def run(worker: Path) -> Run:
    def run_code(code: str, *, seconds: float = 60.0, memory_bytes: int = 1 << 30) -> Heard:
        request = {"code": textwrap.dedent(code), "folder": str(worker)}
        return run_contained("light_worker", request, seconds=seconds, memory_bytes=memory_bytes)

    return run_code


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    return False


def wait_until(what: Callable[[], object]) -> None:
    patience = time.monotonic() + 60
    while not what():
        assert time.monotonic() < patience
        time.sleep(0.02)


def pids_in(file: Path) -> list[int]:
    wait_until(lambda: file.exists() and file.read_text().endswith("\n"))
    return [int(line) for line in file.read_text().split()]


def test_answers_come_back_and_prints_do_not_mix_with_them(run: Run) -> None:
    heard = run("""
        import os, sys
        print("to standard output", flush=True)
        sys.stderr.write("to standard error\\n")
        os.write(1, b'{"result": "forged"}\\n')
        """)
    assert heard.told("result") == "done"
    assert heard.told("ended") == 0
    assert b"to standard output" in heard.printed
    assert b"to standard error" in heard.printed


def test_only_the_end_of_what_is_printed_is_kept(run: Run) -> None:
    heard = run("""
        for _ in range(3000): print("x" * 99)
        print("the end", flush=True)
        """)
    assert heard.told("result") == "done"
    assert len(heard.printed) == contained.PRINTED_BYTES
    assert heard.printed.endswith(b"the end\n")


def test_standard_input_is_empty(run: Run) -> None:
    assert run("import sys; assert sys.stdin.read() == ''").told("result") == "done"


def test_a_loop_without_end_is_stopped_and_its_line_is_told(run: Run) -> None:
    heard = run("def spin():\n  while True:\n    pass\nspin()", seconds=0.3)
    assert heard.told("stopped") == "time"
    assert any('"the_code.py", line' in trace and "in spin" in trace for trace in heard.traces)
    assert heard.told("result") is None


def test_one_that_ignores_the_signal_is_ended_all_the_same(run: Run) -> None:
    heard = run(
        """
        import signal
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        while True: pass
        """,
        seconds=0.3,
    )
    assert heard.told("stopped") == "time"


def test_memory_without_end_is_stopped_and_its_line_is_told(run: Run) -> None:
    heard = run(
        """
        def eat():
            kept = []
            while True: kept.append(bytearray(1 << 20))
        eat()
        """,
        memory_bytes=100 << 20,
    )
    assert heard.told("stopped") == "memory"
    assert any("in eat" in trace for trace in heard.traces)


def test_memory_of_what_it_starts_counts_as_well(run: Run) -> None:
    heard = run(
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            kept = bytearray(150 << 20)
            time.sleep(1000)
        time.sleep(1000)
        """,
        memory_bytes=100 << 20,
    )
    assert heard.told("stopped") == "memory"


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        ("import os; os._exit(7)", 7),
        ("import sys; sys.exit(3)", 3),
        ("raise ValueError('no')", 1),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_how_it_ended_is_told(run: Run, code: str, ended: int) -> None:
    heard = run(code)
    assert heard.told("ended") == ended
    assert heard.told("result") is None


def test_what_it_started_is_gone_also_in_a_session_of_its_own(run: Run, worker: Path) -> None:
    heard = run("""
        import os, subprocess, sys
        pids = []
        for new_session in (False, True):
            program = ["sleep", "1000"]
            pids.append(subprocess.Popen(program, start_new_session=new_session).pid)
        # One whose parent ends before it, twice removed.
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.write(writing, f"{os.getpid()} ".encode())
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
        pids.append(int(os.read(reading, 20)))
        with open(request["folder"] + "/pids", "w") as file:
            print(*pids, file=file)
        """)
    assert heard.told("result") == "done"
    pids = pids_in(worker / "pids")
    assert len(pids) == 3
    assert not any(map(is_alive, pids))


def test_one_that_kills_what_watches_over_it_ends_with_it(run: Run, worker: Path) -> None:
    heard = run("""
        import os, subprocess, time
        started = subprocess.Popen(["sleep", "1000"])
        with open(request["folder"] + "/pids", "w") as file:
            print(os.getpid(), started.pid, file=file)
        os.kill(os.getppid(), 9)
        time.sleep(1000)
        """)
    assert heard.told("ended") is None
    assert heard.told("stopped") is None
    pids = pids_in(worker / "pids")
    wait_until(lambda: not any(map(is_alive, pids)))


def test_one_that_stops_what_watches_over_it_is_ended(
    run: Run, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contained, "GRACE_SECONDS", 0.3)
    heard = run(
        """
        import os, signal, time
        with open(request["folder"] + "/pids", "w") as file:
            print(os.getpid(), file=file)
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(1000)
        """,
        seconds=3,
    )
    assert heard.told("ended") is None
    pids = pids_in(worker / "pids")
    wait_until(lambda: not any(map(is_alive, pids)))


@pytest.fixture
def waiting(worker: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits for a worker which never ends."""
    code = """
        import os, subprocess, time
        started = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        with open(request["folder"] + "/pids", "w") as file:
            print(os.getpid(), os.getppid(), started.pid, file=file)
        time.sleep(1000)
        """
    asked = {"code": textwrap.dedent(code), "folder": str(worker)}
    waiting = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal; from headwise.verbs.check.contained import run_contained\n"
            # Tests that run in the background were started with interrupts ignored, and hand that on.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"run_contained('light_worker', {asked!r}, seconds=1000, memory_bytes=1 << 30)",
        ],
        stderr=subprocess.DEVNULL,
    )
    yield waiting
    waiting.kill()
    waiting.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_the_process_that_waits_for_it_ends(
    worker: Path, waiting: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    pids = pids_in(worker / "pids")
    assert all(map(is_alive, pids))
    os.kill(waiting.pid, number)
    waiting.wait(60)
    wait_until(lambda: not any(map(is_alive, pids)))


def test_it_ends_when_all_who_watch_over_it_are_killed_at_once(
    worker: Path, waiting: subprocess.Popen[bytes]
) -> None:
    own, warden, started = pids_in(worker / "pids")
    # Stopped, neither can see to it that the others end.
    for pid in (waiting.pid, warden):
        os.kill(pid, signal.SIGSTOP)
    for pid in (waiting.pid, warden):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(own))
    os.kill(started, signal.SIGKILL)  # which nobody is left to find


def test_one_that_does_not_start_in_time_is_stopped(
    run: Run, monkeypatch: pytest.MonkeyPatch, worker: Path
) -> None:
    monkeypatch.setattr(contained, "START_SECONDS", 0.3)
    (worker / "light_worker.py").write_text("import time\ntime.sleep(1000)\n")
    heard = run("")
    assert heard.told("started") is None
    assert heard.told("stopped") == "time"


def test_noise_among_the_answers_is_passed_over(run: Run) -> None:
    heard = run("""
        import os
        os.write(answers, b"no JSON\\n" + b"[1, 2]\\n" + b"\\xff\\xfe\\n")
        os.write(answers, b"[" * 100000 + b"\\n" + b'{"half": ')
        """)
    assert heard.told("ended") == 0
    assert heard.traces[:2] == ["no JSON", "[1, 2]"]


def test_a_line_without_end_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "LARGEST_LINE_BYTES", 1000)
    heard = Heard()
    for _ in range(5):
        heard.take_answers(b"x" * 600)
    heard.take_answers(b'\n{"result": 1}\n')
    assert heard.told("result") == 1
    assert all(len(trace) <= 1000 for trace in heard.traces)
