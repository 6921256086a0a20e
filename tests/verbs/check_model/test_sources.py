"""Finding which linear layer made a call's heads, on tensors made for it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from headwise.verbs.check_model.listening import hear
from headwise.verbs.check_model.reading import candidates
from headwise.verbs.check_model.sources import LEAST_TOKENS, Made, find_source

from ...models.attachment.families import GROUPED, Family, family
from ..small_models import opened

HEADS, WIDTH, ROWS = 4, 6, 11
SHARING = {
    **GROUPED, "num_hidden_layers": 4, "num_kv_shared_layers": 2, "vocab_size_per_layer_input": 97,
    "hidden_size_per_layer_input": 8, "laurel_rank": 4, "altup_num_inputs": 2,
    "activation_sparsity_pattern": [0.0] * 4, "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip


def made(written: Tensor, name: str = "projection", read: Tensor | None = None) -> Made:
    module = nn.Linear(3, written.shape[-1]) if read is None else nn.LayerNorm(WIDTH)
    return Made(name, module, torch.zeros(1) if read is None else read, written)


def rows(columns: int = HEADS * WIDTH, count: int = ROWS) -> Tensor:
    return torch.randn(1, count, columns, generator=torch.Generator().manual_seed(columns + count))


def heads_of(written: Tensor, first: int = 0, count: int = HEADS) -> Tensor:
    """`[1, count, rows, WIDTH]`, one head after the other from a column on."""
    return written[..., first : first + count * WIDTH].unflatten(-1, (count, WIDTH)).transpose(1, 2)


def turned(heads: Tensor) -> Tensor:
    """As rotary positions turn rows: each by an angle of its own, the first not at all."""
    angle = torch.arange(heads.shape[2])[:, None] * torch.tensor([1.0, 0.3, 0.1])
    first, second = heads.chunk(2, dim=-1)
    return torch.cat(
        [first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], dim=-1
    )


def test_heads_are_found_as_they_are_turned_and_scaled() -> None:
    written = rows()
    for heads in (heads_of(written), turned(heads_of(written)), 0.3 * turned(heads_of(written))):
        found = find_source(heads, [made(rows(30)), made(written), made(torch.randn_like(written))], WIDTH)
        assert found is not None
        assert (found.begins, found.width) == ((0, 6, 12, 18), WIDTH)


def test_the_part_of_a_fused_layer_is_found() -> None:
    written = rows(3 * HEADS * WIDTH)
    found = find_source(turned(heads_of(written, first=24)), [made(written)], WIDTH)
    assert found is not None
    assert found.begins == (24, 30, 36, 42)


def test_a_kv_head_written_out_for_several_query_heads_keeps_its_place() -> None:
    written = rows(2 * WIDTH)
    expanded = turned(heads_of(written, count=2)).repeat_interleave(2, dim=1)
    found = find_source(expanded, [made(written)], WIDTH)
    assert found is not None
    assert found.begins == (0, 0, 6, 6)


def test_heads_in_another_order_are_not_taken_for_found() -> None:
    written = rows()
    assert find_source(heads_of(written)[:, [1, 0, 2, 3]], [made(written)], WIDTH) is None
    assert find_source(heads_of(written)[:, [0, 1, 0, 1]], [made(written)], WIDTH) is None


def test_copies_that_differ_by_rounding_are_taken_in_the_order_of_heads() -> None:
    written = rows()
    written[..., 6:12] = written[..., :6]
    heads = heads_of(written).clone()
    torch.manual_seed(1)
    written[..., :6] *= 1 + 3e-7 * torch.randn(
        1, ROWS, 6
    )  # head 0 is nearer to the place of head 1 by a hair
    found = find_source(heads, [made(written.double())], WIDTH)
    assert found is not None
    assert found.begins == (0, 6, 12, 18)


def test_a_larger_copy_in_another_part_is_told_by_its_factor() -> None:
    written = rows(2 * HEADS * WIDTH)
    written[..., 6:12] = 2.0 * written[..., 24:30]  # a key that is twice the first query
    found = find_source(turned(heads_of(written, first=24)), [made(written)], WIDTH)
    assert found is not None
    assert found.begins == (24, 30, 36, 42)


def test_a_norm_of_each_head_is_looked_through() -> None:
    written = rows()
    by_head = written.unflatten(-1, (HEADS, WIDTH))
    gain = torch.linspace(0.5, 2.0, WIDTH)
    normed = by_head / by_head.norm(dim=-1, keepdim=True) * gain
    for read, wrote in ((by_head, normed), (by_head.transpose(1, 2), normed.transpose(1, 2))):
        found = find_source(turned(normed.transpose(1, 2)), [made(written), made(wrote, "norm", read)], WIDTH)
        assert found is not None
        assert (found.name, found.begins) == ("projection", (0, 6, 12, 18))


def test_a_head_of_zeros_has_its_place() -> None:
    written = rows()
    written[..., 6:12] = 0.0
    found = find_source(turned(heads_of(written)), [made(written)], WIDTH)
    assert found is not None
    assert found.begins == (0, 6, 12, 18)


@pytest.mark.parametrize("spoil", ["few rows", "gated", "nan"])
def test_what_cannot_be_told_is_not_said(spoil: str) -> None:
    written = rows(count=LEAST_TOKENS - 1 if spoil == "few rows" else ROWS)
    heads = heads_of(written)
    if spoil == "gated":
        heads = heads * torch.rand(1, HEADS, ROWS, 1, generator=torch.Generator().manual_seed(2))
    if spoil == "nan":
        heads = heads.clone()
        heads[0, 2, 3, 4] = torch.nan
    assert find_source(heads, [made(written)], WIDTH) is None


def test_where_all_heads_are_normed_to_one_length_the_first_row_tells_query_from_key() -> None:
    model = family("Qwen3ForCausalLM").build(num_key_value_heads=4)
    given = next(candidates(opened(model, None, None), text=None, seed=0)).inputs
    for call in hear(model, given, lambda count: None).calls:
        names = {matrix: source.name.rpartition(".")[2] for matrix, source in call.sources.items()}
        assert names == {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
        assert call.sources["query"].begins == (0, 8, 16, 24)


def test_rows_of_one_length_are_not_found_where_their_first_row_is_not() -> None:
    """As where a layer takes normed keys over from another: its own projections have other rows."""
    model = Family("Gemma3nForCausalLM", SHARING).build()
    given = next(candidates(opened(model, None, None), text=None, seed=0)).inputs
    calls = hear(model, given, lambda count: None).calls
    assert [set(call.sources) for call in calls[2:]] == [{"query", "output"}] * 2
    assert all(len(call.sources) == 4 for call in calls[:2])
