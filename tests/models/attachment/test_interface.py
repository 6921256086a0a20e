"""The attention function by itself: what it computes."""

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.evidence import Collect
from headwise.models.attachment import attach
from headwise.models.attachment.layer_call import LayerCall

from .calling import (
    BATCH,
    HEADS,
    KV_LEN,
    SEQ_LEN,
    Answering,
    SomeAttention,
    call,
    hidden_as,
    naive,
    some_visible,
    tensors,
)
from .families import family

IDS = torch.arange(3, 16)[None]


def test_scaling_is_taken_as_given():
    given = tensors()
    found = call(SomeAttention(), *given, None, scaling=0.7)
    torch.testing.assert_close(found, naive(*given, 0.0, scale=0.7))


@pytest.mark.parametrize("number", [torch.finfo(torch.float32).min, -torch.inf])
def test_a_float_mask_hides_as_the_boolean_one_does(number):
    given, visible, listener = tensors(), some_visible(), Answering(Collect(weights=True))
    by_bool = call(SomeAttention(), *given, visible)
    torch.testing.assert_close(by_bool, naive(*given, hidden_as(visible, -torch.inf)))
    by_float = call(SomeAttention(), *given, hidden_as(visible, number), listener=listener)
    torch.testing.assert_close(by_float, by_bool)
    assert torch.equal(listener.evidence.weights > 0, visible.expand(-1, HEADS, -1, -1))


def test_finite_entries_of_a_float_mask_are_added():
    given, visible = tensors(), some_visible()
    added = torch.randn(BATCH, HEADS, SEQ_LEN, KV_LEN).masked_fill(~visible, torch.finfo(torch.float32).min)
    torch.testing.assert_close(call(SomeAttention(), *given, added), naive(*given, added))


def test_position_bias_is_added_to_what_the_mask_lets_through():
    given, visible = tensors(), some_visible()
    bias = torch.randn(1, HEADS, SEQ_LEN, KV_LEN) * 3
    expected = naive(*given, bias + hidden_as(visible, -torch.inf))
    torch.testing.assert_close(call(SomeAttention(), *given, visible, position_bias=bias), expected)
    torch.testing.assert_close(
        call(SomeAttention(), *given, hidden_as(visible, torch.finfo(torch.float32).min), position_bias=bias),
        expected,
    )
    shifted = hidden_as(visible, -torch.inf) + 2.0 * some_visible().flip(3)
    torch.testing.assert_close(
        call(SomeAttention(), *given, shifted, position_bias=bias), naive(*given, bias + shifted)
    )


@pytest.mark.parametrize(("on_module", "keyword"), [(True, None), (False, True)])
def test_a_causal_layer_without_a_mask_is_computed_causally(on_module, keyword):
    given = tensors()
    causal = torch.ones(SEQ_LEN, KV_LEN, dtype=torch.bool).tril(KV_LEN - SEQ_LEN)
    found = call(SomeAttention(on_module), *given, None, is_causal=keyword)
    torch.testing.assert_close(found, naive(*given, hidden_as(causal, -torch.inf)))


def test_no_mask_and_no_claim_means_that_all_keys_are_seen():
    given = tensors()
    torch.testing.assert_close(call(SomeAttention(), *given, None), naive(*given, 0.0))
    torch.testing.assert_close(call(SomeAttention(True), *given, None, is_causal=False), naive(*given, 0.0))
    one = tensors(seq_len=1)
    torch.testing.assert_close(call(SomeAttention(True), *one, None), naive(*one, 0.0))


def test_a_window_is_applied_only_where_no_mask_carries_it():
    given, visible = tensors(), some_visible()
    places = torch.arange(SEQ_LEN)[:, None] + KV_LEN - SEQ_LEN - torch.arange(KV_LEN)
    with_mask = call(SomeAttention(True), *given, visible, sliding_window=2)
    torch.testing.assert_close(with_mask, naive(*given, hidden_as(visible, -torch.inf)))
    behind = (places >= 0) & (places < 3)
    causal = call(SomeAttention(True), *given, None, sliding_window=3)
    torch.testing.assert_close(causal, naive(*given, hidden_as(behind, -torch.inf)))
    around = call(SomeAttention(), *given, None, sliding_window=3)
    torch.testing.assert_close(around, naive(*given, hidden_as(places.abs() < 3, -torch.inf)))


def test_a_query_of_batch_one_meets_every_batch():
    query, key, value = tensors()
    found = call(SomeAttention(), query[:1], key, value, None)
    torch.testing.assert_close(found, naive(query[:1].expand(BATCH, -1, -1, -1), key, value, 0.0))


def test_evidence_of_a_static_cache_counts_from_the_last_key_that_was_written():
    query, key, value = tensors(seq_len=2, kv_len=7)
    visible = torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0, 0]], dtype=torch.bool)[None, None]
    listener = Answering(Collect(weights=True))
    call(SomeAttention(True), query, key, value, visible, listener=listener)
    weights = listener.evidence.weights
    assert weights.shape == (BATCH, HEADS, 2, 5)
    torch.testing.assert_close(
        listener.evidence.self_token, torch.stack([weights[:, :, 0, 3], weights[:, :, 1, 4]], -1)
    )


def by(impl: str, *given: Tensor, **options) -> Tensor:
    """What one implementation gives, `[batch, seq_len, num_heads, head_dim]`."""
    return ops.attention_with_logsumexp(*given, impl=impl, **options).output.transpose(1, 2)


@pytest.mark.parametrize("collect", [None, Collect()])
@pytest.mark.parametrize("mask", ["runs", "rows with gaps"])
def test_the_kernel_answers_also_where_a_gradient_flows(collect, mask):
    """Watched or not: watching a head must change no bit of what it gives."""
    given, listener = tensors(), Answering(collect)
    causal = torch.ones(1, 1, SEQ_LEN, KV_LEN, dtype=torch.bool).tril(KV_LEN - SEQ_LEN)
    visible = causal if mask == "runs" else some_visible()
    by_kernel, by_torch = by("cpu", *given, mask=visible), by("torch", *given, mask=visible)
    assert not torch.equal(by_kernel, by_torch)
    assert torch.equal(call(SomeAttention(), *given, visible, listener=listener), by_kernel)
    given[0].requires_grad_()
    found = call(SomeAttention(), *given, visible, listener=listener)
    assert torch.equal(found, by_kernel)
    assert found.requires_grad
    with torch.no_grad():
        assert torch.equal(call(SomeAttention(), *given, visible, listener=listener), by_kernel)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("collect", [None, Collect()])
def test_the_kernel_answers_every_step_of_generate(cache, collect, monkeypatch):
    model, steps = family("LlamaForCausalLM").build(), []
    attend, observe = LayerCall.attend, LayerCall.observe

    def check(answered: LayerCall, head_gates: Tensor | None, output: Tensor) -> None:
        terms = {"mask": answered.mask, "scale": answered.scale, "head_gates": head_gates}
        given = answered.query, answered.key, answered.value
        assert torch.equal(output.transpose(1, 2), by("cpu", *given, **terms))
        steps.append((answered.query.shape[2], answered.key.shape[2]))

    def attending(self: LayerCall, head_gates: Tensor | None) -> Tensor:
        output = attend(self, head_gates)
        check(self, head_gates, output)
        return output

    def observing(self: LayerCall, head_gates: Tensor | None, collect: Collect, **options):
        output, evidence = observe(self, head_gates, collect, **options)
        check(self, head_gates, output)
        return output, evidence

    with attach(model, collect=collect):
        monkeypatch.setattr(LayerCall, "attend", attending)
        monkeypatch.setattr(LayerCall, "observe", observing)
        model.generate(IDS, max_new_tokens=3, do_sample=False, eos_token_id=None, cache_implementation=cache)
    lengths = (13, 14, 15) if cache == "dynamic" else (steps[0][1],) * 3
    rows = (13, 1, 1)
    assert steps == [step for step in zip(rows, lengths, strict=True) for _ in range(2)]
