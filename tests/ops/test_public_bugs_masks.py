"""Faults that users have reported of masks and of rows that see nothing, each with the right value.

`repository#n` is an issue or pull request on GitHub. What belongs to the module is in `tests/nn`.
"""

import math
import warnings

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.errors import ArgumentError
from headwise.masks import Causal, Dense, Lengths

from ..naive import gradients
from .ways import Way, differentiable_ways, every_way, weights_of

LOWEST = torch.finfo(torch.float32).min


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


# --- rows that see nothing, and NaN


@every_way
def test_a_boolean_row_of_false_is_zero_not_nan(way: Way) -> None:
    # pytorch#103963, #103749, #41508; onnx#8054; mlx PR#2608
    mask = torch.tensor([[True, True], [False, False]])
    found = way(torch.randn(1, 2, 2, 3), torch.randn(1, 2, 2, 3), torch.randn(1, 2, 2, 3), mask=mask)
    assert (found.output[:, :, 1] == 0).all()
    assert found.output[:, :, 0].isfinite().all()


@differentiable_ways
def test_an_empty_row_makes_no_gradient_nan_not_even_its_own(way: Way) -> None:
    # pytorch#41508: one query row without keys, and the gradients of the whole batch were NaN
    mask = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]])
    made = [torch.randn(2, 1, 2, 3) for _ in range(3)]
    found = gradients(lambda *leaves: way(*leaves, mask=mask).output, made, torch.ones(2, 1, 2, 3))
    assert (found[0][:, :, 1] == 0).all()
    assert torch.equal(found[2], torch.tensor([1.0, 0.0])[:, None].expand(2, 1, 2, 3))


@every_way
def test_a_row_of_the_lowest_number_is_its_softmax_and_not_a_mean(way: Way) -> None:
    # pytorch#110213, #109517: NaN on one device, the mean of the values on another
    query, key = torch.randn(1, 1, 2, 3), torch.randn(1, 1, 4, 3)
    for bias in (torch.full((2, 4), LOWEST), torch.full((2, 4), -1e9)):
        torch.testing.assert_close(weights_of(way, query, key, mask=bias), weights_of(way, query, key))


@every_way
def test_leading_keys_of_the_lowest_number_get_no_weight(way: Way) -> None:
    # pytorch#109517: NaN where the first block of keys was masked with finfo.min
    bias = zeros(1, 600)
    bias[:, :550] = LOWEST
    found = weights_of(way, torch.randn(1, 1, 1, 8), torch.randn(1, 1, 600, 8), mask=bias)
    assert (found[..., :550] == 0).all()
    assert found.sum().item() == pytest.approx(1.0)


def test_dropout_with_an_empty_row_is_zero_with_finite_gradients() -> None:
    # pytorch#152028: NaN with masks and dropout together
    mask = torch.tensor([[True, False], [False, False]])
    made = [torch.randn(1, 1, 2, 3) for _ in range(3)]
    found = ops.attention(*made, mask=mask, dropout=0.5)
    assert (found[:, :, 1] == 0).all()
    for gradient in gradients(
        lambda *leaves: ops.attention(*leaves, mask=mask, dropout=0.5), made, torch.ones_like(found)
    ):
        assert gradient.isfinite().all()


@every_way
def test_left_padding_changes_no_real_row(way: Way) -> None:
    # transformers#38690, #31035, #47651: left-padded batches gave NaN or garbage
    real = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    padded = [torch.cat([torch.full((1, 2, 2, 4), torch.nan), tensor], dim=2) for tensor in real]
    found = way(*padded, mask=Causal() & Lengths([3], padding="left")).output
    torch.testing.assert_close(found[:, :, 2:], way(*real, mask=Causal()).output)
    assert (found[:, :, :2] == 0).all()


@every_way
def test_logsumexp_of_an_empty_row_is_minus_infinity_so_that_parts_merge(way: Way) -> None:
    # flash-attention PR#978, flashinfer#4484, #4452: +inf, finite, or 0.0 broke merging
    mask = torch.full((1, 3), -torch.inf)
    empty = way(torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4), mask=mask)
    assert empty.logsumexp.item() == -torch.inf
    assert (empty.output == 0).all()
    other = way(torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 4))
    merged = ops.merge([empty.output, other.output], [empty.logsumexp, other.logsumexp])
    assert torch.equal(merged.output, other.output)
    both = ops.merge([empty.output] * 2, [empty.logsumexp] * 2)
    assert (both.output == 0).all()
    assert both.logsumexp.item() == -torch.inf


@every_way
def test_sequences_of_length_zero_are_zero(way: Way) -> None:
    # pytorch#81077
    made = [torch.randn(2, 1, 3, 4) for _ in range(3)]
    found = way(*made, mask=Lengths([0, 3])).output
    assert (found[0] == 0).all()
    torch.testing.assert_close(found[1:], way(*(tensor[1:] for tensor in made)).output)


# --- polarity, shape and dtype of masks


@every_way
def test_row_zero_of_a_causal_call_depends_on_key_zero_only(way: Way) -> None:
    # LLMs-from-scratch#1061, pytorch#170400: triu(...) given where True means attend
    value = torch.randn(1, 1, 8, 4)
    found = way(torch.randn(1, 1, 8, 4), torch.randn(1, 1, 8, 4), value, mask=Causal()).output
    assert torch.equal(found[:, :, 0], value[:, :, 0])


@every_way
def test_ones_in_a_float_mask_are_added_and_ones_in_a_boolean_mask_show(way: Way) -> None:
    # pytorch#21518: tril(ones) as a float mask adds 1 to the past and hides nothing
    same = torch.ones(1, 1, 8, 4)
    row = weights_of(way, same, same, mask=torch.ones(8, 8).tril())[0, 0, 0]
    assert row[0].item() == pytest.approx(math.e / (math.e + 7))
    assert row[1].item() == pytest.approx(1 / (math.e + 7))
    row = weights_of(way, same, same, mask=torch.ones(8, 8).tril().bool())[0, 0, 0]
    assert row.tolist() == [1.0, *[0.0] * 7]


@every_way
def test_zeros_and_ones_of_an_integer_mask_are_refused(way: Way) -> None:
    # the same trap as pytorch#21518 in a third dtype
    with pytest.raises(ArgumentError, match=r"mask has dtype int64; .* pass mask.bool\(\)"):
        way(*[torch.randn(1, 1, 8, 4)] * 3, mask=torch.ones(8, 8, dtype=torch.int64))


@every_way
def test_a_mask_of_batch_seq_kv_holds_for_every_head(way: Way) -> None:
    # pytorch#64706, #28884, #29520: not accepted; #97409, #97605: crashed in some modes
    query, key = torch.randn(2, 3, 2, 4), torch.randn(2, 3, 2, 4)
    mask = torch.tensor([[[True, False]] * 2, [[False, True]] * 2])
    found = weights_of(way, query, key, mask=mask)
    assert torch.equal(found, mask[:, None].expand_as(found).float())


@every_way
def test_a_rank_3_mask_is_never_read_as_per_head_without_saying_so(way: Way) -> None:
    # onnx PR#8108: rank 3 read as (batch, seq, kv) by one and (head, seq, kv) by others, silently if equal
    made = [torch.randn(2, 2, 3, 4) for _ in range(3)]
    mask = torch.rand(2, 3, 3) < 0.5
    with pytest.raises(ArgumentError, match="equally batch and num_heads"):
        way(*made, mask=mask)
    per_head, per_batch = (way(*made, mask=Dense(mask, axes=axes)).output for axes in ("hqk", "bqk"))
    assert torch.equal(per_head, way(*made, mask=mask[None].expand(2, 2, 3, 3)).output)
    assert torch.equal(per_batch, way(*made, mask=mask[:, None].expand(2, 2, 3, 3)).output)


@every_way
@pytest.mark.parametrize("shape", [(1, 1, 5), (1, 5), (1, 1, 1, 5), (2, 1, 1, 5), (1, 3, 1, 1), (4, 1)])
def test_any_mask_that_broadcasts_is_accepted(way: Way, shape: tuple[int, ...]) -> None:
    # pytorch#120810, #177482: documented shapes and accepted shapes differed
    made = torch.randn(2, 3, 4, 2), torch.randn(2, 3, 5, 2), torch.randn(2, 3, 5, 2)
    mask = torch.randn(shape)
    full = mask.expand(2, 3, 4, 5) if mask.dim() != 3 else mask[:, None].expand(2, 3, 4, 5)
    torch.testing.assert_close(way(*made, mask=mask).output, way(*made, mask=full).output)


@every_way
def test_two_masks_of_the_lowest_number_add_up_without_nan(way: Way) -> None:
    # transformers PR#17306, Automodel PR#2658: finfo.min + finfo.min is -inf
    query, key = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 3, 4)
    causal, padding = torch.full((2, 3), LOWEST).triu(2), torch.tensor([[LOWEST, 0.0, 0.0]])
    found = weights_of(way, query, key, mask=Dense(causal) & Dense(padding))
    expected = weights_of(way, query, key, mask=(causal == 0) & (padding == 0))
    torch.testing.assert_close(found, expected)


@every_way
def test_the_lowest_float16_and_a_little_less_is_no_infinity(way: Way) -> None:
    # transformers PR#17306: finfo(float16).min + (-16) overflowed in float16
    lowest = torch.full((1, 3), torch.finfo(torch.float16).min, dtype=torch.float16)
    query, key = torch.randn(1, 1, 1, 4).half(), torch.randn(1, 1, 3, 4).half()
    found = weights_of(way, query, key, mask=lowest, bias=torch.full((1, 3), -16.0).half())
    torch.testing.assert_close(found, weights_of(way, query, key))


def test_masks_of_equal_dtype_warn_of_nothing() -> None:
    # pytorch#95702, #96103, #100469: false warnings about mismatched dtypes
    made = [torch.randn(1, 1, 3, 4) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ops.attention(*made, mask=Dense(torch.zeros(3, 3)) & Dense(torch.zeros(1, 3)), bias=torch.zeros(3, 3))
        ops.attention(*made, mask=Causal() & torch.ones(3, 3, dtype=torch.bool))
