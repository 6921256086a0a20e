"""A guard against code that would not end: far above what its work takes anywhere, no measure of speed."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE_SECONDS = 60


class StillRunningError(BaseException):
    """Derives from BaseException so that no handler under test takes it for an ordinary error."""


@contextmanager
def must_end() -> Iterator[None]:
    """Stop the block with `StillRunningError` if it has not ended in `PATIENCE_SECONDS`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise StillRunningError(f"still running after {PATIENCE_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(PATIENCE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
