"""Running a worker under its warden, with limits, and hearing what they say."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

# Loading torch on a machine that is busy with other things; it is not the user's file that takes this time.
START_SECONDS = 180.0
# What the warden may take to end what it watches over.
GRACE_SECONDS = 20.0
LARGEST_LINE_BYTES = 4 << 20
PRINTED_BYTES = 4096
_CHUNK_BYTES = 1 << 16
_LOOK_EVERY_SECONDS = 0.05


@dataclass
class Heard:
    """What came from a worker and its warden.

    - answers: lines of JSON, each an object
    - traces: the other lines, which Python writes when a signal ends it
    - printed: the end of what the worker printed
    """

    answers: list[dict[str, Any]] = field(default_factory=list)
    traces: list[str] = field(default_factory=list)
    printed: bytes = b""
    _line: bytes = b""

    def told(self, key: str) -> Any:
        """Return what the first answer with this key says there, or None."""
        return next((answer[key] for answer in self.answers if key in answer), None)

    def take_answers(self, chunk: bytes) -> None:
        """Take in a piece of what was answered; a line that grows without end is dropped."""
        *lines, self._line = (self._line + chunk).split(b"\n")
        if len(self._line) > LARGEST_LINE_BYTES:
            self._line = b""
        for line in lines:
            self._take_line(line.decode("utf-8", errors="replace").strip())

    def take_printed(self, chunk: bytes) -> None:
        """Take in a piece of what was printed."""
        self.printed = (self.printed + chunk)[-PRINTED_BYTES:]

    def _take_line(self, line: str) -> None:
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                self.answers.append(answer)
                return
        if line:
            self.traces.append(line)


def run_contained(module: str, request: dict[str, Any], *, seconds: float, memory_bytes: int) -> Heard:
    """Run a module's `work(request, answers)` in a process of its own; nothing is left of it on return.

    Args:
        module: its name.
        request: what JSON can carry.
        seconds: how long it may take from when it says that it has started.
        memory_bytes: how much memory it and what it starts may hold together.

    """
    given = {**request, "module": module, "memory_bytes": memory_bytes}
    # -P: a file of the working directory must not stand in for a module.
    warden = subprocess.Popen(  # noqa: S603 - our own script, without arguments
        [sys.executable, "-P", str(Path(__file__).with_name("warden.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # An interrupt from the terminal is for this process alone, which then has the others stopped.
        start_new_session=True,
    )
    requests, answers, printed = _pipe(warden.stdin), _pipe(warden.stdout), _pipe(warden.stderr)
    heard = Heard()
    with requests, answers, printed:
        try:
            with contextlib.suppress(BrokenPipeError):
                requests.write(json.dumps(given).encode() + b"\n")
            _listen(warden, heard, seconds)
        finally:
            _end(warden, heard)
    return heard


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:  # it was asked for
        raise RuntimeError("the process has no pipe")
    return stream


def _listen(warden: subprocess.Popen[bytes], heard: Heard, seconds: float) -> None:
    """Take in what is said until the warden has ended; have it stop the worker when the time is over."""
    requests, takers = (
        _pipe(warden.stdin),
        {
            _pipe(warden.stdout): heard.take_answers,
            _pipe(warden.stderr): heard.take_printed,
        },
    )
    deadline = time.monotonic() + START_SECONDS
    started = stopping = False
    with selectors.DefaultSelector() as selector:
        for stream, take in takers.items():
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, take)
        while warden.poll() is None:
            _take_in(selector, _LOOK_EVERY_SECONDS)
            if not started and heard.told("started"):
                started, deadline = True, time.monotonic() + seconds
            if time.monotonic() < deadline:
                continue
            if stopping:  # it does not obey
                warden.kill()
                return
            stopping, deadline = True, time.monotonic() + GRACE_SECONDS
            with contextlib.suppress(BrokenPipeError):
                requests.write(b"stop\n")
        while _take_in(selector, 0):
            pass


def _take_in(selector: selectors.BaseSelector, seconds: float) -> bool:
    """Read what there is to be read; return whether there was something."""
    ready = selector.select(seconds)
    for key, _ in ready:
        chunk = os.read(key.fd, _CHUNK_BYTES)
        if chunk:
            key.data(chunk)
        else:
            selector.unregister(key.fileobj)
    return bool(ready)


def _end(warden: subprocess.Popen[bytes], heard: Heard) -> None:
    """Let the warden end what it watches over, and do it here if it cannot."""
    _pipe(warden.stdin).close()
    try:
        warden.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        warden.kill()
        warden.wait()
    group = heard.told("group")
    if warden.returncode < 0 and isinstance(group, int) and group > 1:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
