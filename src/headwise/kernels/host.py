"""What the processor can do: which geometry the kernel is built in, or why there is none."""

from __future__ import annotations

from llvmlite import binding
from numba.core import config
from numba.core.codegen import get_host_cpu_features

from headwise.kernels.geometry import GEOMETRIES, Geometry


def features() -> dict[str, bool]:
    """Return the features that Numba compiles for: the processor's, as far as Numba may use them."""
    words = config.CPU_FEATURES
    words = get_host_cpu_features() if words is None else words
    return {word[1:]: word[0] == "+" for word in words.split(",") if word}


def processor() -> tuple[str, dict[str, bool]]:
    """Return the name and the features of the processor that Numba compiles for."""
    return config.CPU_NAME or binding.get_host_cpu_name(), features()


def instruction_set(found: dict[str, bool]) -> str | None:
    """Return the name of the best geometry that these features allow, or None."""
    if found.get("avx512f") and found.get("avx512bw") and found.get("avx512vl"):
        return "avx512"
    if found.get("avx2") and found.get("fma") and found.get("f16c"):
        return "avx2"
    return "neon" if found.get("neon") and found.get("fullfp16") else None


INSTRUCTION_SET = instruction_set(features())
GEOMETRY: Geometry = GEOMETRIES[INSTRUCTION_SET or "avx2"]
BLOCK_ROWS = GEOMETRY.block_rows
