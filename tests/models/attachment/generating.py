"""The steps of a text, and the evidence of one forward over the whole of it."""

import inspect
from dataclasses import fields

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from headwise.evidence import Evidence
from headwise.models.attachment import AttachedLayer

PROMPT = torch.stack([torch.arange(3, 16), torch.arange(40, 53)])
PADDED = {"input_ids": PROMPT, "attention_mask": torch.tensor([[1] * 13, [0] * 4 + [1] * 9])}
GREEDY = {"do_sample": False, "eos_token_id": None}


def assert_same(found: Evidence[Tensor], expected: Evidence[Tensor]) -> None:
    for each in fields(Evidence):
        name, one, other = each.name, getattr(found, each.name), getattr(expected, each.name)
        if isinstance(other, Tensor):
            # Distances are as large as the text is long.
            rtol = 1e-5 if name == "mean_distance" else 0
            torch.testing.assert_close(
                one,
                other,
                atol=1e-5,
                rtol=rtol,
                equal_nan=True,
                msg=lambda text, name=name: f"{name}: {text}",
            )
        else:
            assert one == other, name


def whole(model: nn.Module, heads, ids: Tensor, mask: Tensor | None = None) -> dict[AttachedLayer, Evidence]:
    """The evidence of one forward over the whole text."""
    with torch.no_grad():
        model(ids, attention_mask=mask, use_cache=False)
    return {layer: heads.evidence[layer] for layer in heads.layers}


def step(model: nn.Module, ids: Tensor, cache=None, **more) -> DynamicCache:
    """One forward of a loop of the user's own; the cache to go on with."""
    # transformers is renaming the argument.
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    with torch.no_grad():
        return model(ids, **{name: cache}, use_cache=True, **more)[name]
