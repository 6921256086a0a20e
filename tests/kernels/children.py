"""Processes beside that of the tests: forked ones, and Pythons of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from ..hang import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
SCRIPT_SECONDS = 10 * PATIENCE_SECONDS  # some have to compile first


def printed_by(path: Path, script: str, *arguments: str) -> str:
    path.write_text(script, encoding="utf-8")
    found = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, path, *arguments],
        env=os.environ | {"PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def exit_code_of_child(run: Callable[[], bool]) -> int:
    """Return 0 if `run` is true in a forked child, 1 if not, and what is below 0 if it had to be stopped."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE_SECONDS // 2)
            code = 0 if run() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
