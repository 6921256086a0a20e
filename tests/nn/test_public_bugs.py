"""Faults that users of attention modules have reported, each with the right behaviour on a small input.

`repository#n` is an issue or pull request on GitHub.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.cache import KVCache
from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.masks import Causal, Lengths, Packed
from headwise.nn import MultiHeadAttention
from headwise.rope import Rope


def test_one_empty_row_leaves_every_gradient_finite_and_is_the_output_bias() -> None:
    # pytorch#41508
    layer = MultiHeadAttention(1, 1)
    given = torch.rand(2, 4, 1)
    forbidden = torch.tensor([[0.0, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]]).bool()
    padding = Lengths([4, 2])
    found = layer(given, mask=~forbidden & padding)
    assert torch.equal(found[1, 3], layer.out_proj.bias)
    found[:, :2].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_grad", [True, False])
def test_an_empty_batch_element_is_the_bias_in_every_mode(training: bool, with_grad: bool) -> None:
    # pytorch PR#190486, #160064: NaN in the evaluation path, 0 in another
    layer = MultiHeadAttention(8, 2).train(training)
    nn.init.normal_(layer.out_proj.bias)
    given = torch.randn(2, 3, 8)
    with torch.set_grad_enabled(with_grad):
        found = layer(given, mask=Lengths([3, 0]))
    assert torch.equal(found[1], layer.out_proj.bias.expand(3, 8))
    torch.testing.assert_close(found[:1], layer(given[:1]))


def test_masks_and_dropout_together_give_no_nan() -> None:
    # pytorch#152028
    layer, given = MultiHeadAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    nn.init.normal_(layer.out_proj.bias)
    found = layer(given, mask=Causal() & Lengths([5, 0]))
    assert torch.equal(found[1], layer.out_proj.bias.expand(5, 8))
    assert found.isfinite().all()
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("shape", [(4, 4), (3, 4, 4), (2, 4, 4), (2, 3, 4, 4)])
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_a_mask_of_any_rank_and_dtype_means_the_same_in_training_and_evaluation(
    shape: tuple[int, ...], kind: str
) -> None:
    # pytorch#107084: a float mask became boolean in the fast path; #97409, #97605: rank 3 crashed in one mode
    layer, given = MultiHeadAttention(6, 3), torch.randn(2, 4, 6)
    mask = torch.randn(shape) if kind == "float" else torch.rand(shape) < 0.6
    trained = layer.train()(given, mask=mask)
    with torch.no_grad():  # by another path, which the gradient no longer keeps away
        torch.testing.assert_close(layer.eval()(given, mask=mask), trained)


def test_causal_alone_is_enough_and_no_hint() -> None:
    # pytorch#99282, #100709: ignored without a mask, or refused
    layer, given = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    lower = torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(layer(given, mask=Causal()), layer(given, mask=lower))
    changed = given.clone()
    changed[:, 3:] += 1.0
    assert torch.equal(layer(changed, mask=Causal())[:, :3], layer(given, mask=Causal())[:, :3])


ASKED: dict[str, dict[str, Any]] = {
    "plain": {},
    "observed": {"observe": Collect(weights=True)},
    "gated": {"head_gates": torch.tensor([1.0, 0.5])},
    "bias": {"bias": torch.randn(5, 5, generator=torch.Generator().manual_seed(1))},
    "padded": {"mask": Causal() & Lengths([4])},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize(
    "options", [{}, {"softcap": 5.0, "sinks": True}, {"window": 3, "qk_norm": True}], ids=str
)
def test_causal_order_leaks_nothing_whatever_else_is_asked_for(
    options: dict[str, Any], dropout: float, asked: dict[str, Any]
) -> None:
    # keras#23038, xformers#103: dropped with dropout, with scores asked for, or without a mask
    layer = MultiHeadAttention(8, 2, dropout=dropout, **options)
    given = torch.randn(1, 5, 8, requires_grad=True)
    found = layer(given, **{"mask": Causal(), **asked})
    (gradient,) = torch.autograd.grad((getattr(found, "output", found)[0, 2] ** 2).sum(), given)
    assert (gradient[0, 3:] == 0).all()
    assert (gradient[0, :3] != 0).any()


def test_packed_texts_do_not_see_each_other() -> None:
    # pytorch#153472, #130196, #177378: jagged inputs failed, or attended across sequences
    layer, given = MultiHeadAttention(8, 2, rope=Rope()), torch.randn(1, 7, 8)
    found = layer(given, mask=Packed([3, 4]) & Causal())
    for rows in (slice(0, 3), slice(3, 7)):
        torch.testing.assert_close(found[:, rows], layer(given[:, rows], mask=Causal()))


def test_left_padded_texts_are_as_they_are_alone() -> None:
    # transformers#38690, #31035, #47651: NaN, or garbage that later layers spread
    layers = nn.ModuleList([MultiHeadAttention(8, 2, rope=Rope()) for _ in range(3)])
    alone = given = torch.randn(1, 4, 8)
    padded = torch.cat([torch.full((1, 3, 8), 1e4), given], dim=1)
    for layer in layers:
        alone = alone + layer(alone, mask=Causal())
        padded = padded + layer(padded, mask=Causal() & Lengths([4], padding="left"))
    assert padded.isfinite().all()
    torch.testing.assert_close(padded[:, 3:], alone, rtol=1e-4, atol=1e-5)


def test_heads_are_slices_of_the_width_and_not_of_the_tokens() -> None:
    # onnx#7118, FuxiCTR#30, transformer-from-scratch PR#6, opacus PR#825: a view without a transpose
    layer = MultiHeadAttention(4, 2, bias=False)
    seen: list[Tensor] = []
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
        nn.init.eye_(projection.weight)
    layer.out_proj.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    given = torch.tensor([[[1.0, 2, 3, 4], [5, 6, 7, 8]]])
    layer(given, mask=torch.eye(2, dtype=torch.bool))  # each token sees itself: the heads are the values
    assert torch.equal(seen[0], given)
    other = layer(given, mask=torch.tensor([[[[True, False]] * 2, [[False, True]] * 2]]))
    assert other.tolist() == [[[1.0, 2, 7, 8], [1, 2, 7, 8]]]


def test_head_counts_that_cannot_be_are_refused_with_the_numbers() -> None:
    # pytorch#103668, #28719, detr#499: "must be divisible", without saying what by what
    with pytest.raises(
        ArgumentError, match=r"num_heads=8 does not divide d_model=100; pass head_dim explicitly"
    ):
        MultiHeadAttention(100, 8)
    layer = MultiHeadAttention(100, 8, head_dim=16, value_head_dim=24)
    assert layer(torch.randn(1, 3, 100)).shape == (1, 3, 100)


def test_batch_comes_first_and_is_never_attended_across() -> None:
    # OmDet#19, pytorch#122959, #63560
    layer, given = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    alone = torch.cat([layer(given[:1]), layer(given[1:])])
    torch.testing.assert_close(layer(given), alone)


def test_dropout_is_off_in_evaluation() -> None:
    # pytorch#124464, #99293, timm PR#1978, torchtune#1791, wenet#2699, vjepa2 PR#160
    layer, given = MultiHeadAttention(8, 2, dropout=0.9).eval(), torch.randn(2, 5, 8)
    assert torch.equal(layer(given), layer(given))
    assert not torch.equal(layer.train()(given), layer(given))


def test_the_forward_of_every_projection_is_called() -> None:
    # peft#761, LoRA-Torch#3, pytorch#118165, neural-compressor#960: adapters and quantisers never ran
    layer, given = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    called: list[str] = []
    for name, module in layer.named_children():
        assert isinstance(module, nn.Linear)
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    layer(given)
    assert called == ["q_proj", "k_proj", "v_proj", "out_proj"]


def test_an_adapter_in_place_of_a_projection_takes_part() -> None:
    # peft#761
    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base = base
            self.down, self.up = nn.Linear(8, 2, bias=False), nn.Linear(2, 8, bias=False)

        def forward(self, given: Tensor) -> Tensor:
            return self.base(given) + self.up(self.down(given))

    layer, given = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    before = layer(given)
    layer.v_proj = Adapted(layer.v_proj)  # type: ignore[assignment]
    assert not torch.allclose(layer(given), before)
    layer(given).sum().backward()
    assert layer.v_proj.up.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_grad", [True, False])
def test_weights_of_each_head_are_to_be_had_in_every_mode(training: bool, with_grad: bool) -> None:
    # pytorch#34537, #47583, fairseq#3365: averaged over heads; transformers#30978, #38750: None, or slow
    layer, given = MultiHeadAttention(8, 2).train(training), torch.randn(2, 5, 8)
    query, key, value = (
        projection(given).unflatten(2, (2, 4)).transpose(1, 2)
        for projection in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    expected = (query @ key.mT / 2).masked_fill(~visible, -torch.inf).softmax(-1)
    with torch.set_grad_enabled(with_grad):
        seen = layer(given, mask=Causal(), observe=Collect(weights=True))
        assert torch.equal(seen.output, layer(given, mask=Causal()))
    torch.testing.assert_close(seen.evidence.weights, expected.detach())
    torch.testing.assert_close(seen.output, layer.out_proj((expected @ value).transpose(1, 2).flatten(2)))


def test_a_new_token_sees_the_whole_cache() -> None:
    # pytorch#108108, #103082, #144858: aligned to the upper left, it saw key 0 only; x-transformers#187, #311
    layer, given, cache = MultiHeadAttention(8, 2), torch.randn(2, 5, 8), KVCache()
    with torch.no_grad():
        whole = layer(given)[:, -1:]  # the last token sees all in any order
        layer(given[:, :-1], cache=cache)
        seen = layer(given[:, -1:], cache=cache, observe=Collect(weights=True))
    torch.testing.assert_close(seen.output, whole)
    assert seen.evidence.weights is not None
    assert (seen.evidence.weights > 0).all()


def test_a_window_counts_the_querys_own_key() -> None:
    # transformers#29623, #39408, vllm#3385, onnxruntime PR#25927: off by one, or without the current token
    layer, given = MultiHeadAttention(8, 2, window=2), torch.randn(1, 4, 8)
    weights = layer(given, observe=Collect(weights=True)).evidence.weights
    assert weights is not None
    assert (weights[0, 0] > 0).tolist() == [[j in {i - 1, i} for j in range(4)] for i in range(4)]


def test_softcap_comes_before_the_mask() -> None:
    # onnx#7865, onnxruntime PR#28379: a hidden score of -inf was capped to -cap, and leaked
    layer, given = MultiHeadAttention(8, 2, softcap=1.0), torch.randn(1, 2, 8)
    weights = layer(given, mask=Causal(), observe=Collect(weights=True)).evidence.weights
    assert weights is not None
    assert weights[0, :, 0].tolist() == [[1.0, 0.0]] * 2


def test_dropout_takes_no_part_in_what_is_observed() -> None:
    # pytorch#42929, #27968: weights that sum to more than 1
    layer, given = MultiHeadAttention(8, 2, dropout=0.5), torch.randn(2, 5, 8)
    weights = layer.train()(given, observe=Collect(weights=True)).evidence.weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 5))
