"""Faults that users of attention operators have reported, each with the right value on a small input.

`repository#n` is an issue or pull request on GitHub. What belongs to the module is in `tests/nn`.
"""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.masks import Causal, Dense, Lengths, Packed, Window

from ..naive import gradients
from .ways import Way, differentiable_ways, every_way, over

LOWEST = torch.finfo(torch.float32).min


def weights_of(way: Way, query: Tensor, key: Tensor, **options: object) -> Tensor:
    """Return the weights that `way` uses: its output where the value is the identity."""
    identity = torch.eye(key.shape[2], dtype=key.dtype).expand(*key.shape[:3], key.shape[2])
    parts = identity.split(256, dim=3)  # as wide as the CPU kernel goes
    return torch.cat([way(query, key, part, **options).output for part in parts], dim=3)


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


# --- causal order, caches, windows


@every_way
def test_one_query_with_a_cache_sees_the_whole_cache(way: Way) -> None:
    # pytorch#108108, #103082, #144858: aligned to the upper left, it saw key 0 and nothing else
    query, key = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 5, 4)
    assert torch.equal(weights_of(way, query, key, mask=Causal()), weights_of(way, query, key))


@every_way
def test_causal_rectangles_in_either_alignment(way: Way) -> None:
    # flash-attention#951, #282, #1778; SageAttention PR#372: one alignment surprised half of the users
    def seen(seq_len: int, kv_len: int, mask: Causal) -> list[list[int]]:
        weights = weights_of(way, zeros(1, 1, seq_len, 3), zeros(1, 1, kv_len, 3), mask=mask)
        return (weights[0, 0] > 0).int().tolist()

    assert seen(2, 5, Causal()) == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert seen(5, 2, Causal()) == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]
    assert seen(2, 5, Causal("upper_left")) == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


@every_way
def test_token_by_token_equals_the_whole(way: Way) -> None:
    # x-transformers#187, #311: cached and uncached differed by up to 0.5
    made = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    whole = way(*made, mask=Causal()).output
    for step in range(6):
        query, key, value = (
            made[0][:, :, step : step + 1],
            made[1][:, :, : step + 1],
            made[2][:, :, : step + 1],
        )
        found = way(query, key, value, mask=Causal()).output
        torch.testing.assert_close(found, whole[:, :, step : step + 1])


@differentiable_ways
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"sinks": zeros(1)}, {"bias": zeros(4, 4)}])
def test_no_row_depends_on_a_later_key_whatever_else_is_asked(way: Way, options: dict[str, object]) -> None:
    # keras#23038, xformers#103, pytorch#99282: causal order dropped when dropout, scores or a mask were there
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return way(query, key, value, mask=Causal(), **options).output

    made = [torch.randn(1, 1, 4, 3) for _ in range(3)]
    for row in range(4):
        upstream = zeros(1, 1, 4, 3)
        upstream[:, :, row] = 1.0
        _, key, value = gradients(attend, made, upstream)
        assert (key[:, :, row + 1 :] == 0).all()
        assert (value[:, :, row + 1 :] == 0).all()


def test_dropout_leaves_causal_order_in_place() -> None:
    # keras#23038
    found = ops.attention(
        zeros(1, 1, 5, 5), zeros(1, 1, 5, 5), torch.eye(5)[None, None], mask=Causal(), dropout=0.2
    )
    assert torch.equal(found, found.tril())


@every_way
def test_causal_needs_no_tensor_and_composes_with_padding(way: Way) -> None:
    # pytorch#100709, #118972, #172338, #101531: the flag demanded a mask here and forbade one there
    weights = weights_of(way, zeros(2, 1, 3, 4), zeros(2, 1, 3, 4), mask=Causal() & Lengths([2, 3]))
    assert (weights[:, 0] > 0).int().tolist() == [
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]],
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
    ]


@every_way
def test_a_window_of_n_is_n_keys_the_current_one_among_them(way: Way) -> None:
    # transformers#29623, #39408, vllm#3385, Megatron-Bridge PR#2656, onnxruntime PR#25927: off by one
    weights = weights_of(way, zeros(1, 1, 6, 3), zeros(1, 1, 6, 3), mask=Window.of(3))[0, 0]
    assert (weights[5] > 0).int().tolist() == [0, 0, 0, 1, 1, 1]
    same = weights_of(way, zeros(1, 1, 6, 3), zeros(1, 1, 6, 3), mask=Window(left=2, right=0))[0, 0]
    assert torch.equal(same, weights)


# --- heads, scale and layout


@every_way
def test_kv_heads_are_grouped_and_not_tiled(way: Way) -> None:
    # onnx PR#7274, jax-js PR#180, axlearn PR#842, ml-hypercloning#1
    value = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1)
    found = way(torch.randn(1, 4, 1, 1), zeros(1, 2, 1, 1), value).output
    assert found.flatten().tolist() == [0.0, 0.0, 1.0, 1.0]


@every_way
@pytest.mark.parametrize("ratio", [1, 4, 7])
def test_every_kv_head_is_read_by_as_many_query_heads(way: Way, ratio: int) -> None:
    # ONNXim PR#34: index h / num_kv_heads left some KV heads unread and went past the end
    value = torch.arange(3.0).reshape(1, 3, 1, 1)
    found = way(torch.randn(1, 3 * ratio, 1, 1), zeros(1, 3, 1, 1), value).output.flatten().tolist()
    assert found == [0.0] * ratio + [1.0] * ratio + [2.0] * ratio


@every_way
def test_a_tensor_of_batch_seq_head_width_is_refused_where_it_shows(way: Way) -> None:
    # prime-rl PR#2681: heads repeated along the sequence, the layout being another
    query, key = torch.randn(2, 5, 4, 3), torch.randn(2, 7, 2, 3)
    with pytest.raises(ArgumentError, match=r"is the layout \[batch, heads, length, width\]\?"):
        way(query, key, key)


@every_way
def test_scale_comes_from_the_head_and_neither_from_the_model_nor_the_head_count(way: Way) -> None:
    # vit-pytorch#65, DL4Proteins#12, tt-metal PR#56789
    query = torch.ones(1, 8, 1, 64)
    assert way(query, query, query).logsumexp.flatten().tolist() == [8.0] * 8


@every_way
def test_batch_elements_do_not_see_each_other(way: Way) -> None:
    # OmDet#19, pytorch#122959, #63560: attention ran across the batch in a released model
    made = [torch.randn(2, 2, 5, 4) for _ in range(3)]
    both = way(*made, mask=Causal()).output
    for index in range(2):
        alone = way(*(tensor[index : index + 1] for tensor in made), mask=Causal()).output
        torch.testing.assert_close(both[index : index + 1], alone)


@every_way
@pytest.mark.parametrize("sizes", [(84, 3, 3, 64), (2, 7, 4, 8)])
def test_permuted_projections_equal_contiguous_ones(way: Way, sizes: tuple[int, ...]) -> None:
    # pytorch#112577, #181133 (off by 3.6), ROCm/pytorch#3230, FlagGems#5896, torch-spyre#4331
    permuted = [torch.randn(sizes).permute(0, 2, 1, 3) for _ in range(3)]
    found = way(*permuted).output
    torch.testing.assert_close(found, way(*(tensor.contiguous() for tensor in permuted)).output)


@differentiable_ways
def test_the_backward_pass_takes_any_strides(way: Way) -> None:
    # flash-attention#355, pytorch#133671: wrong query gradients for a non-contiguous incoming gradient
    made = [torch.randn(2, 3, 5, 4) for _ in range(3)]
    upstream = torch.randn(4, 5, 3, 2).permute(3, 2, 1, 0)
    found = gradients(lambda *leaves: way(*leaves).output, made, upstream)
    expected = gradients(lambda *leaves: way(*leaves).output, made, upstream.contiguous())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


# --- numbers


@every_way
def test_float16_scores_past_65504_are_exact(way: Way) -> None:
    # pytorch#60939, #110505: q.k overflowed to NaN
    large, value = torch.full((1, 1, 2, 64), 300.0).half(), torch.tensor([1.0, 3.0]).half()
    found = way(large, large, value.reshape(1, 1, 2, 1).expand(1, 1, 2, 64)).output
    assert (found == 2.0).all()


@every_way
def test_minus_1e9_in_float16_input_hides_what_it_would_in_float32(way: Way) -> None:
    # flax#982, keras PR#17571, gpt-2 PR#122: the constant overflowed float16
    bias = torch.tensor([[0.0, -1e9]])
    found = weights_of(way, torch.randn(1, 1, 1, 4).half(), torch.randn(1, 1, 2, 4).half(), mask=bias)
    assert found.flatten().tolist() == [1.0, 0.0]


@every_way
def test_a_softcap_does_not_raise_hidden_scores(way: Way) -> None:
    # onnx#7865, onnxruntime PR#28379: -inf became -cap, and the hidden key got 0.2689
    value = torch.tensor([10.0, 1000.0]).reshape(1, 1, 2, 1)
    for mask in (torch.tensor([[True, False]]), torch.tensor([[0.0, -torch.inf]])):
        found = way(zeros(1, 1, 1, 1), zeros(1, 1, 2, 1), value, mask=mask, softcap=1.0)
        assert found.output.item() == 10.0


@every_way
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_one_key_returns_its_value_whatever_its_score(way: Way, dtype: torch.dtype) -> None:
    # pytorch#121558: bfloat16 inputs of 133120 gave NaN
    large = torch.full((1, 1, 1, 8), 133120.0, dtype=dtype)
    value = torch.randn(1, 1, 1, 8).to(dtype)
    assert torch.equal(way(large, large, value).output, value)


@every_way
@pytest.mark.parametrize("mask", [Causal("upper_left"), torch.tensor([[True, False], [True, False]])])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_unused_cache_slots_may_hold_anything(way: Way, mask: Causal | Tensor, poison: float) -> None:
    # pytorch#101967, flash-attention#1745, #2374: 0 x NaN in hidden keys and values poisoned the output
    query, key, value = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4)
    key[:, :, 1], value[:, :, 1] = poison, poison
    found = way(query, key, value, mask=mask).output
    assert torch.equal(found[:, :, 0], value[:, :, 0])


@every_way
@pytest.mark.parametrize("kv_len", [1, 4, 40])
def test_nan_in_is_nan_out_and_never_zero(way: Way, kv_len: int) -> None:
    # pytorch#141128: one release turned NaN into 0; torch 2.13 still does for a NaN query and few keys
    query, key, value = torch.randn(1, 1, 3, 8), torch.randn(1, 1, kv_len, 8), torch.randn(1, 1, kv_len, 8)
    query[:, :, 1] = torch.nan
    found = way(query, key, value).output
    assert found[:, :, 1].isnan().all()
    assert found[:, :, [0, 2]].isfinite().all()


@over(["torch", "plain torch", "cpu"])
def test_scores_that_overflow_are_nan_and_never_zero(way: Way) -> None:
    # found on torch 2.13: the fused kernel returns 0 for them where there are few keys
    query, key = torch.full((1, 1, 2, 8), 1e20), torch.full((1, 1, 4, 8), 1e20)
    assert way(query, key, torch.randn(1, 1, 4, 8)).output.isnan().all()


def test_observed_weights_are_those_before_dropout_and_sum_to_one() -> None:
    # pytorch#42929, #27968: returned weights summed to more than 1 in training
    made = [torch.randn(1, 2, 3, 4) for _ in range(3)]
    weights = ops.observe(*made, collect=Collect(weights=True)).evidence.weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 3))


@every_way
def test_empty_tensors_crash_nothing(way: Way) -> None:
    # pytorch#141218, #174939, flash-attention PR#2470, pytorch PR#195812: SIGFPE or abort
    def attend(batch: int, seq_len: int, kv_len: int) -> ops.AttentionResult:
        key = torch.randn(batch, 2, kv_len, 4)
        return way(torch.randn(batch, 2, seq_len, 4), key, key)

    assert attend(0, 3, 5).output.shape == (0, 2, 3, 4)
    assert attend(1, 0, 5).output.shape == (1, 2, 0, 4)
    assert (attend(1, 3, 0).output == 0).all()
    assert (attend(1, 3, 0).logsumexp == -torch.inf).all()


@every_way
def test_packed_sequences_do_not_see_each_other(way: Way) -> None:
    # pytorch#153472, #130196, #177378: jagged inputs failed, or attended across sequences
    made = [torch.randn(1, 2, 7, 4) for _ in range(3)]
    found = way(*made, mask=Packed([3, 4]) & Causal()).output
    for rows in (slice(0, 3), slice(3, 7)):
        alone = way(*(tensor[:, :, rows] for tensor in made), mask=Causal()).output
        torch.testing.assert_close(found[:, :, rows], alone)


@pytest.mark.parametrize(("impl", "path"), [("cpu", "kernel"), ("torch", "fused")])
def test_attention_can_be_differentiated_twice(impl: Any, path: str) -> None:
    # pytorch#116350, #181177: "derivative is not implemented" for the fused kernel
    made = [torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3)]
    assert ops.choose(*made, impl=impl).path == path
    (first,) = torch.autograd.grad(ops.attention(*made, impl=impl).square().sum(), made[0], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), made[0])
    assert second.abs().sum() > 0


# --- found while these tests were made; no public report known


@differentiable_ways
@pytest.mark.parametrize("size", [-1e6, -1e9, LOWEST])
def test_gradients_of_a_row_hidden_by_a_large_number_are_no_multiple_of_the_right_ones(
    way: Way, size: float
) -> None:
    # torch's fused CPU kernel: value gradients of 1.0 a key for 0.25, since it takes weights as exp(s - lse)
    bias = zeros(4, 4)
    bias[1] = size
    made = zeros(1, 2, 4, 8), zeros(1, 2, 4, 8), torch.randn(1, 2, 4, 8)
    upstream = zeros(1, 2, 4, 8)
    upstream[:, :, 1] = 1.0
    found = gradients(lambda *leaves: way(*leaves, mask=bias).output, list(made), upstream)
    assert torch.equal(found[2], torch.full((1, 2, 4, 8), 0.25))
