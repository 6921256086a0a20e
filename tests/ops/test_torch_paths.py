"""The two paths of impl="torch": which calls torch's fused kernel takes, and what the plain path does."""

from itertools import product
from typing import Any

import pytest
import torch

from headwise import ops
from headwise.masks import Causal, Lengths, Packed, Window
from headwise.ops import arguments, nonfinite, plain, visibility
from headwise.ops.plain import SCORES_PER_BLOCK

from ..attention_cases import laid_out, tensors

FUSED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"mask": Causal()},
    "window and padding": {"mask": Window.of(3) & Lengths([0, 2])},
    "packed": {"mask": Packed([2, 3])},
    "boolean": {"mask": torch.rand(5, 5) < 0.5},
    "float mask": {"mask": torch.randn(5, 5).masked_fill(torch.rand(5, 5) < 0.5, -torch.inf)},
    "huge bias": {"bias": torch.full((5, 5), -1e30)},
    "bias with gradient": {"bias": torch.randn(6, 5, 5, requires_grad=True)},
    "scale": {"scale": 3.0},
    "gates": {"head_gates": torch.zeros(6)},
}
PLAIN: dict[str, tuple[dict[str, Any], str]] = {
    "logsumexp": ({"need_logsumexp": True}, "logsumexp is asked for"),
    "sinks": ({"sinks": torch.zeros(6)}, "sinks: the fused kernel has none"),
    "softcap": ({"softcap": 3.0}, "softcap: the fused kernel has none"),
    "dropout": ({"dropout": 0.1}, "dropout: torch would leave its fused kernel"),
    "nan in a bias": ({"bias": torch.tensor([[torch.nan]])}, "NaN, infinity or scores that may overflow"),
    "infinity in a mask": (
        {"mask": torch.tensor([[torch.inf]])},
        "NaN, infinity or scores that may overflow",
    ),
    "huge scale": ({"scale": 1e38}, "NaN, infinity or scores that may overflow"),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_the_fused_path_is_chosen_where_it_is_right(name: str, dtype: torch.dtype) -> None:
    made = tensors("randn", kv_len=5, dtype=dtype)
    found = ops.choose(*made, impl="torch", **FUSED[name])
    assert (found.impl, found.path) == ("torch", "fused")
    assert found.reasons == ("the fused kernel is right for this call",)


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_path_is_chosen_with_the_reason(name: str) -> None:
    options, reason = PLAIN[name]
    found = ops.choose(*tensors("randn"), impl="torch", **options)
    assert (found.impl, found.path, len(found.reasons)) == ("torch", "plain", 1)
    assert found.reasons[0].startswith(reason)


def test_every_reason_is_given_at_once() -> None:
    made = tensors("randn", value_head_dim=13)
    found = ops.choose(*made, softcap=2.0, sinks=torch.zeros(6), impl="torch")
    assert found.reasons == (
        "sinks: the fused kernel has none",
        "softcap: the fused kernel has none",
        "value_head_dim 13 differs from head_dim 11: torch would leave its fused kernel and repeat the "
        "KV heads",
    )


@pytest.mark.parametrize("sizes", [{"batch": 0}, {"seq_len": 0}, {"kv_len": 0}])
def test_empty_sizes_take_the_plain_path(sizes: dict[str, int]) -> None:
    assert ops.choose(*tensors("randn", **sizes), impl="torch").reasons == ("a size is 0",)


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("number", [torch.nan, torch.inf, 1e25])
def test_numbers_decide_too(which: int, number: float) -> None:
    made = tensors("randn")
    made[which][1, 2, 3, 4] = number
    assert ops.choose(*made, impl="torch").path == "plain"


def test_strides_do_not_decide() -> None:
    made = (laid_out(tensor, "every_second") for tensor in tensors("randn"))
    assert ops.choose(*made, impl="torch").path == "fused"


def test_the_fused_path_is_torchs_fused_kernel_and_repeats_nothing() -> None:
    made = tensors("randn", kv_len=5)
    masks = {"none": None, "causal": Causal(), "window": Window.of(2), "float": torch.randn(2, 6, 5, 5)}
    for mask, layout in product(masks.values(), ["heads_inside", "every_second", "expanded"]):
        with torch.profiler.profile() as profile:
            ops.attention(*(laid_out(tensor, layout) for tensor in made), mask=mask, impl="torch")
        names = {event.name for event in profile.events()}
        assert "aten::_scaled_dot_product_flash_attention_for_cpu" in names
        assert not {"aten::repeat_interleave", "aten::_scaled_dot_product_attention_math"} & names


def test_square_causal_goes_to_the_kernel_without_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    original = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Any, **options: Any) -> torch.Tensor:
        given.append(options)
        return original(*args, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    square, long = tensors("randn", kv_len=5), tensors("randn", kv_len=7)
    ops.attention(*square, mask=Causal(), impl="torch")
    ops.attention(*square, mask=Causal("upper_left") & Window(right=2), impl="torch")
    ops.attention(*long, mask=Window(left=6, right=4), impl="torch")  # hides nothing
    ops.attention(*long, mask=Causal(), impl="torch")
    ops.attention(*square, mask=Causal() & Lengths([5, 4]), impl="torch")
    assert [(call["is_causal"], call["attn_mask"] is None) for call in given] == [
        (True, True),
        (True, True),
        (False, True),
        (False, False),
        (False, False),
    ]


def test_rows_are_computed_in_blocks_that_hold_few_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tensors("randn", seq_len=23)
    whole = ops.attention_with_logsumexp(*made, mask=Causal(), impl="torch")
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2 * 6 * 7 * 5 + 3)
    call = arguments.check(*made, mask=Causal())
    assert [rows.stop - rows.start for rows in plain.row_slices(call)] == [5, 5, 5, 5, 3]
    parts = ops.attention_with_logsumexp(*made, mask=Causal(), impl="torch")
    torch.testing.assert_close(parts, whole)
    assert SCORES_PER_BLOCK == 2**22


def test_finiteness_is_sure_only_of_what_cannot_overflow() -> None:
    made = [torch.ones(1, 1, 1, 4)] * 3

    def sure(*tensors: torch.Tensor, **options: Any) -> bool:
        return nonfinite.surely_finite(arguments.check(*tensors, **options))

    assert sure(*made)
    assert sure(*made, bias=torch.tensor([[-torch.inf]]))
    assert not sure(*made, bias=torch.tensor([[torch.nan]]))
    assert not sure(1e20 * made[0], 1e19 * made[1], made[2])
    assert sure(*(tensor.double() * 1e100 for tensor in made))
    assert isinstance(arguments.check(*made).visibility, visibility.Visibility)
