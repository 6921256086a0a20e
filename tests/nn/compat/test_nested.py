"""Nested tensors: texts of unequal length without padding."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.errors import ArgumentError

from .pairs import pair

LENGTHS = (4, 1, 3)


@pytest.fixture(autouse=True)
def nested_tensors_are_a_prototype() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
        yield


def nested(
    lengths: tuple[int, ...], width: int = 12, layout: torch.layout = torch.jagged, **more: Any
) -> Tensor:
    return torch.nested.nested_tensor(
        [torch.randn(length, width) for length in lengths], layout=layout, **more
    )


every_layout = pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)


@every_layout
@pytest.mark.parametrize("is_causal", [True, False])
def test_each_text_is_as_it_is_alone(layout: torch.layout, is_causal: bool) -> None:
    # pytorch#153472, #130196, #177378: refused, of the wrong rank, or attended across texts
    ours, given = pair(batch_first=True).ours, nested(LENGTHS, layout=layout)
    for training in (True, False):
        found, weights = ours.train(training)(given, given, given, need_weights=False, is_causal=is_causal)
        assert weights is None
        assert found.layout == layout
        for one, text in zip(found.unbind(), given.unbind(), strict=True):
            torch.testing.assert_close(one, ours(text, text, text, is_causal=is_causal)[0])
        assert (found + given).is_nested  # what a residual connection does


@every_layout
def test_a_text_may_look_at_one_of_another_length(layout: torch.layout) -> None:
    ours = pair(kdim=11, vdim=13).ours
    query, key, value = (
        nested(lengths, width, layout) for lengths, width in ((LENGTHS, 12), ((2, 5, 3), 11), ((2, 5, 3), 13))
    )
    found = ours(query, key, value, need_weights=False)[0]
    for one, *texts in zip(found.unbind(), query.unbind(), key.unbind(), value.unbind(), strict=True):
        torch.testing.assert_close(one, ours(*texts)[0])


def test_a_text_without_tokens_stays_one() -> None:
    ours, given = pair().ours, nested((3, 0, 2), layout=torch.strided)
    found = ours(given, given, given, need_weights=False)[0]
    assert [len(text) for text in found.unbind()] == [3, 0, 2]
    keyless = nested((3, 2, 0), layout=torch.strided)
    found = ours(given, keyless, keyless, need_weights=False)[0].unbind()
    assert torch.equal(found[2], ours.out_proj.bias.expand(2, 12))


@every_layout
def test_gradients_are_those_of_the_texts_alone(layout: torch.layout) -> None:
    ours = pair().ours.double()
    texts = [torch.randn(length, 12, dtype=torch.float64) for length in LENGTHS]
    given = torch.nested.as_nested_tensor(texts, layout=layout)
    found = ours(given, given, given, need_weights=False)[0]
    parameters = list(ours.parameters())
    together = torch.autograd.grad(sum((text**2).sum() for text in found.unbind()), parameters)
    alone = torch.autograd.grad(sum((ours(text, text, text)[0] ** 2).sum() for text in texts), parameters)
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other)


def test_a_jagged_tensor_with_holes_keeps_its_texts() -> None:
    ours, padded = pair().ours, torch.randn(2, 5, 12)
    given = torch.nested.narrow(padded, 1, torch.tensor([0, 1]), torch.tensor([3, 2]), layout=torch.jagged)
    found = ours(given, given, given, need_weights=False)[0].unbind()
    for one, text in zip(found, (padded[0, :3], padded[1, 1:3]), strict=True):
        torch.testing.assert_close(one, ours(text, text, text)[0])


def test_what_cannot_be_combined_is_refused() -> None:
    ours, given = pair().ours, nested(LENGTHS)
    with pytest.raises(
        ArgumentError, match=r"cannot be combined with need_weights=True \(the default\); leave"
    ):
        ours(given, given, given)
    mask = torch.zeros(1, 1, dtype=torch.bool)
    with pytest.raises(ArgumentError, match="cannot be combined with key_padding_mask, attn_mask; leave"):
        ours(given, given, given, need_weights=False, key_padding_mask=mask, attn_mask=mask)
    added = pair(add_bias_kv=True, add_zero_attn=True).ours
    with pytest.raises(ArgumentError, match="cannot be combined with add_bias_kv, add_zero_attn; leave"):
        added(given, given, given, need_weights=False)
    plain = torch.randn(3, 4, 12)
    with pytest.raises(
        ArgumentError, match="key is not nested and another input is; pass nested tensors for all"
    ):
        ours(given, plain, plain, need_weights=False)
    with pytest.raises(ArgumentError, match="query is not nested and another"):
        ours(plain, given, given, need_weights=False)
    fewer = nested(LENGTHS[:2])
    with pytest.raises(
        ArgumentError, match=r"texts of lengths \(4, 1, 3\), \(4, 1\) and \(4, 1\); there must be as"
    ):
        ours(given, fewer, fewer, need_weights=False)
    with pytest.raises(ArgumentError, match=r"\(4, 1, 3\) and \(1, 1, 1\); .* each key needs its value"):
        ours(given, given, nested((1, 1, 1)), need_weights=False)
    other = nested((2, 5, 3))
    with pytest.raises(
        ArgumentError, match=r"is_causal=True with nested .* query \(4, 1, 3\) and key \(2, 5, 3\)"
    ):
        ours(given, other, other, need_weights=False, is_causal=True)
    with pytest.raises(ArgumentError, match=r"query has shape \(8, 5\); it must be \[length, 12\]"):
        ours(nested(LENGTHS, 5), given, given, need_weights=False)
