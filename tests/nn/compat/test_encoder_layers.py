"""Ours in the place of `self_attn` inside torch's own layers."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

from headwise.nn.compat import TorchMultiheadAttention

WIDTH, HEADS = 8, 2


def replaced(layer: nn.Module) -> Any:
    """Return a copy of the layer with every attention module replaced by ours, weights kept."""
    layer = copy.deepcopy(layer)
    for owner in list(layer.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.MultiheadAttention:
                ours = TorchMultiheadAttention(
                    WIDTH, HEADS, dropout=child.dropout, batch_first=child.batch_first
                )
                ours.load_state_dict(child.state_dict())
                setattr(owner, name, ours.train(child.training))
    assert not any(type(module) is nn.MultiheadAttention for module in layer.modules())
    return layer


def calls(layer: nn.Module) -> list[str]:
    """Return a list that grows with every call of an attention module in `layer`."""
    seen: list[str] = []
    for name, module in layer.named_modules():
        if isinstance(module, TorchMultiheadAttention):
            forward = module.forward

            def counted(*given: Any, name: str = name, forward: Any = forward, **more: Any) -> Any:
                seen.append(name)
                return forward(*given, **more)

            module.forward = counted  # type: ignore[method-assign]
    return seen


@pytest.fixture(
    params=[(False, True), (False, False), (True, True)], ids=["evaluation", "no grad", "training"]
)
def mode(request: pytest.FixtureRequest) -> tuple[bool, bool]:
    training, with_grad = request.param
    return training, with_grad


@contextmanager
def nested_tensors_are_a_prototype() -> Iterator[None]:
    """Let torch say so, once."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        yield


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_layer_calls_ours_in_every_mode(
    mode: tuple[bool, bool], batch_first: bool, norm_first: bool
) -> None:
    training, with_grad = mode
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, 16, dropout=0.0, batch_first=batch_first, norm_first=norm_first
    ).train(training)
    ours, given = replaced(theirs), torch.randn(3, 3, WIDTH)
    called = calls(ours)
    padding = torch.tensor([[False] * 3, [False, True, True], [False, False, True]])
    upper = torch.ones(3, 3, dtype=torch.bool).triu(1)
    asked: list[dict[str, Any]] = [
        {},
        {"src_key_padding_mask": padding},
        {"src_mask": upper},
        {"src_mask": upper, "is_causal": True},
        {"src_mask": torch.randn(3, 3)},
    ]
    # By its training path: the other one takes a float mask for a boolean one and gives NaN (pytorch#107084).
    expected = [copy.deepcopy(theirs).train()(given, **keywords) for keywords in asked]
    with torch.set_grad_enabled(with_grad):
        for keywords, each in zip(asked, expected, strict=True):
            torch.testing.assert_close(ours(given, **keywords), each, rtol=1e-5, atol=1e-5)
        alone = ours(given, is_causal=True)
    torch.testing.assert_close(alone, ours(given, src_mask=upper), rtol=1e-5, atol=1e-5)
    assert len(called) == len(asked) + 2


def test_a_fully_padded_text_gives_no_nan_in_any_mode(mode: tuple[bool, bool]) -> None:
    # pytorch#190486
    training, with_grad = mode
    ours = replaced(nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)).train(
        training
    )
    padding = torch.tensor([[False] * 3, [True] * 3])
    with torch.set_grad_enabled(with_grad):
        assert ours(torch.randn(2, 3, WIDTH), src_key_padding_mask=padding).isfinite().all()


def test_an_encoder_takes_ours_before_and_after_it_is_built(mode: tuple[bool, bool]) -> None:
    training, with_grad = mode
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)
    theirs = nn.TransformerEncoder(layer, 2).train(training)
    after = replaced(theirs)  # in evaluation it hands nested tensors to its layers
    with pytest.warns(
        UserWarning, match="use_nested_tensor is False because encoder_layer.self_attn._qkv_same"
    ):
        nn.TransformerEncoder(replaced(layer), 2)
    before = nn.TransformerEncoder(replaced(layer), 2, enable_nested_tensor=False).train(training)
    before.load_state_dict(theirs.state_dict())
    given = torch.randn(3, 4, WIDTH)
    padding = torch.tensor([[False] * 4, [False, True, True, True], [False, False, False, True]])
    called = calls(after)
    with torch.set_grad_enabled(with_grad), nested_tensors_are_a_prototype():
        for keywords in ({}, {"src_key_padding_mask": padding}, {"mask": torch.ones(4, 4).triu(1).bool()}):
            expected, *found = (each(given, **keywords) for each in (theirs, before, after))
            real = ~keywords.get("src_key_padding_mask", torch.zeros(3, 4, dtype=torch.bool))
            for each in found:
                torch.testing.assert_close(each[real], expected[real], rtol=1e-5, atol=1e-5)
    assert called == ["layers.0.self_attn", "layers.1.self_attn"] * 3


def test_a_decoder_layer_takes_ours_for_both_of_its_attentions(mode: tuple[bool, bool]) -> None:
    training, with_grad = mode
    theirs = nn.TransformerDecoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True).train(training)
    ours = replaced(theirs)
    called = calls(ours)
    target, memory = torch.randn(2, 3, WIDTH), torch.randn(2, 5, WIDTH)
    keywords = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(3),
        "tgt_is_causal": True,
        "memory_key_padding_mask": torch.tensor([[False] * 5, [False, False, True, True, True]]),
    }
    with torch.set_grad_enabled(with_grad):
        expected = theirs(target, memory, **keywords)
        torch.testing.assert_close(ours(target, memory, **keywords), expected, rtol=1e-5, atol=1e-5)
        del keywords["tgt_mask"]  # the flag alone is enough
        torch.testing.assert_close(ours(target, memory, **keywords), expected, rtol=1e-5, atol=1e-5)
    assert called == ["self_attn", "multihead_attn"] * 2


def test_an_encoder_layer_trains() -> None:
    theirs = nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)
    ours, given, upstream = replaced(theirs), torch.randn(2, 5, WIDTH), torch.randn(2, 5, WIDTH)
    found, expected = (
        torch.autograd.grad(each(given), list(each.parameters()), upstream) for each in (ours, theirs)
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_under_autocast_an_encoder_layer_is_near_to_itself() -> None:
    ours = replaced(nn.TransformerEncoderLayer(WIDTH, HEADS, 16, dropout=0.0, batch_first=True)).eval()
    given = torch.randn(2, 5, WIDTH)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        found = ours(given, is_causal=True)
    torch.testing.assert_close(found.float(), ours(given, is_causal=True), rtol=0.1, atol=0.1)
