"""Both layers in the hands of those who copy, store, convert, quantise and shard modules."""

import copy
import io
import pickle
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from headwise.masks import Causal
from headwise.nn import MultiHeadAttention
from headwise.nn.compat import TorchMultiheadAttention
from headwise.rope import Rope

WIDTH, HEADS = 24, 6


class StandIn(TorchMultiheadAttention):
    """Called as ours is, with one tensor."""

    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given, given, given, is_causal=True, need_weights=False)[0]


class Ours(MultiHeadAttention):
    def forward(self, given: Tensor) -> Tensor:
        return super().forward(given, mask=Causal())


def with_every_option(**more: object) -> Ours:
    return Ours(
        WIDTH, HEADS, num_kv_heads=2, rope=Rope(), qk_norm=True, window=3, softcap=5.0, sinks=True, **more
    )


def standing_in(**more: object) -> StandIn:
    return StandIn(WIDTH, HEADS, batch_first=True, add_bias_kv=True, **more)


Make = Callable[..., nn.Module]
both = pytest.mark.parametrize("make", [with_every_option, standing_in])


@pytest.fixture(autouse=True)
def without_gradient() -> Iterator[None]:
    with torch.no_grad():
        yield


def drawn(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer


def given(batch: int = 2) -> Tensor:
    return torch.randn(batch, 5, WIDTH)


def stored(layer: nn.Module) -> nn.Module:
    memory = io.BytesIO()
    torch.save(layer, memory)
    memory.seek(0)
    return torch.load(memory, weights_only=False)


def built_anew(layer: nn.Module) -> nn.Module:
    make = with_every_option if isinstance(layer, Ours) else standing_in
    other = make()
    memory = io.BytesIO()
    torch.save(layer.state_dict(), memory)
    memory.seek(0)
    other.load_state_dict(torch.load(memory, weights_only=True), strict=True)
    return other


@both
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer)), stored, built_anew],  # noqa: S301  # its own
    ids=["deepcopy", "pickle", "torch.save", "state_dict"],
)
def test_a_copy_computes_the_same_and_shares_nothing(make: Make, copied: Callable[..., nn.Module]) -> None:
    layer, tokens = drawn(make()), given()
    other, expected = copied(layer), layer(tokens)
    assert torch.equal(other(tokens), expected)
    for parameter in other.parameters():
        parameter.zero_()
    assert torch.equal(layer(tokens), expected)


def on_meta(make: Make) -> nn.Module:
    return make(device="meta")


def under_meta(make: Make) -> nn.Module:
    with torch.device("meta"):
        return make()


def draw_anew(layer: nn.Module) -> None:
    if isinstance(layer, Ours):
        layer.reset_parameters()
    else:  # torch's module leaves the output projection to itself
        layer.out_proj.reset_parameters()
        layer._reset_parameters()


@both
@pytest.mark.parametrize("built", [on_meta, under_meta])
def test_a_layer_made_without_memory_starts_as_any_other(
    make: Make, built: Callable[[Make], nn.Module]
) -> None:
    layer = built(make)
    assert {parameter.device.type for parameter in layer.parameters()} == {"meta"}
    layer.to_empty(device="cpu")
    drawn(layer)
    expected = make()
    for each in (layer, expected):
        torch.manual_seed(7)
        draw_anew(each)
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, expected.get_parameter(name)), name
    loaded = built(make)
    loaded.load_state_dict(expected.state_dict(), assign=True)
    tokens = given()
    assert torch.equal(loaded(tokens), expected(tokens))


def test_skipping_the_drawing_of_weights_is_torchs_own_way() -> None:
    layer = nn.utils.skip_init(Ours, WIDTH, HEADS)
    drawn(layer)
    assert layer(given()).isfinite().all()


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_dtype_reaches_all_and_comes_back(make: Make, dtype: torch.dtype) -> None:
    layer, tokens = drawn(make()), given()
    expected = layer(tokens)
    layer.to(dtype)
    assert {tensor.dtype for tensor in layer.state_dict().values()} == {dtype}
    found = layer(tokens.to(dtype))
    assert found.dtype == dtype
    limit = 1e-4 if dtype == torch.float64 else 0.3
    torch.testing.assert_close(found.float(), expected, rtol=limit, atol=limit)
    assert layer.to(torch.float32)(tokens).dtype == torch.float32


@both
def test_strides_do_not_matter(make: Make) -> None:
    layer, tokens = drawn(make()), given()
    expected = layer(tokens)
    turned = tokens.transpose(1, 2).contiguous().transpose(1, 2)
    spread = torch.stack([tokens, tokens], dim=-1)[..., 0]
    for one in (turned, spread):
        assert not one.is_contiguous()
        torch.testing.assert_close(layer(one), expected)
    torch.testing.assert_close(layer(tokens[:1].expand(3, -1, -1)), expected[:1].expand(3, -1, -1))


@both
def test_no_texts_are_no_texts(make: Make) -> None:
    assert make()(given(batch=0)).shape == (0, 5, WIDTH)


def test_dynamic_quantisation_reaches_every_projection_and_is_near() -> None:
    # peft#761, neural-compressor#960
    layer, tokens = drawn(with_every_option()).eval(), given()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.ao says where it will move
        quantised = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
    kinds = {name: type(module) for name, module in quantised.named_children() if name.endswith("proj")}
    assert list(kinds) == ["q_proj", "k_proj", "v_proj", "out_proj"]
    assert set(kinds.values()) == {torch.ao.nn.quantized.dynamic.Linear}
    expected = layer(tokens)
    found = quantised(tokens)
    assert not torch.equal(found, expected)
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()


class Counting(nn.Module):
    calls = 0

    def forward(self, weight: Tensor) -> Tensor:
        Counting.calls += 1
        return weight * 1.0


@pytest.mark.parametrize(
    ("make", "owner", "name"),
    [
        (with_every_option, "q_proj", "weight"),
        (with_every_option, "", "sinks"),
        (standing_in, "", "in_proj_weight"),
        (lambda: StandIn(WIDTH, HEADS, batch_first=True), "", "in_proj_weight"),
        (standing_in, "", "in_proj_bias"),
    ],
)
def test_a_parametrized_weight_takes_part_and_is_made_once_a_call(make: Make, owner: str, name: str) -> None:
    layer, tokens = drawn(make()), given()
    expected = layer(tokens)
    parametrize.register_parametrization(layer.get_submodule(owner), name, Counting())
    Counting.calls = 0
    torch.testing.assert_close(layer(tokens), expected)
    assert Counting.calls == 1
    layer.get_submodule(owner).parametrizations[name].original.mul_(2.0)
    assert not torch.allclose(layer(tokens), expected)


def test_norms_and_pruning_of_weights_act_on_every_projection() -> None:
    layer, tokens = drawn(with_every_option()), given()
    expected = layer(tokens)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        parametrizations.weight_norm(layer.get_submodule(name))
    torch.testing.assert_close(layer(tokens), expected, rtol=1e-4, atol=1e-5)
    cut = drawn(with_every_option())
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        prune.random_unstructured(cut.get_submodule(name), "weight", amount=0.999)
    torch.testing.assert_close(cut(tokens), cut.out_proj.bias.expand(2, 5, WIDTH), rtol=0, atol=0.5)


@both
def test_parameters_may_lie_side_by_side_in_one_vector(make: Make) -> None:
    """As sharding lays them: every parameter is a view of one piece of memory, walked in order."""
    layer, tokens = drawn(make()), given()
    expected = layer(tokens)
    flat = nn.utils.parameters_to_vector(layer.parameters())
    assert flat.numel() == sum(parameter.numel() for parameter in layer.parameters())
    nn.utils.vector_to_parameters(flat, layer.parameters())
    assert torch.equal(layer(tokens), expected)
    other = torch.func.functional_call(make(), dict(layer.named_parameters()), (tokens,))
    torch.testing.assert_close(other, expected)
