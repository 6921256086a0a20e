"""The two real models of the catalogue, opened for real."""

import json
import subprocess
import sys

import pytest
import torch
from transformers import BertModel, LlamaForCausalLM

from headwise.models.opening.opened_model import open_model

# Opens a model in a fresh process.
OPEN_AGAIN = """
from headwise.models.opening.opened_model import open_model
print(open_model("smollm2-135m", offline=True).folder)
"""


def test_smollm2_is_the_decoder_it_should_be(smollm2):
    config = smollm2.model.config
    assert type(smollm2.model) is LlamaForCausalLM
    assert (smollm2.name, smollm2.source) == ("smollm2-135m", "catalogue")
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (30, 9, 3)
    assert (config.head_dim, config.hidden_size, config.vocab_size) == (64, 576, 49152)
    assert config.rope_parameters["rope_theta"] == 100000.0
    assert config.rms_norm_eps == pytest.approx(1e-5)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert config.tie_word_embeddings
    assert smollm2.model.lm_head.weight is smollm2.model.model.embed_tokens.weight
    assert sum(weight.numel() for weight in smollm2.model.parameters()) == 134_515_008


def test_smollm2_was_unpacked_into_plain_weights(smollm2):
    assert "quantization_config" not in json.loads((smollm2.folder / "config.json").read_text())
    linears = [module for name, module in smollm2.model.named_modules() if name.endswith("_proj")]
    assert len(linears) == 30 * 7
    assert {type(module) for module in linears} == {torch.nn.Linear}
    assert {weight.dtype for weight in smollm2.model.parameters()} == {torch.float32}
    assert not smollm2.model.training


def test_smollm2_knows_the_capital_of_france(smollm2):
    ids = smollm2.tokenizer("The capital of France is", return_tensors="pt")
    answer = smollm2.model.generate(**ids, max_new_tokens=2, do_sample=False)
    assert smollm2.tokenizer.decode(answer[0]) == "The capital of France is Paris."


def test_smollm2_talks_in_its_own_format(smollm2):
    talk = [{"role": "user", "content": "Hi"}]
    text = smollm2.tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert smollm2.tokenizer.convert_ids_to_tokens([0, 1, 2]) == [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
    ]


def test_minilm_is_an_encoder_without_a_head(minilm):
    config = minilm.model.config
    assert type(minilm.model) is BertModel
    assert (minilm.name, minilm.source) == ("minilm-l6", "catalogue")
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (6, 12, 384)
    assert not minilm.model.can_generate()
    assert not minilm.model.training


def test_minilm_finds_the_nearer_sentence(minilm):
    sentences = ["A cat sits on the mat.", "A kitten rests on a rug.", "Interest rates rose again."]
    batch = minilm.tokenizer(sentences, return_tensors="pt", padding=True)
    with torch.no_grad():
        states = minilm.model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    means = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    assert means[0] @ means[1] > 0.5 > means[0] @ means[2] + 0.3


@pytest.mark.usefixtures("smollm2", "minilm")
@pytest.mark.parametrize("name", ["smollm2-135m", "minilm-l6"])
def test_opening_writes_nothing(name, capfd):
    open_model(name)
    assert capfd.readouterr() == ("", "")


def test_a_second_open_in_a_fresh_process_downloads_and_says_nothing(smollm2):
    done = subprocess.run([sys.executable, "-c", OPEN_AGAIN], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{smollm2.folder}\n", "")
