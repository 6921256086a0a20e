"""Each line of the conventions' section "Tensors" has a test here, by the way of every path."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from headwise import ops
from headwise.errors import ArgumentError
from headwise.masks import Causal

from ..attention_cases import LAYOUTS, Case, assert_attends, laid_out, tensors
from ..naive import gradients, naive_attention
from .ways import WAYS, Way, computes, every_way

SIXTEEN_BITS = (torch.bfloat16, torch.float16)


@every_way
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (14, 2), (5, 1)])
def test_shapes_of_output_and_logsumexp(way: Way, num_heads: int, num_kv_heads: int) -> None:
    made = tensors("randn", num_heads=num_heads, num_kv_heads=num_kv_heads, value_head_dim=13)
    found = way(*made)
    assert found.output.shape == (2, num_heads, 5, 13)
    assert found.logsumexp.shape == (2, num_heads, 5)


@every_way
@pytest.mark.parametrize("group_size", [1, 2, 4, 7])
def test_query_head_h_reads_kv_head_h_over_group_size(way: Way, group_size: int) -> None:
    num_heads = 3 * group_size
    value = torch.arange(3.0)[None, :, None, None].expand(1, 3, 7, 11)
    found = way(torch.randn(1, num_heads, 5, 11), torch.zeros(1, 3, 7, 11), value).output
    expected = torch.tensor([float(head // group_size) for head in range(num_heads)])
    torch.testing.assert_close(found, expected[None, :, None, None].expand_as(found))


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", [None, Causal()], ids=["unmasked", "causal"])
def test_any_strides(way: Way, layout: str, mask: Causal | None) -> None:
    made = (laid_out(tensor, layout) for tensor in tensors("peaked"))
    assert_attends(way, Case(layout, *made, {"mask": mask}))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_strides_of_the_gradient_that_comes_in(layout: str) -> None:
    made = list(tensors("randn"))
    upstream = torch.randn(2, 6, 5, 11)
    found = gradients(ops.attention, made, laid_out(upstream, layout))
    expected = gradients(ops.attention, made, laid_out(upstream, layout).contiguous())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *SIXTEEN_BITS])
def test_dtype_of_output_and_of_logsumexp(dtype: torch.dtype) -> None:
    for name, way in WAYS.items():
        if computes(name, dtype):
            _assert_dtypes(way, dtype)


def _assert_dtypes(way: Way, dtype: torch.dtype) -> None:
    found = way(*tensors("randn", dtype=dtype))
    assert found.output.dtype == dtype
    assert found.logsumexp.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)


@every_way
@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
@pytest.mark.parametrize("kind", ["randn", "peaked"])
def test_sixteen_bit_inputs_round_the_output_once_and_nothing_else(
    way: Way, dtype: torch.dtype, kind: str
) -> None:
    case = Case(kind, *tensors(kind, seq_len=61, kv_len=127, head_dim=64, dtype=dtype), {"mask": Causal()})
    found, exact = way(case.query, case.key, case.value, **case.options).output, case.exact.output
    # Half a unit in the last place, and the little that float32 adds.
    half_unit = torch.finfo(dtype).eps * 2.0 ** exact.abs().log2().floor() / 2
    assert ((found.double() - exact).abs() <= 1.001 * half_unit + 4e-6).all()


@every_way
def test_sixteen_bit_scores_do_not_overflow(way: Way) -> None:
    large = torch.full((1, 1, 3, 64), 300.0, dtype=torch.float16)
    value = torch.randn(1, 1, 3, 64, dtype=torch.float16)
    expected = value.double().mean(2, keepdim=True).half().expand_as(value)
    torch.testing.assert_close(way(large, large, value).output, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_rounds_the_inputs_as_torchs_own_attention_and_nothing_inside(dtype: torch.dtype) -> None:
    made = tensors("peaked")
    rounded = [tensor.to(dtype) for tensor in made]
    with torch.autocast("cpu", dtype=dtype):
        assert functional.scaled_dot_product_attention(made[0], made[0], made[0]).dtype == dtype
        under_autocast = [way(*made, mask=Causal()).output for way in WAYS.values()]
        gradients_under = gradients(ops.attention, list(made), made[0])
    for found, way in zip(under_autocast, WAYS.values(), strict=True):
        assert torch.equal(found, way(*rounded, mask=Causal()).output)
    for found, expected in zip(gradients_under, gradients(ops.attention, rounded, made[0]), strict=True):
        assert torch.equal(found, expected.float())


def test_autocast_leaves_float64_as_torchs_own_attention_does() -> None:
    made = [tensor.double() for tensor in tensors("randn")]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert functional.scaled_dot_product_attention(made[0], made[0], made[0]).dtype == torch.float64
        assert ops.attention(*made).dtype == torch.float64
        with pytest.raises(
            ArgumentError, match="differ in dtype: query bfloat16, key float64, value float64"
        ):
            ops.attention(made[0].float(), *made[1:])


def test_autocast_brings_inputs_of_different_dtypes_together() -> None:
    query, key, value = tensors("randn")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ops.attention(query.half(), key, value.bfloat16())
    assert torch.equal(found, ops.attention(query.half().bfloat16(), key.bfloat16(), value.bfloat16()))


def two_keys(first: float, second: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return a query of 1 and two keys with the scores `first` and `second`; the values are 10 and 100."""
    key = torch.tensor([first, second]).reshape(1, 1, 2, 1)
    return torch.ones(1, 1, 1, 1), key, torch.tensor([10.0, 100.0]).reshape(1, 1, 2, 1)


@every_way
def test_order_scale_softcap_bias_mask_softmax_with_sink_and_gate(way: Way) -> None:
    found = way(
        *two_keys(1.0, -2.0),
        scale=0.5,
        softcap=3.0,
        bias=torch.tensor([[0.25, 4.0]]),
        sinks=torch.tensor([1.5]),
        head_gates=torch.tensor([-2.0]),
    )
    scores = [3 * math.tanh(0.5 / 3) + 0.25, 3 * math.tanh(-1.0 / 3) + 4.0]
    denominator = sum(math.exp(score) for score in scores) + math.exp(1.5)
    weights = [math.exp(score) / denominator for score in scores]
    assert found.output.item() == pytest.approx(-2 * (10 * weights[0] + 100 * weights[1]), rel=1e-6)
    assert found.logsumexp.item() == pytest.approx(math.log(denominator), rel=1e-6)


@every_way
def test_order_the_mask_comes_after_the_softcap(way: Way) -> None:
    """A cap of a hidden score would leave it a weight of 0.2689."""
    found = way(*two_keys(0.0, 5.0), softcap=1.0, mask=torch.tensor([[True, False]]))
    assert found.output.item() == 10.0
    assert found.logsumexp.item() == 0.0


def test_order_dropout_acts_on_the_weights_before_the_values() -> None:
    query, key = torch.zeros(1, 1, 997, 5), torch.zeros(1, 1, 7, 5)
    value = torch.eye(7)[None, None]  # the output is the weights
    found = ops.attention(query, key, value, dropout=0.25)
    kept = found > 0
    torch.testing.assert_close(found[kept], torch.full_like(found[kept], 1 / 7 / 0.75))
    assert 0.7 < kept.float().mean() < 0.8


def test_order_the_gate_comes_last_and_leaves_logsumexp_alone() -> None:
    made, gates = tensors("randn"), torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, 1.0])
    plain, gated = ops.attention_with_logsumexp(*made), ops.attention_with_logsumexp(*made, head_gates=gates)
    torch.testing.assert_close(gated.output, plain.output * gates[:, None, None])
    assert torch.equal(gated.logsumexp, plain.logsumexp)
    assert (ops.attention(*made, head_gates=gates)[:, 0] == 0).all()


def test_gates_may_differ_within_the_batch() -> None:
    made, gates = tensors("randn"), torch.randn(2, 6)
    torch.testing.assert_close(
        ops.attention(*made, head_gates=gates), ops.attention(*made) * gates[..., None, None]
    )


@every_way
def test_scale_is_head_dim_to_the_minus_one_half(way: Way) -> None:
    ones = torch.ones(1, 8, 1, 64)  # d_model 512 in 8 heads: neither 512 nor 8 has a part in it
    torch.testing.assert_close(way(ones, ones, ones).logsumexp, torch.full((1, 8, 1), 64 / 8.0))


@every_way
def test_logsumexp_is_natural(way: Way) -> None:
    zeros = torch.zeros(1, 1, 2, 3)
    found = way(zeros, torch.zeros(1, 1, 5, 3), torch.zeros(1, 1, 5, 3)).logsumexp
    torch.testing.assert_close(found, torch.full((1, 1, 2), math.log(5)))


def test_logsumexp_has_the_gradient_of_its_scores() -> None:
    query, key, _ = tensors("randn", dtype=torch.float64)
    value = torch.zeros(2, 3, 7, 5, dtype=torch.float64)
    upstream = torch.randn(2, 6, 5, dtype=torch.float64)

    def gradients_of(way: Way) -> list[Tensor]:
        return gradients(lambda q, k: way(q, k, value, mask=Causal()).logsumexp, [query, key], upstream)

    found, expected = gradients_of(ops.attention_with_logsumexp), gradients_of(naive_attention)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
