"""The layer under observation."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.cache import KVCache, RollingKVCache
from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.masks import Causal, Lengths, Window
from headwise.nn.observing import observing_is_attending
from headwise.ops import Choice
from headwise.rope import Rope

from .test_layer_options import BATCH, D_MODEL, HEAD_DIM, HEADS, OPTIONS, made

SEQ_LEN = 19


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("with_grad", [True, False])
@pytest.mark.parametrize("impl", ["auto", "torch"])
def test_observing_gives_the_output_of_a_call_to_the_bit_and_the_evidence_of_the_operator(
    options: dict[str, Any], with_grad: bool, impl: Any
) -> None:
    layer, given = made(**options), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    gates, collect = torch.randn(HEADS), Collect(weights=True, top_k=2)
    call: dict[str, Any] = {"mask": Causal(), "head_gates": gates}
    seen: dict[str, Any] = {}

    def remember(*tensors: Tensor, **more: Any) -> Tensor:
        del more["dropout"], more["impl"]
        seen.update(tensors=tensors, more=more)
        return torch.zeros(BATCH, HEADS, SEQ_LEN, HEAD_DIM)

    with torch.set_grad_enabled(with_grad), pytest.MonkeyPatch.context() as patch:
        found = layer(given, observe=collect, impl=impl, **call)
        output = layer(given, impl=impl, **call)
        patch.setattr("headwise.nn.multi_head_attention.attention", remember)
        layer(given, **call)
        with torch.no_grad():
            expected = ops.observe(*seen["tensors"], **seen["more"], collect=collect)
    assert isinstance(found, ops.Observation)
    assert torch.equal(found.output, output)
    assert found.output.requires_grad == with_grad
    torch.testing.assert_close(found.logsumexp, expected.logsumexp)
    for name in ("weights", "entropy", "top_keys", "sink", "first_token"):
        one, other = getattr(found.evidence, name), getattr(expected.evidence, name)
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize("with_grad", [True, False])
def test_observing_while_training_changes_nothing_about_it(with_grad: bool) -> None:
    layer, given = made(dropout=0.5), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    found = []
    for more in ({}, {"observe": Collect(weights=True)}):
        torch.manual_seed(3)
        with torch.set_grad_enabled(with_grad):
            found.append(layer(given, mask=Causal(), **more))
    plain, observed = found
    assert torch.equal(observed.output, plain)
    assert not torch.equal(plain, layer.eval()(given, mask=Causal())), "nothing was dropped"
    torch.testing.assert_close(observed.evidence.weights.sum(-1), torch.ones(BATCH, HEADS, SEQ_LEN))
    assert not observed.evidence.weights.requires_grad
    if with_grad:
        parameters = list(layer.parameters())
        one, other = (torch.autograd.grad(each.sum(), parameters) for each in (plain, observed.output))
        assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_observing_keeps_no_weights_for_the_gradient() -> None:
    layer, given = made(), torch.randn(1, 512, D_MODEL)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        layer(given, mask=Causal(), observe=Collect())
    assert kept
    assert max(tensor.numel() for tensor in kept) < 512 * 512


def test_hooks_and_wrappers_see_an_observed_call() -> None:
    layer, given, called = made(), torch.randn(BATCH, SEQ_LEN, D_MODEL), []
    layer.register_forward_hook(lambda _, __, output: called.append(type(output).__name__))
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    seen = averaged(given, observe=Collect(top_k=2))
    layer(given, observe=Collect())
    assert called == ["Observation", "Observation"]
    assert torch.equal(seen.output, layer(given))


def test_observing_through_a_cache_is_a_step_like_any_other() -> None:
    layer, given = made(rope=Rope(), sinks=True), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    collect = Collect(weights=True)
    with torch.no_grad():
        whole = layer(given, mask=Causal(), observe=collect)
        cache = KVCache()
        layer(given[:, :12], cache=cache)
        found = layer(given[:, 12:], cache=cache, observe=collect)
    assert cache.length == SEQ_LEN
    torch.testing.assert_close(found.output, whole.output[:, 12:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        found.evidence.weights, whole.evidence.weights[:, :, 12:], rtol=1e-4, atol=1e-5
    )
    for name in ("first_token", "self_token", "previous_token", "entropy", "sink"):
        one, other = getattr(found.evidence, name), getattr(whole.evidence, name)[:, :, 12:]
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep_first", [0, 2])
def test_the_first_token_is_the_texts_own_and_not_the_oldest_key_that_is_left(keep_first: int) -> None:
    layer, given = made(), torch.randn(1, 1584, D_MODEL)
    cache = RollingKVCache(window=5, keep_first=keep_first)
    with torch.no_grad():
        early = layer(given[:, :1284], cache=cache, observe=Collect()).evidence.first_token
        seen = layer(given[:, 1284:], cache=cache, observe=Collect(weights=True)).evidence
    assert cache.key.shape[2] < 700, "nothing was dropped"
    if keep_first == 0:  # the oldest key left is token 1280, which token 1284 sees
        assert (seen.weights[:, :, 0, 0] > 0).all()
    assert (early[:, :, :5] > 0).all()
    assert (early[:, :, 5:] > 0).all() if keep_first else (early[:, :, 5:] == 0).all()
    assert (seen.first_token > 0).all() if keep_first else (seen.first_token == 0).all()


def test_behind_a_window_the_first_token_is_seen_by_nobody() -> None:
    layer, given, cache = made(window=5), torch.randn(1, 55, D_MODEL), KVCache()
    with torch.no_grad():
        layer(given[:, :50], cache=cache)
        seen = layer(given[:, 50:], cache=cache, observe=Collect()).evidence
    assert (seen.first_token == 0).all()


def test_what_is_observed_is_a_collect() -> None:
    layer, given = made(rope=Rope()), torch.randn(BATCH, 4, D_MODEL)
    with pytest.raises(ArgumentError, match=r"observe=True is a bool; pass a Collect, such as Collect\(\)"):
        layer(given, observe=True)
    cache = KVCache()
    with torch.no_grad(), pytest.raises(ArgumentError, match="observe='entropy' is a str; pass a Collect"):
        layer(given, observe="entropy", cache=cache)
    assert cache.length == 0
    with pytest.raises(ArgumentError, match="key is given with rope"):
        layer(given, given, observe=Collect())
    with pytest.raises(ArgumentError, match=r"heads\[0\]=9 does not exist; there is 0 to 5"):
        layer(given, observe=Collect(heads=[9]))
    seen = layer(given, mask=Window.of(2) & Lengths([4, 2]), observe=Collect())
    assert seen.output.shape == given.shape


def test_what_is_observed_stands_for_the_output_only_where_it_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tensors = torch.randn(3, 1, 2, 5, 8).unbind()
    with torch.no_grad():
        assert observing_is_attending(*tensors, dropout=0.0)
        assert not observing_is_attending(*(each.double() for each in tensors), dropout=0.0)
    # Even where the kernel computes all: observing has no gradient and drops nothing.
    monkeypatch.setattr("headwise.nn.observing.choose", lambda *_, **__: Choice("cpu", "kernel", ()))
    with torch.no_grad():
        assert not observing_is_attending(*tensors, dropout=0.1)
    assert not observing_is_attending(*tensors, dropout=0.0)
