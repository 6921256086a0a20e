from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise import masks
from headwise.errors import ArgumentError
from headwise.masks import (
    Causal,
    CausalFrom,
    Dense,
    Lengths,
    Packed,
    Prefix,
    Sizes,
    Window,
    broadcast_shape,
    resolve,
)


def drawn(mask: Any, seq_len: int, kv_len: int, batch: int = 1) -> list[str]:
    """Return what a structured mask lets through: a row of 1 and 0 per query, batch after batch."""
    found = resolve(mask, Sizes(batch, 1, seq_len, kv_len))
    assert not found.dense
    visible = np.broadcast_to(found.intervals.visible(kv_len), (batch, seq_len, kv_len))
    return ["".join("01"[int(seen)] for seen in row) for row in visible.reshape(-1, kv_len)]


def test_causal_aligns_to_the_lower_right_by_default() -> None:
    assert drawn(Causal(), 2, 5) == ["11110", "11111"]
    assert drawn(Causal(), 3, 3) == ["100", "110", "111"]
    assert drawn(Causal(), 5, 2) == ["00", "00", "00", "10", "11"]
    assert drawn(Causal(), 1, 5) == ["11111"]


def test_causal_upper_left_is_the_other_convention() -> None:
    assert drawn(Causal(align="upper_left"), 2, 5) == ["10000", "11000"]
    assert drawn(Causal(align="upper_left"), 3, 3) == drawn(Causal(), 3, 3)
    assert drawn(Causal(align="upper_left"), 5, 2) == ["10", "11", "11", "11", "11"]


def test_window_counts_neighbours_without_the_query_itself() -> None:
    assert drawn(Window(left=1, right=0), 4, 4) == ["1000", "1100", "0110", "0011"]
    assert drawn(Window(left=0, right=0), 3, 3) == ["100", "010", "001"]
    assert drawn(Window(left=0, right=2), 3, 5) == ["00111", "00011", "00001"]
    assert drawn(Window(left=0, right=2, align="upper_left"), 3, 5) == ["11100", "01110", "00111"]
    assert drawn(Window(left=1), 3, 3) == ["111", "111", "011"]
    assert drawn(Window(), 2, 3) == ["111", "111"]


def test_window_of_n_is_n_keys_with_the_query_itself() -> None:
    assert Window.of(3) == Window(left=2, right=0)
    assert drawn(Window.of(3), 2, 5) == ["01110", "00111"]
    assert drawn(Window.of(1), 2, 2) == ["10", "01"]


def test_a_window_wider_than_any_integer_sees_everything() -> None:
    assert drawn(Window(left=10**30, right=10**30), 2, 3) == ["111", "111"]


def test_lengths_hide_padding_on_either_side() -> None:
    assert drawn(Lengths([0, 2]), 2, 3, batch=2) == ["000", "000", "110", "110"]
    assert drawn(Lengths([0, 2], padding="left"), 1, 3, batch=2) == ["000", "011"]


def test_packed_documents_do_not_see_each_other() -> None:
    assert drawn(Packed([2, 0, 1]), 3, 3) == ["110", "110", "001"]
    assert drawn(Packed([1, 2]), 4, 4) == ["1000", "0110", "0110", "0000"]
    assert drawn(Packed([1, 2], key_lengths=[3, 1]), 3, 4) == ["1110", "0001", "0001"]


def test_prefix_is_seen_by_all_and_the_rest_is_causal() -> None:
    assert drawn(Prefix(2), 4, 4) == ["1100", "1100", "1110", "1111"]
    assert drawn(Prefix([0, 3]), 1, 3, batch=2) == ["111", "111"]
    assert drawn(Prefix([0, 3], align="upper_left"), 2, 4, batch=2) == ["1000", "1100", "1110", "1110"]


def test_causal_from_starts_each_batch_element_at_its_own_key() -> None:
    assert drawn(CausalFrom([2, 0]), 2, 4, batch=2) == ["1110", "1111", "1000", "1100"]
    assert drawn(CausalFrom([1, 0, 4], counts=[2, 1, 0]), 2, 4, batch=3) == [
        *("1100", "1110"),
        *("1000", "0000"),
        *("0000", "0000"),
    ]
    assert drawn(CausalFrom([3, 1], window=2), 2, 5, batch=2) == ["00110", "00011", "11000", "01100"]
    assert drawn(CausalFrom([2], counts=[1], window=1), 2, 3) == ["001", "000"]
    assert drawn(CausalFrom([2], window=10**30), 1, 4) == ["1110"]
    assert CausalFrom([], counts=[]).intervals(0, 2, 3).stop.shape == (0, 2)


def test_causal_from_agrees_with_causal_and_window_where_all_are_equally_long() -> None:
    for seq_len, kv_len in ((1, 5), (2, 5), (5, 5), (0, 3)):
        first = [kv_len - seq_len] * 2
        assert drawn(CausalFrom(first), seq_len, kv_len, batch=2) == drawn(Causal(), seq_len, kv_len, batch=2)
        assert drawn(CausalFrom(first, window=2), seq_len, kv_len, batch=2) == drawn(
            Window.of(2), seq_len, kv_len, batch=2
        )


def test_causal_from_combines() -> None:
    both = CausalFrom([1, 2]) & Lengths([3, 3], padding="left")
    assert drawn(both, 1, 4, batch=2) == ["0100", "0110"]


def test_masks_combine_by_intersection() -> None:
    both = Causal() & Lengths([2, 3], padding="left")
    assert drawn(both, 3, 3, batch=2) == ["000", "010", "011", "100", "110", "111"]
    assert drawn(Causal() & Window(left=1) & Packed([2, 1]), 3, 3) == ["100", "110", "001"]


def test_a_plain_tensor_on_either_side_of_and_becomes_dense() -> None:
    for tensor in (np.ones((2, 2), dtype=bool), torch.ones(2, 2, dtype=torch.bool)):
        for both in (tensor & Causal(), Causal() & tensor):
            found = resolve(both, Sizes(1, 1, 2, 2))
            assert [part.tensor is tensor for part in found.dense] == [True]
            assert found.intervals.stop.tolist() == [[1, 2]]


def test_resolved_intervals_lie_within_the_keys() -> None:
    found = resolve(Window(left=1, right=1), Sizes(1, 1, 7, 3)).intervals
    assert found.start.tolist() == [[0, 0, 0, 0, 0, 0, 1]]
    assert found.stop.tolist() == [[0, 0, 0, 1, 2, 3, 3]]


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    seq_len=st.integers(0, 7),
    kv_len=st.integers(0, 7),
    left=st.none() | st.integers(0, 9),
    right=st.none() | st.integers(0, 9),
    align=st.sampled_from(["lower_right", "upper_left"]),
    lengths=st.lists(st.integers(0, 7), min_size=2, max_size=2),
    padding=st.sampled_from(["left", "right"]),
)
def test_intervals_are_the_definition_of_each_kind(
    *,
    seq_len: int,
    kv_len: int,
    left: int | None,
    right: int | None,
    align: masks.Align,
    lengths: list[int],
    padding: masks.Padding,
) -> None:
    lengths = [min(length, kv_len) for length in lengths]
    mask = Causal(align) & Window(left, right, align) & Lengths(lengths, padding) & Prefix(lengths, align)
    found = resolve(mask, Sizes(2, 1, seq_len, kv_len)).intervals
    assert found.start.min(initial=0) >= 0
    assert found.stop.max(initial=0) <= kv_len
    assert (found.start <= found.stop).all()
    visible = np.broadcast_to(found.visible(kv_len), (2, seq_len, kv_len))
    for b, i, j in np.ndindex(2, seq_len, kv_len):
        own = i + (kv_len - seq_len if align == "lower_right" else 0)
        near = (left is None or j >= own - left) and (right is None or j <= own + right)
        real = j < lengths[b] if padding == "right" else j >= kv_len - lengths[b]
        assert visible[b, i, j] == (j <= own and near and real), (b, i, j)


def test_positions_past_32_bits_are_exact() -> None:
    found = Causal().intervals(1, 3, 2**33)
    assert found.stop.tolist() == [[2**33 - 2, 2**33 - 1, 2**33]]
    assert found.stop.dtype == np.int64


def test_shapes_by_rank_and_axes() -> None:
    sizes = Sizes(batch=2, num_heads=3, seq_len=5, kv_len=7)
    for shape, axes, expected in (
        ((5, 7), None, (1, 1, 5, 7)),
        ((1, 7), None, (1, 1, 1, 7)),
        ((2, 5, 7), None, (2, 1, 5, 7)),
        ((2, 1, 7), None, (2, 1, 1, 7)),
        ((3, 5, 7), None, (1, 3, 5, 7)),
        ((1, 5, 7), None, (1, 1, 5, 7)),
        ((3, 5, 7), "hqk", (1, 3, 5, 7)),
        ((2, 3, 5, 7), None, (2, 3, 5, 7)),
        ((1, 3, 1, 7), None, (1, 3, 1, 7)),
    ):
        assert broadcast_shape("mask", shape, axes, sizes) == expected


def test_a_rank_3_mask_that_reads_two_ways_is_refused_unless_it_says_which() -> None:
    sizes = Sizes(batch=3, num_heads=3, seq_len=5, kv_len=7)
    tensor = np.ones((3, 5, 7), dtype=bool)
    with pytest.raises(ArgumentError, match=r"size 3 is equally batch and num_heads; say which with Dense"):
        resolve(tensor, sizes)
    assert Dense(tensor, axes="bqk").broadcast_shape(sizes) == (3, 1, 5, 7)
    assert Dense(tensor, axes="hqk").broadcast_shape(sizes) == (1, 3, 5, 7)
    one = Sizes(batch=1, num_heads=1, seq_len=5, kv_len=7)
    assert Dense(tensor[:1]).broadcast_shape(one) == (1, 1, 5, 7)


BOOLEAN = np.ones((2, 2), dtype=bool)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Causal("top_left"), r"align='top_left' is unknown; allowed are 'lower_right', 'upper_left'"),
        (lambda: Lengths([1], padding="middle"), r"padding='middle' is unknown; allowed are 'right', 'left'"),
        (lambda: Window(left=-1), r"Window left=-1 must be at least 0"),
        (lambda: Window(right=1.5), r"Window right=1.5 is a float; pass an integer"),
        (lambda: Window.of(0), r"Window.of size=0 must be at least 1"),
        (lambda: Lengths([1, -2]), r"an entry of lengths=-2 must be at least 0"),
        (lambda: Lengths(3), r"lengths is 3; it must be a list of integers, such as \[3\]"),
        (lambda: Prefix(True), r"Prefix lengths=True is a bool; pass an integer"),
        (
            lambda: Packed([1, 2], key_lengths=[3]),
            r"Packed has 2 lengths and 1 key_lengths; give one of each",
        ),
        (lambda: Dense(BOOLEAN, axes="kq"), r"axes='kq' is unknown; allowed are 'qk', 'bqk', 'hqk', 'bhqk'"),
        (lambda: Dense(BOOLEAN, axes="bqk"), r"axes='bqk' names 3 axes, but the mask has rank 2"),
        (
            lambda: Dense(BOOLEAN[0]),
            r"mask has rank 1, shape \(2,\); .* for one length per batch element use Lengths",
        ),
        (lambda: Dense(np.ones((2, 2), dtype=int)), r"mask has dtype int64; .* pass mask.bool\(\)"),
        (lambda: Causal() & 3, r"mask is a int; allowed are None, a mask object such as Causal\(\)"),
        (
            lambda: Packed([1], key_lengths=[2]) & Causal(),
            r"Packed with key_lengths cannot be combined with Causal: its documents are rectangles",
        ),
        (
            lambda: drawn(Lengths([1]), 2, 2, batch=3),
            r"lengths has 1 entries, but batch is 3; give one for each",
        ),
        (lambda: drawn(Lengths([3]), 2, 2), r"lengths has an entry of 3, but there are only kv_len=2 keys"),
        (lambda: drawn(Prefix(3), 2, 2), r"lengths has an entry of 3, but there are only kv_len=2 keys"),
        (lambda: drawn(Packed([2, 1]), 2, 2), r"Packed lengths sum to 3, more than seq_len=2"),
        (
            lambda: drawn(Packed([1], key_lengths=[3]), 1, 2),
            r"Packed key_lengths sum to 3, more than kv_len=2",
        ),
        (lambda: CausalFrom([-1]), r"an entry of first=-1 must be at least 0"),
        (lambda: CausalFrom([1], window=0), r"CausalFrom window=0 must be at least 1"),
        (
            lambda: CausalFrom([1, 2], counts=[1]),
            r"CausalFrom has 2 entries in first and 1 in counts; give one of each for each batch element",
        ),
        (
            lambda: drawn(CausalFrom([1]), 1, 4, batch=2),
            r"first has 1 entries, but batch is 2; give one for each",
        ),
        (
            lambda: drawn(CausalFrom([1], counts=[3]), 2, 4),
            r"counts has an entry of 3, but there are only seq_len=2 queries",
        ),
        (
            lambda: drawn(CausalFrom([0, 3]), 2, 4, batch=2),
            r"CausalFrom has 2 queries of batch element 1 from key 3 on, but there are only kv_len=4 keys",
        ),
        (
            lambda: Packed([1], key_lengths=[2]) & CausalFrom([1]),
            r"Packed with key_lengths cannot be combined with CausalFrom",
        ),
        (
            lambda: drawn(Packed([1]), 1, 4),
            r"as many keys as queries, but seq_len=1 and kv_len=4; give key_lengths",
        ),
        (
            lambda: resolve(BOOLEAN, Sizes(1, 1, 2, 3)),
            r"mask has shape \(2, 2\), but kv_len is 3, not 2; expected \(seq_len=2, kv_len=3\)",
        ),
        (
            lambda: broadcast_shape("bias", (4,), None, Sizes(1, 1, 2, 3)),
            r"bias has rank 1, shape \(4,\); allowed are rank 2",
        ),
    ],
)
def test_what_cannot_be_a_mask_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_counts_may_come_as_an_array_or_tensor() -> None:
    assert Lengths(torch.tensor([1, 2])) == Lengths(np.array([1, 2])) == Lengths([1, 2])
    assert Prefix(np.int64(2)) == Prefix(2)
    assert CausalFrom(torch.tensor([1]), counts=np.array([2])) == CausalFrom([1], counts=(2,))
