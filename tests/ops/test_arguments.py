from typing import Any

import numpy as np
import pytest
import torch

from headwise import ops
from headwise.errors import ArgumentError
from headwise.masks import Causal, Lengths

from ..attention_cases import tensors


def call(**changes: Any) -> None:
    query, key, value = tensors("randn")
    given = {"query": query, "key": key, "value": value, **changes}
    ops.attention(given.pop("query"), given.pop("key"), given.pop("value"), **given)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"query": [[1.0]]}, r"query is a list; it must be a torch tensor: torch.as_tensor\(query\)"),
    ({"key": np.zeros((2, 3, 7, 11))}, r"key is a ndarray; it must be a torch tensor"),
    (
        {"value": zeros(2, 3, 7, 11, dtype=torch.int64)},
        r"value has dtype int64; allowed are float32, float64",
    ),
    ({"query": zeros(2, 6, 5, 11, dtype=torch.complex64)}, r"query has dtype complex64; allowed are float32"),
    (
        {"key": zeros(2, 3, 7, 11).to_sparse()},
        r"key has layout sparse_coo; it must be dense: key.to_dense\(\)",
    ),
    (
        {"key": zeros(2, 3, 7, 11, dtype=torch.float64)},
        r"query, key and value differ in dtype: query float32, key float64, value float32; .*query.dtype\)",
    ),
    (
        {"value": torch.zeros(2, 3, 7, 11, device="meta")},
        r"query, key and value differ in device: query cpu, key cpu, value meta",
    ),
    (
        {"query": zeros(6, 5, 11)},
        r"query has rank 3, shape \(6, 5, 11\); it must have rank 4, \[batch, num_heads,",
    ),
    ({"key": zeros(2, 7, 11)}, r"key has rank 3, .* \[batch, num_kv_heads, length, width\]"),
    ({"query": zeros(1, 6, 5, 11)}, r"batch sizes differ: query \(1, 6, 5, 11\), key \(2, 3, 7, 11\)"),
    (
        {"value": zeros(2, 2, 7, 11)},
        r"key and value differ in num_kv_heads or kv_len: .* value \(2, 2, 7, 11\)",
    ),
    (
        {"value": zeros(2, 3, 5, 11)},
        r"key and value differ in num_kv_heads or kv_len: .* value \(2, 3, 5, 11\)",
    ),
    ({"query": zeros(2, 6, 5, 13)}, r"query has head_dim 13, key has head_dim 11; they must be equal"),
    (
        {"query": zeros(2, 6, 5, 0), "key": zeros(2, 3, 7, 0)},
        r"query has head_dim 0, key has head_dim 0; they must be equal and at least 1",
    ),
    (
        {"query": zeros(2, 5, 6, 11)},
        r"num_heads=5 is not a positive multiple of num_kv_heads=3; .* is the layout",
    ),
    ({"query": zeros(2, 0, 5, 11)}, r"num_heads=0 is not a positive multiple of num_kv_heads=3"),
    ({"scale": float("nan")}, r"scale=nan must be finite; leave it out for head_dim \*\* -0.5"),
    ({"scale": "0.5"}, r"scale is a str; it must be a plain number"),
    ({"scale": torch.tensor(0.5)}, r"scale is a Tensor; it must be a plain number"),
    ({"softcap": 0.0}, r"softcap=0.0 must be a finite number above 0; pass None for no soft-capping"),
    ({"softcap": float("inf")}, r"softcap=inf must be a finite number above 0"),
    ({"dropout": 1.0}, r"dropout=1.0 must be at least 0 and below 1: the share of weights set to 0"),
    ({"dropout": -0.1}, r"dropout=-0.1 must be at least 0 and below 1"),
    ({"dropout": True}, r"dropout is a bool; it must be a plain number"),
    ({"sinks": zeros(3)}, r"sinks has shape \(3,\); it must be \(6,\), one number per query head"),
    ({"sinks": [0.0] * 6}, r"sinks is a list; it must be a float tensor of shape \(6,\)"),
    ({"sinks": torch.zeros(6, device="meta")}, r"sinks is on meta, query on cpu; they must be on one device"),
    ({"head_gates": zeros(1, 6)}, r"head_gates has shape \(1, 6\); it must be \(6,\) or \(2, 6\)"),
    ({"head_gates": zeros(6, dtype=torch.bool)}, r"head_gates is a torch.bool; it must be a float tensor"),
    ({"bias": zeros(5, 7, dtype=torch.bool)}, r"bias is a boolean tensor; .* pass what hides keys as mask="),
    ({"bias": Causal()}, r"bias is a Causal; it must be a float tensor that is added to the scores"),
    (
        {"bias": zeros(5, 6)},
        r"bias has shape \(5, 6\), but kv_len is 7, not 6; expected \(seq_len=5, kv_len=7\)",
    ),
    ({"mask": zeros(7, 5)}, r"mask has shape \(7, 5\), but seq_len is 5, not 7"),
    ({"mask": torch.zeros(5, 7, device="meta")}, r"mask is on meta, query on cpu; .*: mask.to\('cpu'\)"),
    ({"mask": "causal"}, r"mask is a str; allowed are None, a mask object such as Causal\(\)"),
    ({"mask": Lengths([1, 2, 3])}, r"lengths has 3 entries, but batch is 2"),
]


@pytest.mark.parametrize(
    ("changes", "message"), REFUSED, ids=lambda each: each[:50] if isinstance(each, str) else ""
)
def test_what_does_not_fit_is_refused_with_the_numbers(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(**changes)


def test_unknown_options_are_refused_by_every_function() -> None:
    for function in (ops.attention, ops.attention_with_logsumexp, ops.observe, ops.choose):
        with pytest.raises(TypeError, match="unexpected keyword argument 'is_causal'"):
            function(*tensors("randn"), is_causal=True)  # type: ignore[operator]
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout'"):
        ops.observe(*tensors("randn"), dropout=0.5)  # type: ignore[call-arg]


def test_options_go_by_keyword_only() -> None:
    with pytest.raises(TypeError, match="takes 3 positional arguments but 4 were given"):
        ops.attention(*tensors("randn"), None)  # type: ignore[misc]


def test_every_function_checks_its_arguments() -> None:
    for function in (ops.attention_with_logsumexp, ops.observe, ops.choose):
        with pytest.raises(ArgumentError, match="softcap=-1 must be a finite number above 0"):
            function(*tensors("randn"), softcap=-1)  # type: ignore[operator]


def test_numpy_masks_and_numbers_are_welcome() -> None:
    made = tensors("randn")
    mask = np.tri(5, 7, dtype=bool)[::-1]  # negative strides, which torch does not take
    expected = ops.attention(*made, mask=torch.from_numpy(mask.copy()), scale=0.5)
    mask.flags.writeable = False
    assert torch.equal(ops.attention(*made, mask=mask, scale=np.float64(0.5)), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_biases_sinks_and_gates_may_have_a_dtype_of_their_own(dtype: torch.dtype) -> None:
    made = tensors("randn")
    options = {"bias": torch.randn(5, 7), "sinks": torch.randn(6), "head_gates": torch.randn(6)}
    rounded = {name: option.to(dtype) for name, option in options.items()}
    expected = ops.attention(*made, **{name: option.float() for name, option in rounded.items()})
    torch.testing.assert_close(ops.attention(*made, **rounded), expected)
