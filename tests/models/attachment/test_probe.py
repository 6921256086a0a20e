"""The proof on a probe: what it reaches, what it refuses, and what a model may not do afterwards."""

import gc
import sys
import types
import weakref

import pytest
import torch
from transformers import DiffLlamaConfig, DiffLlamaForCausalLM, LlamaForCausalLM

from headwise.errors import ArgumentError, MismatchError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.probe_inputs import probes

from .families import GROUPED, TEXT, Family, family

IDS = torch.arange(3, 16)[None]
STATES = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(1))


def test_the_probe_is_padded_on_both_sides_and_holds_no_special_token():
    model = family("LlamaForCausalLM").build(eos_token_id=[2, 11], image_token_id=48)
    inputs = next(probes(model))
    mask = inputs["attention_mask"]
    assert [row.tolist() for row in mask] == [[1] * 13, [0] * 3 + [1] * 10, [1] * 11 + [0] * 2]
    assert not set(inputs["input_ids"][mask.bool()].tolist()) & {0, 1, 2, 11, 48}
    assert len({tuple(row.tolist()) for row in inputs["input_ids"]}) == 3


def test_the_probe_fits_a_model_of_few_positions():
    model = family("BertModel").build(max_position_embeddings=5)
    assert next(probes(model))["input_ids"].shape == (3, 5)
    with attach(model) as heads:
        assert len(heads.layers) == 2


def test_what_answers_when_nothing_is_traced_is_proven_as_well(monkeypatch):
    """The kernel leaves operations that are watched to plain torch, so that probe says nothing of it."""
    attend = LayerCall.attend

    def wrong_by_itself(self: LayerCall, head_gates: torch.Tensor | None) -> torch.Tensor:
        output = attend(self, head_gates)
        return output if torch._C._len_torch_dispatch_stack() else 1.1 * output

    monkeypatch.setattr(LayerCall, "attend", wrong_by_itself)
    with pytest.raises(MismatchError, match="LlamaForCausalLM gives other numbers"):
        attach(family("LlamaForCausalLM").build())


def test_a_probe_may_be_given():
    with attach(family("LlamaForCausalLM").build(), probe={"input_ids": IDS}) as heads:
        assert len(heads.layers) == 2


def test_a_probe_that_does_not_run_is_refused():
    model = family("LlamaForCausalLM").build()
    with pytest.raises(ArgumentError, match="probe with pixels does not run through LlamaForCausalLM"):
        attach(model, probe={"pixels": IDS})
    with pytest.raises(ArgumentError, match="probe is a Tensor; give inputs of the model by keyword"):
        attach(model, probe=IDS)
    with pytest.raises(ArgumentError, match="probe holds padding only; give at least one token to compare"):
        attach(model, probe={"input_ids": IDS, "attention_mask": torch.zeros_like(IDS)})


def test_a_model_whose_inputs_are_not_known_asks_for_a_probe():
    model = family("LlamaForCausalLM").build()
    model.main_input_name = "wishes"
    with pytest.raises(UnsupportedError, match=r"no probe .* make its main input, wishes\); pass probe="):
        attach(model)


def test_a_model_that_gives_nan_is_refused():
    model = family("LlamaForCausalLM").build()
    model.lm_head.weight.data[3] = torch.nan
    with pytest.raises(UnsupportedError, match=r"LlamaForCausalLM gives NaN or inf \(look for them in its"):
        attach(model)
    with pytest.raises(UnsupportedError, match=r"gives NaN or inf .*weights\) for the probe"):
        attach(model, probe={"input_ids": IDS})


def test_a_layer_that_the_probe_did_not_reach_is_named_and_refuses_to_run():
    model = family("BertModel").build(is_decoder=True, add_cross_attention=True)
    right = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}
    with attach(model, probe=right) as heads:
        assert {each.name for each in heads.unseen} >= {"encoder.layer.0.crossattention.self"}
        assert {each.reason for each in heads.unseen} == {"did not run on the probe"}
        with torch.no_grad(), pytest.raises(UnsupportedError, match=r"did not run on the probe.* probe=\{"):
            model(**right, encoder_hidden_states=STATES)
    with attach(model, probe={**right, "encoder_hidden_states": STATES}, collect=Collect()) as heads:
        assert [layer.kind for layer in heads.layers] == ["self", "cross"] * 2
        assert not heads.unseen
        with torch.no_grad():
            model(**right, encoder_hidden_states=STATES)
        assert len(heads.evidence) == 4


def test_a_layer_that_attends_more_often_than_on_the_probe_is_refused():
    model = family("AlbertModel").build()
    with attach(model) as heads, torch.no_grad():
        model.config.num_hidden_layers = 4
        with pytest.raises(UnsupportedError, match="attends 4 times in one forward and 3 times on the probe"):
            model(IDS)
        model.config.num_hidden_layers = 3
        assert len(heads.layers) == 3
        model(IDS)


def test_a_layer_that_attends_in_pieces_is_refused():
    torch.manual_seed(3)
    model = DiffLlamaForCausalLM(DiffLlamaConfig(**GROUPED)).eval()
    with pytest.raises(
        UnsupportedError, match=r"cuts the input of .* into pieces \(2 attention calls in 1 forw"
    ):
        attach(model)


def test_a_class_whose_source_cannot_be_read_is_refused(monkeypatch):
    # transformers remembers for each class, and for what inherits from it, that it could be switched.
    monkeypatch.delattr(LlamaForCausalLM, "_can_set_attn_implementation_cached_value", raising=False)
    monkeypatch.setitem(sys.modules, "prompt", types.ModuleType("prompt"))
    kind = type("TypedIn", (LlamaForCausalLM,), {"__module__": "prompt"})
    model = kind(family("LlamaForCausalLM").build().config).eval()
    with pytest.raises(UnsupportedError, match="TypedIn is defined where its source cannot be read"):
        attach(model)


def test_a_class_that_will_not_be_switched_is_refused():
    class Stubborn(LlamaForCausalLM):
        def set_attn_implementation(self, name):
            raise ValueError(f"no {name} here")

    model = Stubborn(family("LlamaForCausalLM").build().config).eval()
    with pytest.raises(UnsupportedError, match=r"Stubborn cannot be switched to .*: no headwise here"):
        attach(model)


def test_what_a_model_pools_from_a_padding_row_is_compared_without_left_padding():
    """CLIP's text half reads the first token where it finds no end token: padding, in a row padded left."""
    model = family("CLIPModel").build()
    model.text_model.eos_token_id = model.text_model.config.eos_token_id = 90
    with attach(model) as heads:
        assert heads.max_logit_difference < 1e-5


def test_evidence_is_that_of_the_latest_forward_and_nothing_older():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads, torch.no_grad():
        with pytest.raises(ArgumentError, match=r"layer 0 \(.*\) has no evidence of the latest forward"):
            heads.evidence[0]
        model(IDS)
        assert 1 in heads.evidence
        assert list(heads.evidence) == list(heads.layers)
        assert heads.evidence[1].entropy is heads.evidence["model.layers.1.self_attn"].entropy
        model(IDS[:, :5])
        assert heads.evidence[1].entropy.shape == (1, 4, 5)
        heads.collect = None
        model(IDS)
        assert len(heads.evidence) == 0
        assert 1 not in heads.evidence
        with pytest.raises(ArgumentError, match="layer=9 does not exist"):
            heads.evidence[9]


def test_a_part_that_is_run_by_itself_is_recorded_as_often_as_it_runs():
    """As `generate` runs an encoder: without a forward of the whole model around it."""
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect()) as heads, torch.no_grad():
        for seq_len in (13, 7, 5):
            model.model(IDS[:, :seq_len])
            assert heads.evidence[1].entropy.shape == (1, 4, seq_len)


def test_each_layer_may_collect_something_else():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect={1: Collect(weights=True)}) as heads, torch.no_grad():
        model(IDS)
        assert list(heads.evidence) == [heads.layers[1]]
        assert heads.evidence[1].weights.shape == (1, 4, 13, 13)
        heads.collect = {heads.layers[0]: Collect(), "model.layers.1.self_attn": Collect(top_k=2)}
        assert heads.collect == {heads.layers[0]: Collect(), heads.layers[1]: Collect(top_k=2)}
        model(IDS)
        assert heads.evidence[0].top_keys is None
        assert heads.evidence[1].top_keys.shape == (1, 4, 13, 2)


@pytest.mark.parametrize("wrong", ["weights", True, {0: "weights"}, [0]])
def test_what_is_no_collect_is_refused(wrong):
    model = family("LlamaForCausalLM").build()
    with pytest.raises(ArgumentError, match=r"collect=.* is neither a Collect, nor a mapping"):
        attach(model, collect=wrong)
    assert model.config._attn_implementation == "sdpa"
    with pytest.raises(ArgumentError, match="layer=5 does not exist; the attention layers are 0 to 1"):
        attach(model, collect={5: Collect()})


def test_collected_weights_are_the_models_own_attentions():
    """A program that asks the model itself for its maps gets them, as it does under eager."""
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(weights=True)) as heads, torch.no_grad():
        maps = model(IDS, output_attentions=True).attentions
        assert [each.shape for each in maps] == [(1, 4, 13, 13)] * 2
        assert torch.equal(maps[1], heads.evidence[1].weights)


def test_numbers_of_a_layer_are_its_layer_idx_and_not_its_place():
    with attach(family("JambaForCausalLM").build(), collect=Collect()) as heads:
        with torch.no_grad():
            heads._model(IDS)
        assert heads.evidence[3].entropy.shape == (1, 4, 13)
        with pytest.raises(ArgumentError, match="layer=0 does not exist; the attention layers are 1, 3"):
            heads.evidence[0]


def test_a_hybrid_without_layer_idx_is_numbered_by_its_paths():
    settings = {
        **TEXT,
        "num_hidden_layers": 6,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "attention_hidden_size": 64,
        "num_key_value_heads": 4,
        "n_mamba_heads": 2,
        "mamba_d_state": 4,
        "mamba_dt_rank": 4,
    }
    with attach(Family("ZambaForCausalLM", settings).build()) as heads:
        assert [(layer.layer, layer.name) for layer in heads.layers] == [
            (number, f"model.layers.{number}.shared_transf.self_attn") for number in (2, 4)
        ]


def test_a_number_that_several_stacks_share_is_refused():
    model = family("CLIPModel").build()
    with attach(model, collect=Collect()) as heads, torch.no_grad():
        model(input_ids=IDS, pixel_values=torch.randn(1, 3, 24, 24))
        with pytest.raises(
            ArgumentError, match=r"layer=1 stands for 2 layers; name one: text_model\.encoder"
        ):
            heads.evidence[1]
        assert heads.evidence["text_model.encoder.layers.1.self_attn"].entropy.shape == (1, 4, 13)
        assert heads.evidence["vision_model.encoder.layers.1.self_attn"].entropy.shape == (1, 4, 10)


def test_nothing_of_a_forward_is_kept_that_was_not_collected():
    model = family("LlamaForCausalLM").build()
    with attach(model, collect=Collect(weights=True)) as heads, torch.no_grad():
        model(IDS)
        kept = weakref.ref(heads.evidence[1].weights)
        assert kept() is not None
        heads.collect = None
        model(IDS)
        gc.collect()
        assert kept() is None
        before = sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())
        for _ in range(3):
            model(IDS)
        gc.collect()
        assert sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects()) == before


def test_text_config_is_read_for_the_vocabulary():
    assert next(probes(family("CLIPModel").build()))["input_ids"].max() < TEXT["vocab_size"]
