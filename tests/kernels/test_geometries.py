"""The kernel of lesser processors than this one, run on this one."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    "test_derivatives.py",
    "test_dropout.py",
    "test_exponential.py",
    "test_packing.py",
    "test_products.py",
    "test_conformance.py",
    "../ops/test_kernel_ways.py",
)
PATIENCE_SECONDS = 1200

# Numba compiles for what these two say instead of what the processor is.
AVX2 = {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+f16c,-avx512f"}

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="no processor but x86 runs AVX2 code")


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@on_x86
def test_avx2(tmp_path: Path) -> None:
    environment = AVX2 | {"NUMBA_CACHE_DIR": str(tmp_path)}
    told = run(
        environment,
        "-c",
        "from headwise.kernels import host; print(host.INSTRUCTION_SET, host.GEOMETRY.lanes)",
    )
    assert told.stdout.split() == ["avx2", "8"], told.stderr
    files = [str(Path(__file__).parent / name) for name in FILES]
    done = run(environment, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
    assert done.returncode == 0, done.stdout[-5000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 600
    assert list(tmp_path.rglob("*.nbc")), "compiled anew, for a processor that is not this one"


@on_x86
@pytest.mark.parametrize("features", ["+avx2,+fma,-f16c", "+avx,+f16c,+fma", "+sse4.2", ""])
def test_a_processor_without_avx2_is_told_what_it_lacks(features: str) -> None:
    script = """
import torch
from headwise import errors, ops
tensors = [torch.randn(1, 1, 2, 4) for _ in range(3)]
assert ops.choose(*tensors).impl != "cpu"
try:
    ops.attention(*tensors, impl="cpu")
except errors.HeadwiseError as error:
    print(error)
"""
    told = run({"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": features}, "-c", script)
    assert "the processor has none of AVX-512, AVX2 with FMA, or NEON" in told.stdout, told.stderr
