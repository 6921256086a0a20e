"""The toy model does what it was built for, and only the two heads that are to do it do."""

import hashlib
import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor
from transformers import SmolLM3ForCausalLM

from headwise.errors import ModelError
from headwise.models.attachment import attach
from headwise.models.opening.catalogue import CATALOGUE, catalogue_folder
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.models.toy_induction.codes import CODE_LENGTH, sign_codes
from headwise.models.toy_induction.folder import folder_files
from headwise.models.toy_induction.vocabulary import toy_tokens
from headwise.models.toy_induction.weights import (
    INDUCTION_HEAD,
    MAX_POSITIONS,
    PREVIOUS_TOKEN_HEAD,
    rotary_frequencies,
)

EVERY_TOKEN = len(toy_tokens()) - 1
"""As many different tokens as there are besides the first one."""


def repeated(opened: OpenedModel, length: int, seed: int = 5) -> Tensor:
    """The first token, then `length` different tokens twice, `[1, 1 + 2 * length]`."""
    generator = torch.Generator().manual_seed(seed)
    drawn = 1 + torch.randperm(opened.model.config.vocab_size - 1, generator=generator)[:length]
    return torch.cat([torch.tensor([0]), drawn, drawn])[None]


def logits(opened: OpenedModel, ids: Tensor) -> Tensor:
    with torch.inference_mode():
        return opened.model(ids).logits[0]


def accuracy(opened: OpenedModel, ids: Tensor) -> float:
    """The share of the second half, without its first token, which nothing foretells, predicted right."""
    start = ids.shape[1] // 2 + 1
    guessed = logits(opened, ids)[start:-1].argmax(-1)
    return float((guessed == ids[0, start + 1 :]).float().mean())


def test_the_catalogue_makes_it_without_a_network(cache):
    opened = open_model("toy-induction", offline=True)
    assert (opened.name, opened.source) == ("toy-induction", "catalogue")
    assert type(opened.model) is SmolLM3ForCausalLM
    assert opened.folder.parent == cache / "models"
    assert sorted(path.name for path in opened.folder.iterdir()) == [
        "config.json",
        "headwise-manifest.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_a_folder_of_another_content_does_not_stand_in(cache, monkeypatch):
    first = catalogue_folder(CATALOGUE["toy-induction"], offline=True, notify=print)
    assert catalogue_folder(CATALOGUE["toy-induction"], offline=True, notify=print) == first
    changed = {**folder_files(), "config.json": b"{}"}
    monkeypatch.setattr("headwise.models.toy_induction.folder.folder_files", lambda: changed)
    second = catalogue_folder(CATALOGUE["toy-induction"], offline=True, notify=print)
    assert second != first
    assert (second / "config.json").read_bytes() == b"{}"


def test_a_cache_that_cannot_be_written_is_told(cache):
    cache.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match="HEADWISE_CACHE"):
        open_model("toy-induction")


def test_every_process_makes_the_same_bytes():
    code = (
        "import hashlib\n"
        "from headwise.models.toy_induction.folder import folder_files\n"
        "for name, content in folder_files().items(): print(name, hashlib.sha256(content).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"{name} {hashlib.sha256(content).hexdigest()}" for name, content in folder_files().items()
    ]


@pytest.mark.parametrize("length", [2, 67, 128, EVERY_TOKEN])
def test_it_predicts_repeated_tokens_without_a_mistake(toy, length):
    ids = repeated(toy, length)
    assert accuracy(toy, ids) == 1.0
    chosen = logits(toy, ids).softmax(-1)[length + 1 : -1].max(-1).values
    assert float(chosen.min()) > 0.99


def test_where_nothing_was_repeated_it_says_that_it_does_not_know(toy):
    length = 67
    before = logits(toy, repeated(toy, length)).softmax(-1)[: length + 1]
    torch.testing.assert_close(before, torch.full_like(before, 1 / toy.model.config.vocab_size))


def test_it_goes_on_with_a_text_that_repeats_itself(toy):
    batch = toy.tokenizer("The cat sat on the red mat. The cat", return_tensors="pt")
    ids = toy.model.generate(**batch, max_new_tokens=5, do_sample=False)
    assert toy.tokenizer.decode(ids[0, -5:]) == " sat on the red mat"


def test_attach_finds_its_layers_and_the_numbers_of_eager(toy):
    with attach(toy.model) as heads:
        assert [(layer.layer, layer.num_heads, layer.head_dim) for layer in heads.layers] == [
            (0, 4, 64),
            (1, 4, 64),
        ]
        assert heads.max_logit_difference < 1e-5
        assert heads.unseen == ()


def test_only_the_two_heads_matter(toy):
    ids = repeated(toy, 67)
    with attach(toy.model) as heads:
        whole = logits(toy, ids)
        for layer in range(2):
            for head in range(4):
                heads.ablate(layer=layer, head=head)
                if (layer, head) in {PREVIOUS_TOKEN_HEAD, INDUCTION_HEAD}:
                    assert accuracy(toy, ids) < 0.05
                else:
                    assert torch.equal(logits(toy, ids), whole)
                heads.restore(layer=layer, head=head)


def test_the_previous_token_head_writes_the_code_of_the_previous_token(toy):
    ids = repeated(toy, 67)
    with torch.inference_mode():
        states = toy.model(ids, output_hidden_states=True).hidden_states
    # The first token has none before it, and sees itself.
    before = torch.cat([ids[0, :1], ids[0, :-1]])
    expected = torch.from_numpy(sign_codes())[before]
    torch.testing.assert_close(states[1][0, :, CODE_LENGTH : 2 * CODE_LENGTH], expected, atol=1e-5, rtol=0)
    written = (states[1] - states[0])[0].clone()
    written[:, CODE_LENGTH : 2 * CODE_LENGTH] = 0
    assert not written.any()


def test_the_feed_forward_layers_add_exactly_nothing(toy):
    for layer in toy.model.model.layers:
        assert not layer.mlp(torch.randn(3, toy.model.config.hidden_size)).any()


def test_the_rotary_frequencies_are_those_of_transformers(toy):
    own = torch.from_numpy(rotary_frequencies()).float()
    torch.testing.assert_close(own, toy.model.model.rotary_emb.inv_freq)


def test_positional_heads_see_their_key_at_the_last_position(toy):
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(1, EVERY_TOKEN, (1, MAX_POSITIONS), generator=generator)
    ids[0, 0] = 0
    toy.model.set_attn_implementation("eager")
    with torch.inference_mode():
        weights = toy.model.model(ids, output_attentions=True).attentions[0][0]
    toy.model.set_attn_implementation("sdpa")
    last = weights[:, -1]
    for head, key in ((0, MAX_POSITIONS - 3), (1, MAX_POSITIONS - 2), (2, 0), (3, MAX_POSITIONS - 1)):
        assert float(last[head, key]) > 1 - math.exp(-20)
