"""Transposition, widening and rounding as they are emitted, bit for bit against NumPy and torch."""

import numpy as np
import pytest
import torch
from llvmlite import ir
from numpy.typing import NDArray

from headwise.kernels.emission import Lanes
from headwise.kernels.geometry import PANEL
from headwise.kernels.host import GEOMETRY
from headwise.kernels.packing import BFLOAT16, FLOAT16, FLOAT32, narrowed

from .emitted import elementwise, native

KINDS = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16, FLOAT16: torch.float16}
kinds = pytest.mark.parametrize("kind", KINDS, ids=["float32", "bfloat16", "float16"])
POISON = np.float32(-7.5)


def to_bfloat16(lanes: Lanes, numbers: ir.Value) -> ir.Value:
    return narrowed(lanes, BFLOAT16, numbers)


def to_float16(lanes: Lanes, numbers: ir.Value) -> ir.Value:
    return narrowed(lanes, FLOAT16, numbers)


ROUNDING = {BFLOAT16: to_bfloat16, FLOAT16: to_float16}


def numbers(kind: int, *shape: int) -> torch.Tensor:
    """Return numbers of an element type, the last of each row not finite."""
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(kind))
    found[..., -1] = torch.tensor([torch.nan, torch.inf, -torch.inf])[torch.arange(shape[0]) % 3]
    return found.to(KINDS[kind])


def array(tensor: torch.Tensor) -> NDArray:
    """Return a tensor's memory as an array; 16-bit numbers as int16."""
    return (tensor if tensor.dtype == torch.float32 else tensor.view(torch.int16)).numpy()


def assert_same_bits(found: NDArray, wanted: torch.Tensor) -> None:
    """NaN may be any NaN."""
    torch.testing.assert_close(torch.from_numpy(found), wanted.float(), rtol=0, atol=0, equal_nan=True)


@kinds
@pytest.mark.parametrize("head_dim", [GEOMETRY.lanes, 3 * GEOMETRY.lanes, 64])
@pytest.mark.parametrize("gap", [0, 5])
def test_keys_are_transposed(kind: int, head_dim: int, gap: int) -> None:
    keys = numbers(kind, PANEL, head_dim + gap)
    panel = np.full(((head_dim + 1) * PANEL,), POISON, dtype=np.float32)
    stride = keys.stride(0) * keys.element_size()
    native("headwise_pack_full_key_panel")(kind, array(keys), stride, head_dim, panel)
    assert_same_bits(panel[: head_dim * PANEL].reshape(head_dim, PANEL), keys[:, :head_dim].T)
    assert (panel[head_dim * PANEL :] == POISON).all()


@kinds
@pytest.mark.parametrize("panels", [1, 3])
def test_a_row_is_spread_over_panels(kind: int, panels: int) -> None:
    row = numbers(kind, 1, panels * PANEL)
    gap = 3 * PANEL
    target = np.full(panels * gap, POISON, dtype=np.float32)
    native("headwise_widen_row")(kind, array(row), panels * PANEL, gap, target)
    assert_same_bits(target.reshape(panels, gap)[:, :PANEL], row.reshape(panels, PANEL))
    assert (target.reshape(panels, gap)[:, PANEL:] == POISON).all()


@kinds
@pytest.mark.parametrize("count", [1, 3 * PANEL, 3 * PANEL + 5])
def test_queries_are_scaled(kind: int, count: int) -> None:
    rows = numbers(kind, 3, count + 2)
    picked = [2, 0]
    offsets = np.array([row * rows.stride(0) * rows.element_size() for row in picked])
    target = np.full(2 * count + 1, POISON, dtype=np.float32)
    native("headwise_scale_rows")(kind, 2, array(rows), offsets, count, 0.3, target)
    assert_same_bits(target[:-1].reshape(2, count), rows[picked, :count].float() * 0.3)
    assert target[-1] == POISON


@kinds
@pytest.mark.parametrize("count", [1, 3 * PANEL, 3 * PANEL + 5])
def test_outputs_are_divided_and_gated_and_rounded_once(kind: int, count: int) -> None:
    width = count + 3
    rows = numbers(FLOAT32, 2, width)
    divisors, gates = np.array([3.7, 0.9], dtype=np.float32), np.array([-0.3, 1.0], dtype=np.float32)
    target = torch.full((3, count + 2), float(POISON)).to(KINDS[kind])
    offsets = np.array([row * target.stride(0) * target.element_size() for row in (1, 0)])
    native("headwise_finish_rows")(
        kind, 2, rows.numpy(), width, count, divisors, gates, array(target), offsets
    )
    wanted = (rows[:, :count] / torch.from_numpy(divisors)[:, None] * torch.from_numpy(gates)[:, None]).to(
        KINDS[kind]
    )
    torch.testing.assert_close(target[[1, 0], :count], wanted, rtol=0, atol=0, equal_nan=True)
    assert (target[2] == float(POISON)).all()
    assert (target[:, count:] == float(POISON)).all()


@kinds
def test_one_number_is_widened(kind: int) -> None:
    for number in numbers(kind, 3, 4).flatten():
        target = np.full(2, POISON, dtype=np.float32)
        native("headwise_widen_number")(kind, array(number[None]), target)
        assert_same_bits(target[:1], number[None])
        assert target[1] == POISON


@pytest.mark.parametrize("kind", [BFLOAT16, FLOAT16], ids=["bfloat16", "float16"])
def test_every_16_bit_number_is_widened_as_torch_does(kind: int) -> None:
    every = torch.arange(-(2**15), 2**15).to(torch.int16)
    target = np.full(every.numel(), POISON, dtype=np.float32)
    native("headwise_widen_row")(kind, every.numpy(), every.numel(), PANEL, target)
    assert_same_bits(target, every.view(KINDS[kind]))


def awkward_floats() -> torch.Tensor:
    """Return float32 numbers around every rounding: halves, their neighbours, subnormals, overflow, NaN."""
    every = torch.arange(2**16, dtype=torch.int64)
    ends = torch.tensor([0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001, 0xFFFF])
    around_bfloat16 = (every[:, None] << 16) | ends
    halves = torch.arange(0x33000000 - 0x2000, 0x47900000, 0x1000)[:, None] + torch.tensor([-1, 0, 1])
    around_float16 = torch.cat([halves, halves | 0x80000000])
    bits = torch.cat([around_bfloat16.flatten(), around_float16.flatten()])
    return bits.to(torch.uint32).view(torch.float32)


@pytest.mark.parametrize("kind", [BFLOAT16, FLOAT16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("width", [GEOMETRY.lanes, 1])
def test_rounding_is_that_of_torch(kind: int, width: int) -> None:
    source = awkward_floats()
    found = elementwise(ROUNDING[kind], source[: source.numel() // PANEL * PANEL].numpy(), width=width)
    wanted = source[: found.size].to(KINDS[kind])
    nan = wanted.isnan().numpy()
    assert nan.sum() > 1000
    assert torch.from_numpy(found).view(KINDS[kind])[nan].isnan().all()
    assert np.array_equal(found[~nan], array(wanted)[~nan])


@pytest.mark.parametrize("size", [PANEL, 3 * PANEL])
def test_the_sum_of_zero_times_tells_what_is_not_finite(size: int) -> None:
    found = np.zeros(1, dtype=np.float32)
    largest = np.full(size, np.finfo(np.float32).max)
    native("headwise_times_zero")(largest, size, found)
    assert found[0] == 0.0
    for place in range(size):
        for odd in (np.nan, np.inf, -np.inf):
            given = largest.copy()
            given[place] = odd
            native("headwise_times_zero")(given, size, found)
            assert np.isnan(found[0]), (place, odd)
