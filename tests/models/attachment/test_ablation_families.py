"""Heads switched off in models that are no decoder of one text."""

import pytest
import torch

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import attach

from .ablating import IDS, PADDED, logits
from .families import family


def test_resample_in_a_vision_model_goes_by_patch():
    model = family("ViTModel").build()
    first, second = torch.randn(2, 1, 3, 24, 24)
    with attach(model) as heads, torch.no_grad():
        for layer in heads.layers:
            for head in range(4):
                heads.ablate(layer=layer, head=head, how="resample", baseline={"pixel_values": second})
        changed = model(pixel_values=first).last_hidden_state
        own = {"pixel_values": first}
        heads.restore()
        heads.ablate(layer=1, head=2, how="resample", baseline=own)
        torch.testing.assert_close(model(**own).last_hidden_state, model(**own).last_hidden_state)
        heads.restore()
        whole = model(**own).last_hidden_state
        assert (changed - whole).abs().max() > 0.1


def test_heads_of_an_encoder_decoder_are_named_by_path():
    model = family("T5ForConditionalGeneration").build()
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, :7]}
    with attach(model, collect=Collect()) as heads:
        whole = logits(model, **inputs)
        with pytest.raises(ArgumentError, match=r"layer=0 stands for 3 layers; name one: decoder\.block\.0"):
            heads.ablate(layer=0, head=1)
        changes = []
        for layer in heads.layers[:4]:
            heads.ablate(layer=layer.name, head=1)
            changes.append((logits(model, **inputs) - whole).abs().max())
            heads.restore(layer=layer, head=1)
        assert min(changes) > 1e-3
        cross = "decoder.block.0.layer.1.EncDecAttention"
        heads.ablate(layer=cross, head=1, how="mean", baseline=inputs)
        assert heads.evidence[cross].entropy.shape == (1, 4, 7)
        with pytest.raises(UnsupportedError, match=r"resample.* an encoder-decoder reads two texts"):
            heads.ablate(layer=cross, head=1, how="resample", baseline=inputs)


def test_generate_of_an_encoder_decoder_runs_with_heads_off():
    model = family("BartForConditionalGeneration").build()
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": 2}
    whole = model.generate(**PADDED, **options)
    with attach(model, collect=Collect()) as heads:
        assert torch.equal(model.generate(**PADDED, **options), whole)
        for layer in heads.layers:
            for head in range(4):
                heads.ablate(layer=layer, head=head)
        assert not torch.equal(model.generate(**PADDED, **options), whole)
        model.generate(**PADDED, **options)


def test_one_layer_of_a_module_that_serves_several():
    model = family("AlbertModel").build()
    with attach(model) as heads, torch.no_grad():
        states = []
        for layer in range(3):
            heads.ablate(layer=layer, head=1)
            states.append(model(IDS).last_hidden_state)
            heads.restore()
        assert all(not torch.allclose(states[a], states[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
