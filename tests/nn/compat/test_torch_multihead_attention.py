import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError
from headwise.nn.compat import TorchMultiheadAttention

from ...tolerance import assert_within_rule
from .pairs import (
    BATCH,
    EMBED_DIM,
    NUM_HEADS,
    OPTIONS,
    SEQ_LEN,
    assert_same,
    in_float64,
    inputs,
    masks,
    pair,
)

every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@every_option
@pytest.mark.parametrize("layout", ["batch first", "length first", "no batch"])
def test_output_and_weights_are_torchs_under_every_mask(options: dict[str, Any], layout: str) -> None:
    two, batched = pair(batch_first=layout == "batch first", **options), layout != "no batch"
    tensors, seen = inputs(two.ours, batched=batched), 0
    for given in masks(batched=batched):
        for asked in (
            {"need_weights": False},
            {"average_attn_weights": True},
            {"average_attn_weights": False},
        ):
            assert_same(two, tensors, **given, **asked)
            seen += 1
    assert seen == 45


def test_the_comparison_catches_a_mask_read_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    two, given = pair(), torch.ones(SEQ_LEN, 7, dtype=torch.bool).triu(1)
    assert_same(two, inputs(two.ours), attn_mask=given)
    ours = two.ours.forward
    monkeypatch.setattr(two.ours, "forward", lambda *tensors, attn_mask: ours(*tensors, attn_mask=~attn_mask))
    with pytest.raises(AssertionError, match="output under"):
        assert_same(two, inputs(two.ours), attn_mask=given)


@pytest.mark.parametrize("batch_first", [True, False])
def test_self_attention_in_one_projection_is_torchs(batch_first: bool) -> None:
    two = pair(batch_first=batch_first)
    query = torch.randn(BATCH, SEQ_LEN, EMBED_DIM)
    assert_same(two, (query, query, query))
    assert_same(two, (query, query, query.clone()))


@every_option
def test_gradients_of_parameters_inputs_and_a_float_mask_are_torchs(options: dict[str, Any]) -> None:
    two = pair(**options)
    ours = two.ours.double()
    tensors = [each.double().requires_grad_() for each in inputs(ours)]
    bias = torch.randn(SEQ_LEN, 7, dtype=torch.float64, requires_grad=True)
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    as_float = torch.zeros(2, 7, dtype=torch.float64).masked_fill(padding, -torch.inf)
    upstream = torch.randn(SEQ_LEN, BATCH, EMBED_DIM, dtype=torch.float64)
    upstream_weights = torch.randn(BATCH, SEQ_LEN, 7 + two.ours.add_zero_attn + (ours.bias_k is not None))

    def gradients(module: nn.MultiheadAttention, mask: Tensor) -> dict[str, Tensor]:
        output, weights = module(*tensors, attn_mask=bias, key_padding_mask=mask)
        loss = (output * upstream).sum() + (weights * upstream_weights).sum()
        named = dict(zip(("query", "key", "value", "attn_mask"), (*tensors, bias), strict=True))
        named |= dict(module.named_parameters())
        return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))

    found, expected = gradients(ours, padding), gradients(two.exact, as_float)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


@every_option
def test_the_same_seed_gives_the_same_parameters(options: dict[str, Any]) -> None:
    torch.manual_seed(7)
    theirs = nn.MultiheadAttention(EMBED_DIM, NUM_HEADS, **options)
    torch.manual_seed(7)
    ours = TorchMultiheadAttention(EMBED_DIM, NUM_HEADS, **options)
    expected = theirs.state_dict()
    assert list(ours.state_dict()) == list(expected)
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, expected[name]), name
    torch.manual_seed(8)
    theirs._reset_parameters()
    torch.manual_seed(8)
    ours._reset_parameters()
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, expected[name]), f"{name}, drawn anew"


@every_option
def test_checkpoints_load_both_ways(options: dict[str, Any]) -> None:
    theirs, ours = (
        kind(EMBED_DIM, NUM_HEADS, **options) for kind in (nn.MultiheadAttention, TorchMultiheadAttention)
    )
    before = copy.deepcopy(ours.state_dict())
    ours.load_state_dict(theirs.state_dict(), strict=True)
    for name, parameter in ours.state_dict().items():
        assert torch.equal(parameter, theirs.state_dict()[name]), name
    theirs.load_state_dict(before, strict=True)
    for name, parameter in theirs.state_dict().items():
        assert torch.equal(parameter, before[name]), name


def test_copies_and_pickles_compute_the_same() -> None:
    ours = pair(add_bias_kv=True, add_zero_attn=True).ours
    tensors = inputs(ours)
    expected = ours(*tensors)[0]
    copied = copy.deepcopy(ours)
    assert torch.equal(copied(*tensors)[0], expected)
    assert torch.equal(pickle.loads(pickle.dumps(ours))(*tensors)[0], expected)  # noqa: S301  # its own
    with torch.no_grad():
        copied.out_proj.weight.zero_()
    assert torch.equal(ours(*tensors)[0], expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_dtypes_are_kept(dtype: torch.dtype) -> None:
    two = pair(add_bias_kv=True, add_zero_attn=True)
    ours, tensors = two.ours.to(dtype), [each.to(dtype) for each in inputs(two.ours)]
    found = ours(*tensors, attn_mask=torch.randn(SEQ_LEN, 7))
    assert [each.dtype for each in found] == [dtype, dtype]
    made = TorchMultiheadAttention(EMBED_DIM, NUM_HEADS, dtype=dtype)
    assert {parameter.dtype for parameter in made.parameters()} == {dtype}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_as_near_as_torchs(dtype: torch.dtype) -> None:
    two = pair(batch_first=True)
    tensors = [each.to(dtype) for each in inputs(two.ours)]
    for module in (two.ours, two.theirs):
        module.to(dtype)
    two.exact.load_state_dict(two.ours.state_dict())
    three = (two.ours(*tensors), two.exact(*map(in_float64, tensors)), two.theirs(*tensors))
    for name, *each in zip(("output", "weights"), *three, strict=True):
        assert_within_rule(*each, name)


def test_autocast_works_and_gives_torchs_dtypes() -> None:
    two = pair(add_bias_kv=True)
    tensors = inputs(two.ours)
    for need_weights in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = two.ours(*tensors, need_weights=need_weights)
            theirs = two.theirs(*tensors, need_weights=need_weights)
        expected = two.ours(*tensors, need_weights=need_weights)
        for one, other, full in zip(found, theirs, expected, strict=True):
            if other is None:
                assert one is full is None
                continue
            assert one.dtype == other.dtype
            torch.testing.assert_close(one.float(), full, rtol=0.1, atol=0.3)


def test_broadcastable_masks_and_masks_by_batch_element_mean_the_same() -> None:
    # pytorch#64706, #28884, #29520, #120810, #177482
    ours = pair(batch_first=True).ours
    tensors, hidden = inputs(ours), torch.rand(BATCH, SEQ_LEN, 7) < 0.4
    full = hidden.repeat_interleave(NUM_HEADS, dim=0)
    expected = ours(*tensors, attn_mask=full)
    by_batch, by_rank_4 = ours(*tensors, attn_mask=hidden), ours(*tensors, attn_mask=hidden[:, None])
    for one, two, three in zip(expected, by_batch, by_rank_4, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
    row = hidden[:1, :1]
    assert torch.equal(
        ours(*tensors, attn_mask=row)[0], ours(*tensors, attn_mask=row[0].expand(SEQ_LEN, 7))[0]
    )


def test_masks_of_unequal_dtype_need_no_conversion_and_warn_of_nothing() -> None:
    # pytorch#95702, #96103, #100469; warnings are errors here
    two = pair(batch_first=True)
    tensors, padding = inputs(two.ours), torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    assert_same(two, tensors, key_padding_mask=padding, attn_mask=torch.randn(SEQ_LEN, 7))
    assert_same(two, tensors, key_padding_mask=torch.randn(2, 7), attn_mask=torch.rand(SEQ_LEN, 7) < 0.2)


def test_sizes_of_zero_give_empty_results_or_the_bias() -> None:
    ours = pair(batch_first=True).ours
    query = torch.randn(BATCH, SEQ_LEN, EMBED_DIM)
    assert ours(query[:0], query[:0], query[:0])[0].shape == (0, SEQ_LEN, EMBED_DIM)
    assert ours(query[:, :0], query, query)[1].shape == (BATCH, 0, SEQ_LEN)
    nothing = ours(query, query[:, :0], query[:, :0])
    assert torch.equal(nothing[0], ours.out_proj.bias.expand(BATCH, SEQ_LEN, EMBED_DIM))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"embed_dim": 100, "num_heads": 8},
            r"num_heads=8 does not divide embed_dim=100; use 5 or 10, or head",
        ),
        ({"embed_dim": 0, "num_heads": 8}, "embed_dim=0 must be at least 1"),
        ({"embed_dim": 8, "num_heads": 0}, "num_heads=0 must be at least 1"),
        ({"embed_dim": 8, "num_heads": 2, "kdim": 0}, "kdim=0 must be at least 1"),
        ({"embed_dim": 8, "num_heads": 2, "vdim": 2.5}, r"vdim=2\.5 is a float; pass an integer"),
        ({"embed_dim": 8, "num_heads": 2, "dropout": 1.5}, r"dropout=1\.5 must be at least 0 and below 1"),
    ],
)
def test_sizes_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        TorchMultiheadAttention(**arguments)


def test_inputs_that_do_not_fit_are_refused() -> None:
    ours = TorchMultiheadAttention(EMBED_DIM, NUM_HEADS, kdim=11)
    query, key, value = inputs(ours)
    with pytest.raises(
        ArgumentError, match=r"query has shape \(5, 2, 3\); it must be \[length, batch, 12\], an"
    ):
        ours(query[..., :3], key, value)
    with pytest.raises(
        ArgumentError, match=r"key has shape \(7, 11\); it must be \[length, batch, 11\], and all"
    ):
        ours(query, key[:, 0], value)
    with pytest.raises(ArgumentError, match=r"query has shape \(1, 5, 2, 12\); it must be \[length, 12\]"):
        ours(query[None], key, value)
    with pytest.raises(
        ArgumentError, match=r"lengths of key and value, differ: .* value \(6, 2, 12\); the axes"
    ):
        ours(query, key, value[:6])
    with pytest.raises(ArgumentError, match=r"batch sizes, or .*, differ: .* is batch_first=False meant\?"):
        ours(query[:, :1], key, value)


def test_masks_that_do_not_fit_are_refused() -> None:
    ours = TorchMultiheadAttention(EMBED_DIM, NUM_HEADS)
    tensors = inputs(ours)
    with pytest.raises(
        ArgumentError, match=r"key_padding_mask has shape \(7, 2\); it must be \(batch, kv_len\), he"
    ):
        ours(*tensors, key_padding_mask=torch.zeros(7, 2, dtype=torch.bool))
    with pytest.raises(
        ArgumentError, match=r"attn_mask has shape \(3, 5, 7\); it must be .*\(batch x num_heads, se"
    ):
        ours(*tensors, attn_mask=torch.zeros(3, 5, 7))
    with pytest.raises(ArgumentError, match=r"attn_mask has shape \(7,\); it must be \(seq_len, kv_len\)"):
        ours(*tensors, attn_mask=torch.zeros(7))
    with pytest.raises(ArgumentError, match=r"attn_mask has shape \(5, 5\), but kv_len is 7, not 5"):
        ours(*tensors, attn_mask=torch.zeros(5, 5))
    with pytest.raises(
        ArgumentError, match=r"attn_mask has dtype torch.uint8; .* \(True means may not attend\) and.*\.bool"
    ):
        ours(*tensors, attn_mask=torch.zeros(5, 7, dtype=torch.uint8))
