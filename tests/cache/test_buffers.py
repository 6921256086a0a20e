"""The memory behind a cache: large pages for large buffers, plain tensors for all else."""

import errno
import mmap
import re
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from headwise import KVCache, attention
from headwise.cache.buffers import LARGE_BYTES, unwritten


def asks_for_large_pages(tensor: torch.Tensor) -> bool:
    """Return whether Linux notes that wish for the memory a tensor begins in."""
    for region in re.split(r"\n(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text()):
        start, stop = (int(end, 16) for end in region.split()[0].split("-"))
        if start <= tensor.data_ptr() < stop:
            (flags,) = re.findall(r"VmFlags: (.*)", region)
            return "hg" in flags.split()
    raise AssertionError("no memory at that address")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_large_buffer_asks_for_large_pages(dtype: torch.dtype) -> None:
    like = torch.zeros(1, dtype=dtype)
    heads = LARGE_BYTES // (64 * 256 * like.element_size())
    large = unwritten((1, heads, 256, 64), like)
    assert (large.shape, large.dtype, large.is_contiguous()) == ((1, heads, 256, 64), dtype, True)
    assert large.data_ptr() % 64 == 0
    assert asks_for_large_pages(large)


def test_a_small_buffer_is_what_torch_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mmap, "mmap", lambda *_, **__: pytest.fail("asked Linux for memory"))
    assert unwritten((LARGE_BYTES // 4 - 1,), torch.zeros(1)).is_contiguous()


def test_a_kernel_without_large_pages_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(mmap.mmap):
        def madvise(self, *_given: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Plain)
    buffer = unwritten((LARGE_BYTES // 4,), torch.zeros(1)).fill_(3.0)
    assert not asks_for_large_pages(buffer)
    assert buffer.sum() == 3 * LARGE_BYTES // 4


def test_other_devices_and_traces_have_their_own_memory() -> None:
    assert unwritten((LARGE_BYTES,), torch.zeros(1, device="meta")).device.type == "meta"
    with FakeTensorMode() as mode:
        like = mode.from_tensor(torch.zeros(1))
        assert type(unwritten((LARGE_BYTES,), like)) is type(like)


def test_a_cache_that_grows_into_large_pages_keeps_its_keys() -> None:
    keys, values = torch.randn(2, 1, 5, 2053, 128).unbind()
    cache = KVCache()
    for piece in range(0, 2053, 411):
        part = slice(piece, piece + 411)
        cache.append(keys[:, :, part], values[:, :, part])
    assert asks_for_large_pages(cache.key)
    assert torch.equal(cache.key, keys)
    assert torch.equal(cache.value, values)
    query = torch.randn(1, 15, 1, 128)
    assert torch.equal(attention(query, cache.key, cache.value), attention(query, keys, values))
