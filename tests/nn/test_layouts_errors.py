"""What cannot be read or written says so, with the numbers."""

from typing import Any

import pytest
import torch

from headwise.errors import ArgumentError
from headwise.nn.layouts import (
    HeadWeights,
    half_split,
    interleaved,
    read_weights,
    write_weights,
)

from .test_layouts import made


def pieces(**changed: tuple[int, ...]) -> dict[str, torch.Tensor]:
    shapes = {"query": (6, 4, 24), "key": (2, 4, 24), "value": (2, 5, 24), "out": (6, 5, 24), **changed}
    return {name: torch.ones(shape) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query": (24, 24)}, r"query has shape \(24, 24\); it must be \[num_heads, head_dim, d_model\]"),
        ({"value": (3, 5, 24)}, r"key has 2 KV heads and value has 3 .*\(2, 4, 24\) and \(3, 5, 24\)"),
        ({"key": (2, 3, 24)}, r"query has 4 elements a head \(head_dim\) and key has 3"),
        ({"out": (5, 5, 24)}, r"query has 6 heads and out has 5"),
        ({"out": (6, 4, 24)}, r"value has 5 elements a head \(value_head_dim\) and out has 4"),
        ({"key": (4, 4, 24), "value": (4, 5, 24)}, "num_kv_heads=4 does not divide num_heads=6"),
        ({"key_bias": (6, 4)}, r"key_bias has shape \(6, 4\); beside key of shape \(2, 4, 24\) .*\(2, 4\)"),
        ({"out_bias": (23,)}, r"out_bias has shape \(23,\); .* it must be \(24,\)"),
    ],
)
def test_shapes_that_are_no_layer(changed: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        HeadWeights(**pieces(**changed))


def state(layout: str, **changed: Any) -> dict[str, Any]:
    """Return a state with some parameters of another shape; None takes one away. `__` stands for a dot."""
    given: dict[str, Any] = dict(write_weights(made(), layout))
    for name, shape in changed.items():
        written = name.replace("__", "." if layout not in {"keras", "flax"} else "/")
        if shape is None:
            del given[written]
        else:
            given[written] = torch.ones(shape)
    return given


@pytest.mark.parametrize(
    ("layout", "changed", "message"),
    [
        ("headwise", {"out_proj__weight": None}, "'headwise': out_proj.weight is missing; given are q_proj"),
        ("headwise", {"k_proj__weight": None}, r"k_proj\.weight is missing"),
        ("headwise", {"q_proj__weight": (24,)}, r"q_proj\.weight has shape \(24,\); it must have 2 axes"),
        ("headwise", {"q_proj__weight": (25, 24)}, r"\(25, 24\), so 25 rows, which 6 heads do not divide"),
        ("headwise", {"k_proj__weight": (25, 24)}, "25 rows, which 4 elements a head do not divide"),
        ("headwise", {"q_proj__bias": (23,)}, r"q_proj\.bias has shape \(23,\); .* must be \(24,\)"),
        ("headwise", {"out_proj__weight": (24, 25)}, "reads 25 elements, which num_heads=6 does not divide"),
        ("gpt_neox", {"query_key_value__weight": (70, 24)}, "6 query heads of 4 leave 46 .* multiple of 8"),
        ("gpt_neox", {"query_key_value__weight": (24, 24)}, "leave 0 for keys and values"),
        ("gpt_neox", {"query_key_value__bias": (24,)}, r"bias has shape \(24,\); .* must be \(72,\)"),
        ("gpt_neox", {"query_key_value__weight": None}, "holds query, key and value here; given are dense"),
        (
            "gpt2",
            {"c_attn__weight": (24, 40), "c_attn__bias": None},
            "num_kv_heads=2 are fewer than num_heads=6.*with_own_kv_heads",
        ),
        ("keras", {"query__kernel": (24, 5, 4)}, r"\(24, 5, 4\), so 5 heads on axis 1, where 6 must be"),
        ("keras", {"key__kernel": (24, 6, 3)}, "so 3 elements a head on axis 2, where 4 must be"),
        (
            "keras",
            {"attention_output__kernel": (5, 4, 24)},
            "so 5 heads on axis 0, where num_heads=6 must be",
        ),
        ("keras", {"attention_output__kernel": (24, 24)}, r"\(24, 24\); it must have 3 axes"),
        ("keras", {"key__bias": (24,)}, r"key/bias has shape \(24,\); .* must be \(6, 4\)"),
    ],
)
def test_states_that_do_not_fit(layout: str, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_weights(state(layout, **changed), layout, num_heads=6)


def test_head_counts_that_the_shapes_deny() -> None:
    with pytest.raises(ArgumentError, match=r"num_kv_heads=3 is given, .* num_heads=6 of 4 .* hold 6"):
        read_weights(state("llama"), "llama", num_heads=6, num_kv_heads=3)
    with pytest.raises(ArgumentError, match="reads 24 elements, which num_heads=5 does not divide"):
        read_weights(state("llama"), "llama", num_heads=5)
    with pytest.raises(ArgumentError, match="num_heads=0 must be at least 1"):
        read_weights(state("llama"), "llama", num_heads=0)


def test_names_and_values_that_are_no_layer() -> None:
    with pytest.raises(ArgumentError, match="layout='gpt3' is not known; use headwise, torch, gpt2, "):
        read_weights({}, "gpt3", num_heads=6)
    with pytest.raises(ArgumentError, match="layout='gpt3' is not known"):
        write_weights(made(), "gpt3")
    with pytest.raises(ArgumentError, match=r"'flax' has no kernel; .* without a prefix"):
        read_weights({"kernel": torch.ones(2)}, "flax", num_heads=6)
    nested = {"query/kernel": {"value": torch.ones(2)}}
    with pytest.raises(ArgumentError, match=r"query/kernel is a mapping, .*flatten_dict\(params, sep='/'\)"):
        read_weights(nested, "flax", num_heads=6)
    with pytest.raises(ArgumentError, match="query/kernel is a str; pass a tensor or an array of numbers"):
        read_weights({"query/kernel": "numbers"}, "flax", num_heads=6)


@pytest.mark.parametrize(
    ("layout", "sizes", "message"),
    [
        (
            "torch",
            {"num_kv_heads": 2},
            "'torch': num_kv_heads=2 are fewer than num_heads=6.*with_own_kv_heads",
        ),
        ("falcon_multi_query", {"num_kv_heads": 2}, r"num_kv_heads=2; here there is only one \(MQA\)"),
        ("llama", {"value_head_dim": 5}, "value_head_dim=5 differs from head_dim=4"),
        ("gpt_neox", {"d_model": 20}, "num_heads=6 x head_dim=4 is 24, not d_model=20"),
    ],
)
def test_weights_that_no_module_of_a_family_can_hold(
    layout: str, sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        write_weights(made(**sizes), layout)


def test_inputs_and_outputs_of_other_widths() -> None:
    several = HeadWeights(**pieces(value=(2, 4, 7), out=(6, 4, 24)))
    with pytest.raises(ArgumentError, match="made from inputs 24, 24 and 7 wide; here all three"):
        write_weights(several, "llama")
    narrow = HeadWeights(**pieces(out=(6, 5, 23)))
    with pytest.raises(ArgumentError, match="the output is 23 wide and the input 24"):
        write_weights(narrow, "headwise")
    assert write_weights(narrow, "keras")["attention_output/kernel"].shape == (6, 5, 23)


def test_fused_biases_are_all_or_none() -> None:
    weights = HeadWeights(**pieces(key=(6, 4, 24), value=(6, 4, 24), out=(6, 4, 24), key_bias=(6, 4)))
    with pytest.raises(
        ArgumentError, match=r"in_proj_bias holds .* only key have one; .*with_all_biases\(\)"
    ):
        write_weights(weights, "torch")
    assert write_weights(weights.with_all_biases(), "torch")["in_proj_bias"].sum() == 24


def test_rotary_sizes_that_cannot_be() -> None:
    with pytest.raises(ArgumentError, match="rotary_dim=3 is odd"):
        half_split(made(), rotary_dim=3)
    with pytest.raises(ArgumentError, match=r"turn 6 elements of a head of head_dim=4; .* pass rotary_dim=4"):
        half_split(made(), rotary_dim=6)
    odd = HeadWeights(*(torch.ones(1, 3, 3) for _ in range(4)))
    with pytest.raises(ArgumentError, match="turn 3 elements of a head of head_dim=3"):
        interleaved(odd)
    with pytest.raises(ArgumentError, match="'llama_meta': rotary positions turn 3 elements"):
        write_weights(odd, "llama_meta")


def test_what_is_no_state_is_refused() -> None:
    module = torch.nn.MultiheadAttention(24, 6)
    with pytest.raises(
        ArgumentError, match=r"state is a MultiheadAttention; pass names and tensors, .*\.state_dict\(\)"
    ):
        read_weights(module, "torch", num_heads=6)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"state is a list; pass names and tensors"):
        read_weights([], "torch", num_heads=6)  # type: ignore[arg-type]


def test_what_are_no_weights_by_head_is_refused() -> None:
    given = state("torch")
    for change in (
        lambda: write_weights(given, "llama"),  # type: ignore[arg-type]
        lambda: half_split(given),  # type: ignore[arg-type]
        lambda: interleaved(given),  # type: ignore[arg-type]
    ):
        with pytest.raises(
            ArgumentError, match=r"weights is a dict; pass HeadWeights, as read_weights returns"
        ):
            change()
    arrays = {name: tensor.numpy() for name, tensor in pieces().items()}
    with pytest.raises(ArgumentError, match="query is a ndarray; pass a tensor"):
        HeadWeights(**arrays)
    with pytest.raises(ArgumentError, match="out_bias is a list; pass a tensor"):
        HeadWeights(**pieces(), out_bias=[0.0])  # type: ignore[arg-type]


def test_the_same_part_twice_is_never_read_in_part() -> None:
    """Fused and apart at once: one of the two would be passed over."""
    both = {**state("torch"), "k_proj_weight": torch.ones(24, 24)}
    with pytest.raises(
        ArgumentError, match=r"'torch': in_proj_weight and k_proj_weight hold the same part; give one"
    ):
        read_weights(both, "torch", num_heads=6)
