"""Which models are attached: several at once, those of other element types, and none that cannot be."""

import copy
import threading

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach

from .attaching import IDS, assert_nothing_left, run
from .families import TEXT, family


@pytest.fixture
def model() -> LlamaForCausalLM:
    return family("LlamaForCausalLM").build()


def test_the_same_model_twice_is_refused(model):
    with attach(model):
        with pytest.raises(ArgumentError, match="LlamaForCausalLM is attached already"):
            attach(model)
        with pytest.raises(ArgumentError, match="LlamaModel is attached already"):
            attach(model.model)
        run(model)
    assert_nothing_left(model)


def test_two_models_are_attached_at_once_and_let_go_in_any_order(model):
    other = family("BertModel").build()
    first, second = attach(model, collect=Collect()), attach(other, collect=Collect())
    run(model)
    with torch.no_grad():
        other(IDS)
    assert len(first.evidence) == len(second.evidence) == 2
    first.detach()
    with torch.no_grad():
        other(IDS)
    assert model.config._attn_implementation == "sdpa"
    second.detach()
    assert_nothing_left(model)
    assert_nothing_left(other)


def test_models_that_share_a_config_object_are_refused():
    config = LlamaConfig(**TEXT)
    first, second = LlamaForCausalLM(config).eval(), LlamaForCausalLM(config).eval()
    with attach(first):
        with pytest.raises(ArgumentError, match="LlamaForCausalLM shares a config object with an attached"):
            attach(second)
        with pytest.raises(UnsupportedError, match=r"LlamaAttention .* belongs to no attached model"):
            second(IDS)


def test_a_copy_made_while_attached_is_refused(model):
    with attach(model):
        with pytest.raises(UnsupportedError, match=r"copying or pickling .* detach\(\) it first"):
            copy.deepcopy(model)
        part = copy.deepcopy(model.model)
        with pytest.raises(UnsupportedError, match="put in or copied while attached"):
            part(IDS)
        run(model)


def test_a_model_switched_away_while_attached_is_refused(model):
    with attach(model):
        model.set_attn_implementation("sdpa")
        with pytest.raises(UnsupportedError, match="switched to sdpa attention while attached"):
            model(IDS)
    assert_nothing_left(model)


def test_threads_run_their_own_models_and_share_one():
    models = [family(kind).build() for kind in ("LlamaForCausalLM", "GPT2LMHeadModel")]
    shared = family("Qwen2ForCausalLM").build()
    lengths: dict[str, list[tuple[int, int]]] = {}

    def work(name: str, own: nn.Module, seq_len: int) -> None:
        found = []
        with attach(own, collect=Collect()) as heads:
            for _ in range(5):
                run(own, input_ids=IDS[:, :seq_len])
                run(shared, input_ids=IDS[:, :seq_len])
                found.append((heads.evidence[1].entropy.shape[2], together.evidence[1].entropy.shape[2]))
        lengths[name] = found

    with attach(shared, collect=Collect()) as together:
        threads = [
            threading.Thread(target=work, args=(name, own, seq_len))
            for name, own, seq_len in (("a", models[0], 5), ("b", models[1], 11))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert lengths == {"a": [(5, 5)] * 5, "b": [(11, 11)] * 5}
    assert_nothing_left(shared)


def test_what_is_no_transformers_model_is_refused():
    with pytest.raises(
        ArgumentError, match=r"model is a Linear; attach takes a transformers PreTrainedModel"
    ):
        attach(nn.Linear(2, 2))


def test_a_model_without_numbers_is_refused():
    with torch.device("meta"):
        empty = LlamaForCausalLM(LlamaConfig(**TEXT))
    with pytest.raises(UnsupportedError, match="parameters on the meta device"):
        attach(empty)


def test_bfloat16_models_are_attached():
    model = family("LlamaForCausalLM").build().to(torch.bfloat16)
    with attach(model, collect=Collect()) as heads:
        assert heads.max_logit_difference < 0.1
        assert run(model).dtype == torch.bfloat16


def test_float64_models_are_attached_although_eager_gives_nan_for_rows_that_see_nothing():
    with attach(family("LlamaForCausalLM").build().double()) as heads:
        assert heads.max_logit_difference < 1e-5
