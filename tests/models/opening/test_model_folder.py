"""Folders: which weights are taken, what is refused, and that nothing but them is looked at."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)

from headwise.errors import ModelError
from headwise.models.opening.opened_model import open_model

from ..folders import save, tiny_llama


@pytest.fixture
def llama(tmp_path, minilm) -> Path:
    return save(tiny_llama(), tmp_path / "llama", tokenizer_from=minilm.folder)


def rewrite(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def same_weights(model, other) -> bool:
    ours, theirs = model.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_folder_gives_the_model_that_was_saved(llama):
    opened = open_model(llama)
    assert same_weights(opened.model, tiny_llama())
    assert not opened.model.training
    assert opened.model.config._attn_implementation == "sdpa"
    assert (opened.source, opened.folder, opened.name) == ("folder", llama, str(llama))


def test_weights_of_16_bits_become_float32(llama):
    half = {name: weight.bfloat16() for name, weight in load_file(llama / "model.safetensors").items()}
    save_file(half, llama / "model.safetensors", metadata={"format": "pt"})
    rewrite(llama / "config.json", dtype="bfloat16")
    opened = open_model(llama)
    assert {weight.dtype for weight in opened.model.parameters()} == {torch.float32}
    assert torch.equal(opened.model.model.norm.weight, half["model.norm.weight"].float())


def test_the_file_that_is_named_is_taken(llama):
    other = tiny_llama()
    with torch.no_grad():
        other.model.norm.weight += 1
    other.save_pretrained(llama / "other")
    shutil.move(llama / "other/model.safetensors", llama / "ema.safetensors")
    assert same_weights(open_model(llama / "ema.safetensors").model, other)
    assert same_weights(open_model(llama / "model.safetensors").model, tiny_llama())
    assert same_weights(open_model(llama).model, tiny_llama())


def test_one_file_of_any_name_is_enough(llama):
    (llama / "model.safetensors").rename(llama / "weights.safetensors")
    assert same_weights(open_model(llama).model, tiny_llama())


def test_a_model_in_several_files_is_put_together(llama):
    tiny_llama().save_pretrained(llama / "parts", max_shard_size="20KB")
    (llama / "model.safetensors").unlink()
    parts = sorted((llama / "parts").glob("model*.safetensors*"))
    assert len(parts) > 2
    for part in parts:
        shutil.move(part, llama / part.name)
    assert same_weights(open_model(llama).model, tiny_llama())
    # A part stands for the whole.
    assert same_weights(open_model(llama / parts[0].name).model, tiny_llama())


@pytest.mark.parametrize(
    ("places", "match"),
    [
        ({"a": "../model.safetensors"}, r"points to '\.\./model\.safetensors'; it may only"),
        ({"a": "/etc/model.safetensors"}, r"points to '/etc/model\.safetensors'"),
        ({"a": "pytorch_model.bin"}, r"points to 'pytorch_model\.bin'; it may only point to \.safetensors"),
        ({"a": "missing.safetensors"}, r"points to missing\.safetensors, which is not there"),
        ({"a": 5}, r"has no weight_map"),
        ({}, r"has no weight_map"),
        ("text", r"has no weight_map"),
    ],
)
def test_an_index_that_points_elsewhere_is_refused(llama, places, match):
    (llama / "model.safetensors").rename(llama / "part.safetensors")
    (llama / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    with pytest.raises(ModelError, match=match):
        open_model(llama)


def test_a_pickle_beside_the_weights_is_not_touched(llama):
    (llama / "pytorch_model.bin").write_bytes(b"\x80\x04never read")
    assert same_weights(open_model(llama).model, tiny_llama())


def test_folders_that_are_no_model_are_refused(tmp_path, llama):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"the folder .*empty is empty"):
        open_model(tmp_path / "empty")
    (llama / "config.json").rename(llama / "other.json")
    with pytest.raises(ModelError, match=r"the folder .*llama has no config\.json; pass a folder saved by"):
        open_model(llama)
    (llama / "other.json").rename(llama / "config.json")
    (llama / "model.safetensors").rename(tmp_path / "moved.safetensors")
    with pytest.raises(ModelError, match=r"has no weights: no \.safetensors file lies in it"):
        open_model(llama)
    for name in "ab":
        shutil.copy(tmp_path / "moved.safetensors", llama / f"{name}.safetensors")
    with pytest.raises(
        ModelError, match=r"has 2 \.safetensors files and neither .* such as .*a\.safetensors"
    ):
        open_model(llama)


def test_a_gguf_file_in_a_folder_is_pointed_to(tmp_path):
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match=r"has no config\.json; pass the file .*tiny\.gguf"):
        open_model(tmp_path)


def test_an_adapter_is_refused(llama):
    (llama / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(ModelError, match=r"holds an adapter"):
        open_model(llama)


def test_a_config_cannot_choose_the_attention(llama):
    rewrite(
        llama / "config.json", _attn_implementation_internal="org/kernel", attn_implementation="org/kernel"
    )
    assert open_model(llama).model.config._attn_implementation == "sdpa"


def test_a_tokenizer_with_code_of_its_own_is_refused(llama):
    rewrite(llama / "tokenizer_config.json", auto_map={"AutoTokenizer": ["code.Tokenizer", None]})
    with pytest.raises(ModelError, match=r"tokenizer_config\.json asks to run Python code"):
        open_model(llama)


def test_a_text_model_without_a_tokenizer_is_refused(tmp_path):
    folder = save(tiny_llama(), tmp_path / "llama", tokenizer_from=None)
    with pytest.raises(ModelError, match=r"has no tokenizer; copy the model's tokenizer\.json"):
        open_model(folder)


def test_a_model_of_images_needs_no_tokenizer(tmp_path):
    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=29, image_size=32
    )
    opened = open_model(save(ViTModel(config), tmp_path / "vit", tokenizer_from=None))
    assert opened.tokenizer is None
    assert type(opened.model) is ViTModel


def test_weights_that_do_not_fit_the_config_are_refused(llama):
    weights = load_file(llama / "model.safetensors")
    del weights["model.layers.1.self_attn.q_proj.weight"]
    save_file(weights, llama / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"do not fit its config: 1 of 29 are not there, .*model\.layers\.1"):
        open_model(llama)


def test_weights_of_other_sizes_than_the_config_are_refused(llama):
    rewrite(llama / "config.json", intermediate_size=41)
    with pytest.raises(
        ModelError, match=r"cannot be opened: the weights have other sizes than the config says"
    ):
        open_model(llama)


def test_a_config_of_far_more_weights_than_there_are_is_refused_before_memory_is_taken(llama):
    rewrite(llama / "config.json", intermediate_size=1 << 31)
    with pytest.raises(ModelError, match=r"describes 46\d{10} weights and the \.safetensors hold 20784;"):
        open_model(llama)


def test_a_head_for_masked_words_is_left_off_and_no_pooler_is_no_fault(tmp_path, minilm):
    config = BertConfig(
        vocab_size=101, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=29
    )
    saved = BertForMaskedLM(config).eval()
    opened = open_model(save(saved, tmp_path / "bert", tokenizer_from=minilm.folder))
    assert type(opened.model) is BertModel
    ids = torch.tensor([[5, 7, 11]])
    with torch.no_grad():
        assert torch.equal(opened.model(ids).last_hidden_state, saved.bert(ids).last_hidden_state)


def test_an_encoder_decoder_opens_whole(tmp_path, minilm):
    config = T5Config(vocab_size=101, d_model=24, d_kv=7, d_ff=29, num_layers=2, num_heads=3)
    opened = open_model(
        save(T5ForConditionalGeneration(config), tmp_path / "t5", tokenizer_from=minilm.folder)
    )
    assert type(opened.model) is T5ForConditionalGeneration
    assert opened.model.config.is_encoder_decoder


def test_the_generation_settings_come_along(llama):
    (llama / "generation_config.json").write_text('{"eos_token_id": [2, 5], "max_new_tokens": 13}')
    assert open_model(llama).model.generation_config.eos_token_id == [2, 5]


def test_a_folder_that_may_not_be_read_is_refused(llama, monkeypatch):
    def denied(self: Path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(ModelError, match=r"the folder .*llama cannot be read: Permission denied"):
        open_model(llama)
