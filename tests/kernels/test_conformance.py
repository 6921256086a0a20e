"""The kernel against the reference, in little: enough to see each path of each geometry (test_geometries)."""

from functools import partial

import pytest
import torch

from headwise import ops
from headwise.kernels.geometry import DESK_ROWS, PANEL, TILE
from headwise.masks import Causal, Lengths, Window

from ..attention_cases import Case, assert_attends, laid_out, poisoned, tensors

SHAPES = {  # num_heads, num_kv_heads, seq_len, kv_len, head_dim, value_head_dim
    "one key": (2, 1, 1, 1, 5, 3),
    "decode": (4, 2, 1, 2 * TILE + 1, 64, 64),
    "decode, odd sizes": (3, 1, 1, 3 * TILE + 1, 13, 17),
    "a chunk": (4, 2, 3, 4 * TILE - 1, 48, 32),
    "a chunk, wide": (2, 1, 8, 4 * TILE + PANEL, 256, 256),
    "a row too many to stream": (1, 1, DESK_ROWS + 1, 8 * TILE, 64, 64),
    "too few keys to stream": (2, 1, 8, 2 * PANEL - 1, 64, 64),
    "two tiles": (4, 2, 61, TILE + 3, 64, 64),
    "odd sizes": (3, 3, 67, TILE - 1, 37, 41),
    "wide": (2, 1, 29, 43, 192, 256),
    "widest": (2, 1, 29, 43, 256, 256),
}
MASKS = {
    "none": lambda seq_len, kv_len: None,
    "causal": lambda seq_len, kv_len: Causal(),
    "window": lambda seq_len, kv_len: Causal() & Window(left=min(31, kv_len - 1), right=0),
    "lengths": lambda seq_len, kv_len: Lengths([max(1, kv_len // 2), kv_len]),
    "boolean": lambda seq_len, kv_len: torch.randn(2, 1, seq_len, kv_len).sigmoid() < 0.7,
}
by_kernel = partial(ops.attention_with_logsumexp, impl="cpu")


def case_of(shape: str, mask: str, dtype: torch.dtype) -> Case:
    num_heads, num_kv_heads, seq_len, kv_len, head_dim, value_head_dim = SHAPES[shape]
    torch.manual_seed(len(shape))
    given = tensors(
        "peaked", num_heads=num_heads, num_kv_heads=num_kv_heads, seq_len=seq_len, kv_len=kv_len,
        head_dim=head_dim, value_head_dim=value_head_dim, dtype=dtype,
    )  # fmt: skip
    return poisoned(Case(f"{shape}, {mask}", *given, {"mask": MASKS[mask](seq_len, kv_len)}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_gives_what_the_reference_gives(shape: str, mask: str, dtype: torch.dtype) -> None:
    assert_attends(by_kernel, case_of(shape, mask, dtype))


@pytest.mark.parametrize("layout", ["heads_inside", "sliced", "every_second"])
@pytest.mark.parametrize("shape", ["decode", "two tiles", "odd sizes"])
def test_strides(shape: str, layout: str) -> None:
    case = case_of(shape, "causal", torch.float32)
    given = (laid_out(tensor, layout) for tensor in (case.query, case.key, case.value))
    assert_attends(by_kernel, Case(f"{shape}, {layout}", *given, case.options))


@pytest.mark.parametrize("shape", ["a chunk", "two tiles"])
def test_everything_at_once(shape: str) -> None:
    case = case_of(shape, "causal", torch.float32)
    num_heads, _, seq_len, kv_len, _, _ = SHAPES[shape]
    options = {
        "bias": torch.randn(1, num_heads, seq_len, kv_len),
        "scale": 0.3,
        "softcap": 2.5,
        "sinks": torch.randn(num_heads),
        "head_gates": torch.tensor([0.0, 1.0, -0.5, 2.0]),
    }
    assert_attends(by_kernel, Case(shape, case.query, case.key, case.value, case.options | options))
