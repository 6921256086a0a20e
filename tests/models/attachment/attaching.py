"""A forward of a model, and what must not be left behind on it."""

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface

from headwise.models.attachment import interface

IDS = torch.arange(3, 16)[None]


def hooks_of(model: nn.Module) -> int:
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules())


def assert_nothing_left(model: nn.Module, implementation: str = "sdpa") -> None:
    assert interface.NAME not in AttentionInterface._global_mapping
    assert interface.NAME not in AttentionMaskInterface._global_mapping
    assert not [module for module in model.modules() if module in interface.LISTENERS]
    assert model.config._attn_implementation == implementation
    assert hooks_of(model) == 0


def run(model: nn.Module, **inputs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(**(inputs or {"input_ids": IDS})).logits
