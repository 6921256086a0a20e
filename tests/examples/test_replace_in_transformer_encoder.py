"""headwise in the place of torch's attention inside torch's own encoder."""

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from replace_in_transformer_encoder import (
    D_MODEL,
    LAYERS,
    PATHS,
    headwise_for,
    made_encoder,
    outputs_of,
    replace_attention,
)
from torch import nn

import headwise as hw

from ..tolerance import assert_within_rule


@contextmanager
def nested_tensors_are_a_prototype() -> Iterator[None]:
    """Let torch say so, once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        yield


def test_the_outputs_are_those_of_torch_on_every_path(run: Callable[..., str]) -> None:
    printed = run("replace_in_transformer_encoder.py")
    assert f"replaced {LAYERS} attention modules" in printed
    found = dict(re.findall(r"^(.+): outputs differ by (\S+) at most$", printed, re.MULTILINE))
    assert found.keys() == PATHS.keys()
    # Outputs are normed: they are about 1.
    assert all(float(difference) < 1e-5 for difference in found.values())


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_outputs_are_within_the_rule_and_come_from_headwise(path: dict[str, bool]) -> None:
    theirs = made_encoder()
    ours, exact = copy.deepcopy(theirs), copy.deepcopy(theirs).double()
    assert replace_attention(ours) == LAYERS
    called: list[str] = []
    for name, module in ours.named_modules():
        if isinstance(module, hw.compat.TorchMultiheadAttention):
            module.register_forward_hook(lambda *_, name=name: called.append(name))
    texts = torch.randn(3, 13, D_MODEL) * 3
    padding = torch.arange(13) >= torch.tensor([[13], [5], [1]])
    with nested_tensors_are_a_prototype():
        found, plain = (outputs_of(encoder, texts, padding, **path) for encoder in (ours, theirs))
    assert called == [f"layers.{layer}.self_attn" for layer in range(LAYERS)]
    reference = outputs_of(exact, texts.double(), padding, training=True, gradients=False)
    assert_within_rule(found.detach(), reference, plain.detach())


def test_gradients_are_those_of_torch() -> None:
    theirs = made_encoder()
    ours = copy.deepcopy(theirs)
    replace_attention(ours)
    texts, padding = torch.randn(2, 7, D_MODEL), torch.arange(7) >= torch.tensor([[7], [3]])
    upstream = torch.randn(10, D_MODEL)
    for encoder in (ours, theirs):
        outputs_of(encoder, texts, padding, training=True, gradients=True).backward(upstream)
    for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.25, "batch_first": True},
        {"bias": False, "add_bias_kv": True},
        {"kdim": 5, "vdim": 7, "add_zero_attn": True},
        {"dtype": torch.float64},
    ],
)
def test_a_module_keeps_its_options_weights_and_mode(options: dict[str, Any]) -> None:
    theirs = nn.MultiheadAttention(12, 3, **options).eval()
    ours = headwise_for(theirs)
    assert not ours.training
    assert (ours.dropout, ours.batch_first) == (theirs.dropout, theirs.batch_first)
    dtype = options.get("dtype", torch.float32)
    query, key, value = (torch.randn(2, 2, width, dtype=dtype) for width in (12, theirs.kdim, theirs.vdim))
    torch.testing.assert_close(ours(query, key, value)[0], theirs(query, key, value)[0], rtol=1e-5, atol=1e-5)
