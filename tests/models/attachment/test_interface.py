"""The attention function by itself: its keywords, its masks, and what it refuses."""

import weakref

import pytest
import torch
from torch import Tensor, nn
from transformers.masking_utils import bidirectional_mask_function

from headwise import masks, ops
from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach, interface
from headwise.models.attachment.keywords import HARMLESS, MENDS
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.mask_reading import read

from .families import family

IDS = torch.arange(3, 16)[None]
BATCH, HEADS, KV_HEADS, SEQ_LEN, KV_LEN, HEAD_DIM = 2, 6, 3, 5, 7, 11


class Answering:
    """A listener that only computes, with evidence or without."""

    def __init__(self, collect: Collect | None = None) -> None:
        self.collect = collect
        self.evidence = None

    def answer(self, module, call):
        if self.collect is None:
            return call.attend(None), None
        output, self.evidence = call.observe(None, self.collect)
        return output, self.evidence

    def read_mask(self, mask, sizes):
        return read(mask, masks.Sizes(*sizes))

    def watches(self, module) -> bool:
        return self.collect is not None

    def asks_for_attentions(self, module) -> bool:
        return False


class SomeAttention(nn.Module):
    """Stands for a layer of a family."""

    def __init__(self, is_causal: bool = False) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.eval()


def tensors(seq_len: int = SEQ_LEN, kv_len: int = KV_LEN) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(11)
    shapes = ((HEADS, seq_len), (KV_HEADS, kv_len), (KV_HEADS, kv_len))
    query, key, value = (torch.randn(BATCH, heads, length, HEAD_DIM) for heads, length in shapes)
    return query, key, value


def call(module: nn.Module, *given: Tensor | None, listener: Answering | None = None, **keywords) -> Tensor:
    """The function's output, `[batch, seq_len, num_heads, head_dim]`."""
    listener = listener or Answering()
    interface.LISTENERS[module] = weakref.ref(listener)
    try:
        return interface.attention_function(module, *given, **keywords)[0]
    finally:
        del interface.LISTENERS[module]


def naive(
    query: Tensor, key: Tensor, value: Tensor, added: Tensor | float, scale: float | None = None
) -> Tensor:
    key, value = (each.repeat_interleave(HEADS // KV_HEADS, dim=1) for each in (key, value))
    scores = query @ key.mT * (scale or HEAD_DIM**-0.5) + added
    return (scores.softmax(-1) @ value).transpose(1, 2)


def hidden_as(visible: Tensor, number: float) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, number)


def some_visible() -> Tensor:
    torch.manual_seed(12)
    visible = torch.randn(BATCH, 1, SEQ_LEN, KV_LEN) > 0
    visible[..., 0] = True
    return visible


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


def test_a_mask_of_other_sizes_is_refused():
    given = tensors()
    for visible in (torch.ones(BATCH, 1, SEQ_LEN, KV_LEN + 1, dtype=torch.bool), some_visible()[..., :-1]):
        with pytest.raises(ArgumentError, match=r"mask has shape \(2, 1, 5, .\), but kv_len is 7, not"):
            call(SomeAttention(), *given, visible)


@pytest.mark.parametrize("causal", [False, True])
def test_the_mask_is_always_a_tensor(causal):
    """Also where transformers would leave it out for its own functions, which then have to guess."""
    see_all = {} if causal else {"mask_function": bidirectional_mask_function}
    skips = {"allow_is_causal_skip": True, "allow_is_bidirectional_skip": True}
    mask = interface.mask_function(batch_size=2, q_length=5, kv_length=5, **see_all, **skips)
    assert mask.dtype == torch.bool
    assert torch.equal(mask[1, 0], torch.ones(5, 5).tril().bool() if causal else torch.ones(5, 5).bool())


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_harmless_keywords_change_nothing(name):
    given = tensors()
    assert torch.equal(call(SomeAttention(), *given, None, **{name: 3}), call(SomeAttention(), *given, None))


@pytest.mark.parametrize("name", [*sorted(MENDS), "a_keyword_of_tomorrow"])
def test_other_keywords_are_refused_by_name_unless_they_ask_nothing(name):
    given = tensors()
    with pytest.raises(UnsupportedError, match=f"SomeAttention passes {name}=... to its attention"):
        call(SomeAttention(), *given, None, **{name: torch.ones(2)[0]})
    assert torch.equal(
        call(SomeAttention(), *given, None, **{name: None}), call(SomeAttention(), *given, None)
    )


def second_of(listener: Answering, **keywords):
    """What the function returns second, which the model takes for attention weights."""
    module = SomeAttention()
    interface.LISTENERS[module] = weakref.ref(listener)
    return interface.attention_function(module, *tensors(), None, **keywords)[1]


def test_weights_are_returned_second_where_they_are_collected():
    listener = Answering(Collect(weights=True))
    for keywords in ({}, {"output_attentions": True}, {"output_attentions": False}):
        assert second_of(listener, **keywords) is listener.evidence.weights


def test_evidence_is_returned_second_where_it_is_asked_for():
    listener = Answering(Collect())
    assert second_of(listener, output_attentions=True) is listener.evidence
    assert second_of(listener) is second_of(listener, output_attentions=False) is None


def test_output_attentions_of_a_layer_that_is_not_watched_is_refused():
    assert second_of(Answering(), output_attentions=False) is None
    with pytest.raises(UnsupportedError, match=r"output_attentions.*pass attach a collect= for this layer"):
        second_of(Answering(), output_attentions=True)


@pytest.mark.parametrize(
    "mask",
    [torch.ones(SEQ_LEN, KV_LEN, dtype=torch.bool), torch.ones(BATCH, 1, SEQ_LEN, KV_LEN, dtype=torch.long)],
)
def test_masks_of_another_form_are_refused(mask):
    with pytest.raises(
        UnsupportedError, match=r"SomeAttention passes a mask of shape .*; headwise reads rank 4"
    ):
        call(SomeAttention(), *tensors(), mask)


def test_a_module_that_belongs_to_no_attachment_is_refused():
    with pytest.raises(UnsupportedError, match="SomeAttention runs headwise's attention but belongs to no"):
        interface.attention_function(SomeAttention(), *tensors(), None)


def test_keywords_given_to_the_model_are_refused_in_its_layers():
    model = family("LlamaForCausalLM").build()
    lengths = torch.tensor([0, 6, 13])
    with attach(model), torch.no_grad():
        with pytest.raises(
            UnsupportedError, match=r"LlamaAttention passes cu_seq_lens_q=.* pass one row per text"
        ):
            model(IDS, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths)
        with pytest.raises(UnsupportedError, match="LlamaAttention passes my_option="):
            model(IDS, my_option=1)
        assert model(IDS, num_items_in_batch=torch.tensor(3)).logits.shape == (1, 13, 97)


@pytest.mark.parametrize("kind", ["LlamaForCausalLM", "BertModel"])
@pytest.mark.parametrize("as_float", [False, True])
def test_a_mask_of_rank_four_passes_through(kind, as_float):
    model = family(kind).build()
    torch.manual_seed(13)
    visible = (torch.randn(1, 1, 13, 13) > 0) | torch.eye(13, dtype=torch.bool)
    additive = hidden_as(visible, torch.finfo(torch.float32).min)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS, attention_mask=additive)[0]
        with attach(model):
            found = model(IDS, attention_mask=additive if as_float else visible)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("in_call", [False, True])
def test_a_decoder_told_to_look_both_ways_does(in_call):
    model = family("LlamaForCausalLM").build()
    told = {"is_causal": False} if in_call else {}
    if not in_call:
        model.config.is_causal = False
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(IDS, **told).logits
        with attach(model, collect=Collect(weights=True)) as heads:
            torch.testing.assert_close(model(IDS, **told).logits, expected, atol=1e-5, rtol=0)
            assert (heads.evidence[0].weights > 0).all()


def test_the_name_means_nothing_to_transformers():
    assert not [part for part in ("sdpa", "flash", "flex", "/", "eager", "paged") if part in interface.NAME]
