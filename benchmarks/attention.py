"""How fast attention is beside the other libraries: `headwise bench` on one thread, and on all.

Each number of threads is measured in a process of its own, for JAX keeps the threads it started with. `ratio`
is to the better of torch's fused kernel and ONNX Runtime, `ratio_to_best` to the best of all; both grow with
speed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMPARED = ("torch_sdpa", "onnxruntime")
LIMITS: dict[str, float] = {}
AT_LEAST = {
    "full-64": 1.15,
    "full-128": 1.15,
    "causal-512": 2.0,
    "causal-2048": 1.4,
    "gqa-causal": 1.5,
    "short-causal": 1.7,
    "window": 8.0,
    "padded": 1.8,
    "decode-gqa-4k": 3.0,
    "decode-gqa-32k": 3.0,
    "decode-4k": 1.5,
    "causal-bf16": 1.5,
}
SHARES_AT_LEAST = {
    "full-64": ("fma_share", 0.78),
    "full-128": ("fma_share", 0.82),
    "decode-gqa-4k": ("read_share", 0.8),
    "decode-gqa-32k": ("read_share", 0.8),
}
THREADS = sorted({1, len(os.sched_getaffinity(0))})


def named(work: str, threads: int, figure: str) -> str:
    """Return the name of one figure of one work."""
    return f"{work}_{threads}t_{figure}"


LEAST = {named(work, threads, "ratio"): least for work, least in AT_LEAST.items() for threads in THREADS}
LEAST |= {named(work, 1, share): least for work, (share, least) in SHARES_AT_LEAST.items()}


def measure() -> dict[str, float]:
    """Return the ratios and shares of every work, and the milliseconds of every backend."""
    figures: dict[str, float] = {}
    for threads in THREADS:
        found = bench(threads)
        figures |= {f"{threads}t_fma_gflops": found["peaks"]["fma_flops_per_second"] / 1e9}
        figures |= {f"{threads}t_read_gbytes": found["peaks"]["read_bytes_per_second"] / 1e9}
        for work in found["works"]:
            figures |= {
                named(work["name"], threads, figure): value for figure, value in figures_of(work).items()
            }
    return figures


def bench(threads: int) -> dict[str, Any]:
    """Return what `headwise bench --json` finds on this many threads."""
    script = Path(sys.executable).with_name("headwise")
    command = [script, "bench", "--json", "--threads", str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own script
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def figures_of(work: dict[str, Any]) -> dict[str, float]:
    """Return the figures of one work."""
    seconds = {name: timing["seconds"] for name, timing in work["timings"].items()}
    peers = [seconds[name] for name in COMPARED if work["timings"].get(name, {}).get("is_right")]
    figures = {f"{name}_ms": 1000 * taken for name, taken in seconds.items()}
    figures |= {share: work[share] for share in ("fma_share", "read_share")}
    if work["ratio"] is not None and peers:
        figures |= {"ratio": min(peers) / seconds["headwise"], "ratio_to_best": work["ratio"]}
    return figures
