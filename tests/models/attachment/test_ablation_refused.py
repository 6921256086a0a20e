"""What cannot be ablated, and what is not ablated, is told."""

import pytest
import torch
from torch import nn

from headwise.errors import ArgumentError
from headwise.models.attachment import attach

from .ablating import IDS, OTHER, PADDED, logits
from .families import family


@pytest.fixture
def model() -> nn.Module:
    return family("LlamaForCausalLM").build()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 7, "head": 0}, "layer=7 does not exist; the attention layers are 0 to 1"),
        ({"layer": -1, "head": 0}, "layer=-1 does not exist"),
        ({"layer": "model.layers.9", "head": 0}, "layer='model.layers.9' does not exist"),
        ({"layer": 1.0, "head": 0}, "layer=1.0 is a float; give its number or its module path"),
        ({"layer": 1, "head": 4}, "head=4 .* layer 1, which has 4 query heads and 2 KV heads; give 0 to 3"),
        ({"layer": 1, "head": -1}, "head=-1 does not exist"),
        ({"layer": 1, "head": True}, "head=True does not exist"),
        ({"layer": 1, "head": torch.tensor(1.0)}, r"head=tensor\(1.\) does not exist"),
        ({"layer": 1, "head": torch.tensor([0, 1])}, r"head=tensor\(\[0, 1\]\) does not exist"),
        ({"layer": torch.tensor([0, 1]), "head": 0}, r"layer=tensor\(\[0, 1\]\) is a Tensor; give its"),
        ({"layer": 1, "kv_head": 2}, "kv_head=2 does not exist in layer 1, .* give 0 to 1"),
        ({"layer": 1}, "head=None and kv_head=None; give exactly one"),
        ({"layer": 1, "head": 0, "kv_head": 0}, "head=0 and kv_head=0; give exactly one"),
        ({"layer": 1, "head": 0, "how": "noise"}, "how='noise' is unknown; allowed are 'zero'"),
        ({"layer": 1, "head": 0, "how": "mean"}, "how='mean' needs baseline=, inputs of the model"),
        ({"layer": 1, "head": 0, "baseline": OTHER}, "how='zero' takes no baseline; baseline is a dict"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": ["text"]}, "baseline is a str; give inputs"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": 7}, "baseline is a int; give inputs"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": {"ids": IDS}}, "with ids does not run through"),
        ({"layer": 1, "head": 0, "how": "mean", "baseline": []}, "baseline is an empty list"),
        ({"layer": 1, "head": 0, "how": "resample", "baseline": PADDED}, "holds 2; pass a batch of one"),
    ],
)  # fmt: skip
def test_what_cannot_be_ablated_is_refused(model, arguments, message):
    with attach(model) as heads:
        before = logits(model)
        with pytest.raises(ArgumentError, match=message):
            heads.ablate(**arguments)
        assert torch.equal(logits(model), before)


def test_a_resample_baseline_that_is_too_short_is_refused_when_run(model):
    with attach(model) as heads:
        heads.ablate(layer=1, head=0, how="resample", baseline={"input_ids": IDS[:, :5]})
        assert logits(model, input_ids=IDS[:, :5]).shape[1] == 5
        with pytest.raises(
            ArgumentError, match=r"has 5 positions and this input reaches position 12, .* at least 13"
        ):
            logits(model)


def test_a_baseline_that_never_reaches_the_layer_is_refused():
    with attach(family("CLIPModel").build()) as heads:
        text = {"input_ids": IDS[:, :5]}
        with pytest.raises(ArgumentError, match="baseline with input_ids does not run through CLIPModel"):
            heads.ablate(layer=heads.layers[0], head=0, how="mean", baseline=text)


def test_what_is_not_ablated_cannot_be_restored(model):
    with attach(model) as heads:
        heads.ablate(layer=1, head=2)
        with pytest.raises(
            ArgumentError,
            match=r"head 3 of layer 1 \(.*\) is not ablated; ablated there: 2",
        ):
            heads.restore(layer=1, head=3)
        with pytest.raises(ArgumentError, match="layer=5 does not exist"):
            heads.restore(layer=5, head=3)
        with pytest.raises(ArgumentError, match="restore got head=3, kv_head=None and no layer"):
            heads.restore(head=3)
