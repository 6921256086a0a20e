"""The options of the layer beyond plain heads: rotary positions, norms, windows, softcap, sinks, gates."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3 import modeling_qwen3

from headwise.errors import ArgumentError
from headwise.masks import Causal, Lengths, Window
from headwise.nn import MultiHeadAttention
from headwise.rope import Rope

from ..naive import naive_attention
from ..tolerance import assert_within_rule

BATCH, SEQ_LEN, D_MODEL, HEADS, KV_HEADS, HEAD_DIM = 2, 7, 24, 6, 2, 8

OPTIONS: dict[str, dict[str, Any]] = {
    "rope": {"rope": Rope()},
    "rope interleaved": {"rope": Rope(base=500.0, pairing="interleaved", rotary_dim=4)},
    "qk_norm": {"qk_norm": True},
    "window": {"window": 3},
    "softcap": {"softcap": 1.5},
    "sinks": {"sinks": True},
    "all": {"rope": Rope(), "qk_norm": True, "window": 3, "softcap": 1.5, "sinks": True},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def made(**options: Any) -> MultiHeadAttention:
    layer = MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, **options)
    for (
        parameter
    ) in layer.parameters():  # scales start at 1 and sinks at 0, where they could be forgotten unseen
        nn.init.normal_(parameter, std=0.5)
    return layer


def by_hand(layer: MultiHeadAttention, given: Tensor, mask: Any, head_gates: Tensor | None = None) -> Tensor:
    """Return the layer's output step by step, by the naive formula."""
    layout = layer.layout

    def heads(projection: nn.Linear, count: int) -> Tensor:
        return projection(given).unflatten(2, (count, -1)).transpose(1, 2)

    def normed(each: Tensor, norm: nn.RMSNorm | None) -> Tensor:
        if norm is None:
            return each
        return each * torch.rsqrt((each**2).mean(-1, keepdim=True) + 1e-6) * norm.weight

    query = normed(heads(layer.q_proj, layout.num_heads), layer.q_norm)
    key = normed(heads(layer.k_proj, layout.num_kv_heads), layer.k_norm)
    if layer.rope is not None:
        query, key = layer.rope.rotate(query, key)
    if layer.window is not None:
        mask = Window.of(layer.window) if mask is None else Window.of(layer.window) & mask
    value = heads(layer.v_proj, layout.num_kv_heads)
    mixed = naive_attention(
        query, key, value, mask=mask, softcap=layer.softcap, sinks=layer.sinks, head_gates=head_gates
    ).output
    return layer.out_proj(mixed.transpose(1, 2).flatten(2))


@every_option
@pytest.mark.parametrize("with_grad", [True, False])
def test_the_output_is_that_of_the_formula(options: dict[str, Any], with_grad: bool) -> None:
    layer, given = made(**options), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    wide = copy.deepcopy(layer).double()
    gates = torch.tensor([1.0, 0.0, 0.5, -2.0, 1.0, 3.0])
    with torch.set_grad_enabled(with_grad):
        for mask in (None, Causal(), Lengths([4, 0])):
            for head_gates in (None, gates, torch.stack([gates, gates.flip(0)])):
                found = layer(given, mask=mask, head_gates=head_gates)
                exact = by_hand(wide, given.double(), mask, head_gates)
                assert_within_rule(found, exact, by_hand(layer, given, mask, head_gates))


@every_option
def test_each_option_changes_the_output(options: dict[str, Any]) -> None:
    layer, given = made(**options), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    plain = MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM)
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert not torch.allclose(layer(given), plain(given), atol=1e-2)


@every_option
def test_gradients_of_every_parameter_are_those_of_the_formula(options: dict[str, Any]) -> None:
    layer = made(**options).double()
    given = torch.randn(BATCH, SEQ_LEN, D_MODEL, dtype=torch.float64, requires_grad=True)
    gates = torch.randn(HEADS, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(BATCH, SEQ_LEN, D_MODEL, dtype=torch.float64)
    named = {"given": given, "gates": gates, **dict(layer.named_parameters())}
    found, expected = (
        torch.autograd.grad(output, list(named.values()), upstream)
        for output in (
            layer(given, mask=Causal(), head_gates=gates),
            by_hand(layer, given, Causal(), gates),
        )
    )
    for name, one, other in zip(named, found, expected, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("bias", [True, False])
def test_a_whole_layer_of_qwen3_has_the_same_numbers(bias: bool) -> None:
    config = Qwen3Config(
        hidden_size=D_MODEL,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        attention_bias=bias,
        num_hidden_layers=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        attn_implementation="eager",
    )
    theirs = modeling_qwen3.Qwen3Attention(config, layer_idx=0)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.5)
    ours = MultiHeadAttention(
        D_MODEL,
        HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        bias=bias,
        rope=Rope(base=1e6),
        qk_norm=True,
        window=3,
    )
    ours.load_state_dict(
        {name.replace("o_proj", "out_proj"): tensor for name, tensor in theirs.state_dict().items()}
    )
    given = torch.randn(BATCH, SEQ_LEN, D_MODEL)
    positions = modeling_qwen3.Qwen3RotaryEmbedding(config)(given, torch.arange(SEQ_LEN)[None])
    seen = torch.ones(SEQ_LEN, SEQ_LEN).tril().triu(-2).bool()
    mask = torch.zeros(1, 1, SEQ_LEN, SEQ_LEN).masked_fill(~seen, -torch.inf)
    expected = theirs(given, positions, mask)[0]
    torch.testing.assert_close(ours(given), expected, rtol=1e-4, atol=1e-5)


def test_values_never_turn() -> None:
    layer, given = made(rope=Rope()), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    own = layer.v_proj(given).unflatten(2, (KV_HEADS, -1)).repeat_interleave(HEADS // KV_HEADS, dim=2)
    torch.testing.assert_close(layer(given, mask=Window.of(1)), layer.out_proj(own.flatten(2)))


def test_with_rope_the_place_of_the_text_does_not_matter_and_the_order_does() -> None:
    layer, given = made(rope=Rope()), torch.randn(1, SEQ_LEN, D_MODEL)
    padded = torch.cat([torch.randn(1, 4, D_MODEL), given], dim=1)
    found = layer(padded, mask=Causal() & Lengths([SEQ_LEN], padding="left"))[:, 4:]
    torch.testing.assert_close(found, layer(given, mask=Causal()), rtol=1e-4, atol=1e-5)
    turned = layer(given.flip(1)).flip(1)
    assert not torch.allclose(turned, layer(given), atol=1e-2)


def test_a_gate_of_zero_removes_a_head() -> None:
    layer, given = made(), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    gates = torch.ones(HEADS)
    gates[4] = 0.0
    found = layer(given, head_gates=gates)
    with torch.no_grad():
        layer.out_proj.weight[:, 4 * HEAD_DIM : 5 * HEAD_DIM] = 0.0
    torch.testing.assert_close(found, layer(given))


def test_state_dict_names_and_how_options_start() -> None:
    layer = MultiHeadAttention(D_MODEL, HEADS, num_kv_heads=KV_HEADS, qk_norm=True, sinks=True, bias=False)
    assert {name: tuple(each.shape) for name, each in layer.state_dict().items() if "proj" not in name} == {
        "q_norm.weight": (4,),
        "k_norm.weight": (4,),
        "sinks": (HEADS,),
    }
    assert (layer.q_norm.weight == 1).all()
    assert (layer.sinks == 0).all()
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    layer.reset_parameters()
    assert (layer.q_norm.weight == 1).all()
    assert (layer.k_norm.weight == 1).all()
    assert (layer.sinks == 0).all()
    assert not any("norm" in name or "sinks" in name for name in MultiHeadAttention(12, 3).state_dict())


@every_option
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_dtypes_are_kept_and_autocast_works(options: dict[str, Any], dtype: torch.dtype) -> None:
    layer, given = made(**options), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    expected = layer(given, mask=Causal())
    with torch.autocast("cpu", dtype=dtype):
        found = layer(given, mask=Causal())
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.3)
    halved = layer.to(dtype)(given.to(dtype), mask=Causal())
    assert halved.dtype == dtype
    torch.testing.assert_close(halved.float(), expected, rtol=0.1, atol=0.3)


def test_device_and_dtype_reach_norms_and_sinks() -> None:
    layer = MultiHeadAttention(12, 3, qk_norm=True, sinks=True, dtype=torch.float64, device="meta")
    assert {(parameter.dtype, parameter.device.type) for parameter in layer.parameters()} == {
        (torch.float64, "meta")
    }


def test_printed_options() -> None:
    shown = repr(MultiHeadAttention(12, 3, rope=Rope(base=5.0), window=4, softcap=30.0))
    assert (
        "dropout=0.0, rope=Rope(base=5.0, pairing='half_split', rotary_dim=None), window=4, softcap=30.0"
        in shown
    )
    assert "rope" not in repr(MultiHeadAttention(12, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope": True}, r"rope=True is a bool; pass a Rope, such as Rope\(base=10000\.0\)"),
        (
            {"rope": Rope(), "head_dim": 5},
            "rotary positions turn 5 elements of a head of head_dim=5; it must be even",
        ),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"window": 2.5}, r"window=2\.5 is a float; pass an integer"),
        ({"softcap": 0.0}, r"softcap=0\.0 must be a finite number above 0; pass None"),
        ({"softcap": "a"}, "softcap is a str; it must be a plain number"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        MultiHeadAttention(D_MODEL, HEADS, **options)


def test_rope_is_for_self_attention() -> None:
    given = torch.randn(BATCH, SEQ_LEN, D_MODEL)
    with pytest.raises(
        ArgumentError, match=r"key is given with rope, which is for self-attention: .* leave key out"
    ):
        made(rope=Rope())(given, given)
    with pytest.raises(ArgumentError, match=r"head_gates has shape \(2,\); it must be \(6,\) or \(2, 6\)"):
        made()(given, head_gates=torch.ones(2))
