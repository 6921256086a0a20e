"""Run lines of Python, each in a process that has run nothing before but `import torch`.

Reads a JSON list of lines from standard input and writes a JSON list of what each printed. A new interpreter
for each would load torch for seconds: this one has loaded it and splits off a process for each line.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import ModuleType

import torch

torch.set_num_threads(1)  # a process that is split off has lost the threads of its parent


def printed_by(line: str) -> str:
    """Return what a line prints in a process of its own, its error included."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 1)
        os.close(reading)
        try:
            run_as_main(line)
        except BaseException:
            sys.stdout.write(traceback.format_exc())
        sys.stdout.flush()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        printed = pipe.read()
    os.waitpid(child, 0)
    return printed


def run_as_main(line: str) -> None:
    """Run a line where an interpreter would run it: torch's compiler looks for names in the module itself."""
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(compile(line, "<line>", "exec"), vars(main))  # noqa: S102 - lines of headwise


if __name__ == "__main__":
    json.dump([printed_by(line) for line in json.load(sys.stdin)], sys.stderr)
