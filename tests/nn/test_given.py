"""What the layers are given is a tensor of the right kind, or they say what it is instead."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError
from headwise.masks import Causal
from headwise.nn import MultiHeadAttention
from headwise.nn.compat import TorchMultiheadAttention

GIVEN = torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(2))


def ours(query: Any, key: Any = GIVEN, value: Any = GIVEN) -> Tensor:
    return MultiHeadAttention(12, 3)(query, key, value)


def standing_in(query: Any, key: Any = GIVEN, value: Any = GIVEN) -> Tensor:
    return TorchMultiheadAttention(12, 3, batch_first=True)(query, key, value)[0]


def apart(query: Any) -> Tensor:
    return TorchMultiheadAttention(12, 3, vdim=11, batch_first=True)(query, GIVEN, GIVEN[..., 1:])[0]


both = pytest.mark.parametrize("call", [ours, standing_in])
Call = Callable[..., Tensor]


@both
def test_what_is_no_tensor_of_floating_point_is_refused(call: Call) -> None:
    with pytest.raises(ArgumentError, match=r"query is a list; pass a floating point tensor"):
        call([[1.0]])
    with pytest.raises(ArgumentError, match=r"query is a ndarray; pass a floating point tensor, such as tor"):
        call(GIVEN.numpy())
    with pytest.raises(ArgumentError, match=r"value is a ndarray; pass"):
        call(GIVEN, GIVEN, GIVEN.numpy())
    with pytest.raises(ArgumentError, match=r"key has dtype int64; it must be floating point: embed token"):
        call(GIVEN, GIVEN.long(), GIVEN)


def test_torchs_module_needs_all_three() -> None:
    with pytest.raises(ArgumentError, match="key is a NoneType; pass a floating point tensor"):
        standing_in(GIVEN, None, None)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (ours, "q_proj.weight"),
        (standing_in, "in_proj_weight"),
        (apart, "q_proj_weight"),
    ],
)
def test_another_dtype_or_device_than_that_of_the_weights_is_refused(call: Call, name: str) -> None:
    name = re.escape(name)
    with pytest.raises(ArgumentError, match=rf"query is float64 and {name} float32; pass query\.to\(tor"):
        call(GIVEN.double())
    with pytest.raises(ArgumentError, match=rf"query is bfloat16 and {name} .*, layer\.to\(torch\.b"):
        call(GIVEN.bfloat16())
    with pytest.raises(ArgumentError, match=rf"query is on meta and {name} on cpu; move one, query\.to\('"):
        call(GIVEN.to("meta"))


@both
def test_the_dtypes_of_key_and_value_count_too(call: Call) -> None:
    with pytest.raises(ArgumentError, match=r"key is float64 and "):
        call(GIVEN, GIVEN.double(), GIVEN)
    with pytest.raises(ArgumentError, match=r"value is float64 and "):
        call(GIVEN, GIVEN, GIVEN.double())


@both
def test_under_autocast_dtypes_may_differ(call: Call) -> None:
    torch.manual_seed(1)
    expected = call(GIVEN)
    torch.manual_seed(1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = call(GIVEN.bfloat16(), GIVEN.half(), GIVEN)
        with pytest.raises(ArgumentError, match="query is float64"):  # which autocast leaves alone
            call(GIVEN.double())
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


def test_a_projection_that_takes_other_dtypes_is_left_to_itself() -> None:
    """Quantised and adapted ones, ones whose weights are stored in 8 bits and cast by a hook."""

    class Casting(nn.Linear):
        def forward(self, given: Tensor) -> Tensor:
            return super().forward(given.to(self.weight.dtype))

    layer, given = MultiHeadAttention(12, 3), GIVEN.double()
    layer.q_proj.register_forward_pre_hook(lambda _, three: (three[0].float(),))
    whole = layer.k_proj.forward
    layer.k_proj.forward = lambda given: whole(given.float())  # type: ignore[method-assign]
    layer.v_proj = Casting(12, 12)
    expected = layer(GIVEN)
    assert torch.equal(layer(given), expected)


def test_nested_tensors_are_for_the_stand_in() -> None:
    layer = MultiHeadAttention(12, 3)
    for layout in (torch.jagged, torch.strided):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
            given = torch.nested.as_nested_tensor([GIVEN[0], GIVEN[1, :3]], layout=layout)
            with pytest.raises(ArgumentError, match=r"query is nested; pass padded .*Lengths\(.*Packed\("):
                layer(given)


@pytest.mark.parametrize("name", ["bias", "qk_norm", "sinks"])
def test_flags_are_true_or_false(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is a str; pass True or False"):
        MultiHeadAttention(12, 3, **{name: "no"})
    with pytest.raises(ArgumentError, match=f"{name} is a Tensor; pass True or False"):
        MultiHeadAttention(12, 3, **{name: torch.zeros(3)})


@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_masks_of_torchs_module_are_tensors(name: str) -> None:
    module = TorchMultiheadAttention(12, 3, batch_first=True)
    for mask, kind in ((Causal(), "Causal"), (np.zeros((5, 5), dtype=bool), "ndarray"), ([[True]], "list")):
        for given in (GIVEN, GIVEN[0]):
            with pytest.raises(
                ArgumentError, match=rf"{name} is a {kind}; pass a tensor, boolean \(True means may not"
            ):
                module(given, given, given, **{name: mask})


def test_a_padding_mask_of_another_rank_is_named_by_its_own_shape() -> None:
    module = TorchMultiheadAttention(12, 3, batch_first=True)
    with pytest.raises(ArgumentError, match=r"key_padding_mask has shape \(2, 5\); .*here \(1, 5\), or \(kv"):
        module(GIVEN[0], GIVEN[0], GIVEN[0], key_padding_mask=torch.zeros(2, 5, dtype=torch.bool))
    with pytest.raises(ArgumentError, match=r"key_padding_mask has shape \(5,\); .*here \(2, 5\)"):
        module(GIVEN, GIVEN, GIVEN, key_padding_mask=torch.zeros(5, dtype=torch.bool))
    with pytest.raises(ArgumentError, match=r"key_padding_mask has shape \(\); "):
        module(GIVEN[0], GIVEN[0], GIVEN[0], key_padding_mask=torch.tensor(False))
