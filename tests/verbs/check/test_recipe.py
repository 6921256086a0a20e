"""The recipe with no fault is the reference, whatever it is handed over."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise import reference
from headwise.masks import Causal, CausalFrom, Dense, Window
from headwise.rope import Rope
from headwise.verbs.check.asking import Form, Inputs, Projection, Projections, Role, Sizes
from headwise.verbs.check.faults import ENTRIES
from headwise.verbs.check.recipe import CannotComputeError, Computation, Recipe

SIZES = Sizes(num_heads=6, num_kv_heads=3, head_dim=10, value_head_dim=4, d_model=35)
BATCH, SEQ_LEN, KV_LEN = 2, 5, 7


def drawn(*, seq_len: int = SEQ_LEN, kv_len: int = KV_LEN, spread: float = 1.0) -> Inputs:
    random = torch.Generator().manual_seed(3)
    query = torch.randn(BATCH, SIZES.num_heads, seq_len, SIZES.head_dim, generator=random) * spread
    key = torch.randn(BATCH, SIZES.num_kv_heads, kv_len, SIZES.head_dim, generator=random) * spread
    value = torch.randn(BATCH, SIZES.num_kv_heads, kv_len, SIZES.value_head_dim, generator=random)
    return Inputs(query, key, value)


def computed(inputs: Inputs, recipe: Recipe, **options: Any) -> Tensor:
    made = replace(inputs, options={Role(name): value for name, value in options.items()})
    return Computation(form=Form.HEADS, sizes=SIZES, readings=(), inputs=made).answer(recipe).output


def referred(inputs: Inputs, **options: Any) -> np.ndarray:
    return reference.attention(inputs.query, inputs.key, inputs.value, **options).output


def flags(*shape: int) -> Tensor:
    random = torch.Generator().manual_seed(5)
    drawn = torch.rand(*shape, generator=random) > 0.4
    drawn[..., 0] = True
    return drawn


def assert_same(found: Tensor, right: np.ndarray) -> None:
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_without_options(spread):
    inputs = drawn(spread=spread)
    assert_same(computed(inputs, Recipe()), referred(inputs))


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        (Recipe(scale=0.7), {"scale": 0.7}),
        (Recipe(softcap=1.5), {"softcap": 1.5}),
        (Recipe(causal=True), {"mask": Causal()}),
        (Recipe(causal=True, alignment="upper_left"), {"mask": Causal(align="upper_left")}),
        (Recipe(causal=True, window=3), {"mask": Window.of(3)}),
        (Recipe(window=3, window_sides="both"), {"mask": Window(2, 2)}),
        (Recipe(causal=True, softcap=1.5, scale=0.7), {"mask": Causal(), "softcap": 1.5, "scale": 0.7}),
    ],
    ids=["scale", "softcap", "causal", "upper-left", "window", "window on both sides", "all"],
)
def test_what_is_done_unasked(recipe, options):
    inputs = drawn()
    assert_same(computed(inputs, recipe), referred(inputs, **options))


def test_more_queries_than_keys_leave_rows_empty():
    inputs = drawn(seq_len=7, kv_len=5)
    assert_same(computed(inputs, Recipe(causal=True)), referred(inputs, mask=Causal()))


@pytest.mark.parametrize(
    ("handed", "options"),
    [
        ({"causal": True}, {"mask": Causal()}),
        ({"causal": False}, {}),
        ({"window": 2, "causal": True}, {"mask": Window.of(2)}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"softcap": 2.0}, {"softcap": 2.0}),
        ({"mask": flags(SEQ_LEN, KV_LEN)}, {"mask": flags(SEQ_LEN, KV_LEN).numpy()}),
        ({"mask": flags(BATCH, 1, SEQ_LEN, KV_LEN)}, {"mask": flags(BATCH, 1, SEQ_LEN, KV_LEN).numpy()}),
        ({"padding": ~flags(BATCH, KV_LEN)}, {"mask": flags(BATCH, 1, 1, KV_LEN).numpy()}),
        (
            {"causal": True, "mask": flags(SEQ_LEN, KV_LEN)},
            {"mask": Causal() & Dense(flags(SEQ_LEN, KV_LEN).numpy())},
        ),
    ],
    ids=["causal", "no causal", "window", "scale", "softcap", "mask", "mask of each", "padding", "both"],
)
def test_what_is_handed_over(handed, options):
    inputs = drawn()
    assert_same(computed(inputs, Recipe(), **handed), referred(inputs, **options))


def test_float_mask_and_bias_are_added():
    inputs, added = drawn(), torch.randn(SEQ_LEN, KV_LEN).masked_fill(~flags(SEQ_LEN, KV_LEN), -torch.inf)
    bias = torch.randn(1, SIZES.num_heads, SEQ_LEN, KV_LEN)
    assert_same(computed(inputs, Recipe(), mask=added), referred(inputs, mask=added.numpy()))
    assert_same(computed(inputs, Recipe(), bias=bias), referred(inputs, bias=bias.numpy()))


def test_mask_that_says_what_to_ignore():
    inputs, mask = drawn(), flags(SEQ_LEN, KV_LEN)
    found = computed(inputs, Recipe(mask_means="ignore"), mask=~mask)
    assert_same(found, referred(inputs, mask=mask.numpy()))


@pytest.mark.parametrize("empty", ["zero", "nan", "mean"])
def test_rows_that_see_nothing(empty):
    inputs, mask = drawn(), flags(SEQ_LEN, KV_LEN)
    mask[2] = False
    found = computed(inputs, Recipe(empty=empty), mask=mask)
    right = referred(inputs, mask=mask.numpy())
    value = inputs.value.double().repeat_interleave(2, dim=1)
    right[:, :, 2] = {"zero": 0.0, "nan": np.nan, "mean": value.mean(dim=2).numpy()}[empty]
    assert_same(found, right)


@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
def test_rotary_positions(pairing):
    inputs, rope = drawn(seq_len=7), Rope(base=100.0, pairing=pairing)
    query, key = rope.rotate(inputs.query.double(), inputs.key.double())
    right = reference.attention(query, key, inputs.value).output
    assert_same(computed(inputs, Recipe(rope=rope)), right)


def test_behind_a_cache_is_as_all_at_once():
    whole, rope = drawn(seq_len=KV_LEN), Rope()
    old, new = (
        Inputs(*(rows[:, :, kept] for rows in (whole.query, whole.key, whole.value)))
        for kept in (slice(None, 5), slice(5, None))
    )
    recipe = Recipe(rope=rope, causal=True)
    made = Computation(form=Form.HEADS, sizes=SIZES, readings=(), inputs=new, past=old)
    assert_same(made.answer(recipe).output, computed(whole, recipe)[:, :, 5:].numpy())


def maps() -> Projections:
    torch.manual_seed(2)
    widths = (SIZES.num_heads * SIZES.head_dim, SIZES.num_kv_heads * SIZES.head_dim)
    query, key, value, output = (
        nn.Linear(rows, columns)
        for rows, columns in (
            (SIZES.d_model, widths[0]),
            (SIZES.d_model, widths[1]),
            (SIZES.d_model, SIZES.num_kv_heads * SIZES.value_head_dim),
            (SIZES.num_heads * SIZES.value_head_dim, SIZES.d_model),
        )
    )
    return Projections(
        *(Projection(one.weight.detach(), one.bias.detach()) for one in (query, key, value, output))
    )


def test_projections_around_the_reference():
    by, rows = maps(), torch.randn(BATCH, SEQ_LEN, SIZES.d_model)
    made = Computation(
        form=Form.PROJECTED, sizes=SIZES, readings=(by,), inputs=Inputs(rows, rows, rows)
    ).answer(Recipe())

    def heads(one: Projection, count: int) -> Tensor:
        out = rows.double() @ one.weight.double().T + one.bias.double()
        return out.unflatten(-1, (count, -1)).transpose(1, 2)

    query, key, value = heads(by.query, 6), heads(by.key, 3), heads(by.value, 3)
    of_heads = torch.from_numpy(reference.attention(query, key, value).output)
    right = of_heads.transpose(1, 2).flatten(2) @ by.output.weight.double().T + by.output.bias.double()
    assert_same(made.output, right.numpy())


@pytest.mark.parametrize("order", ["head major", "width major"])
def test_rows_of_full_width(order):
    inputs = drawn()
    letters = "bhqd->bqhd" if order == "head major" else "bhqd->bqdh"
    query, key, value = (
        torch.einsum(letters, rows).flatten(2) for rows in (inputs.query, inputs.key, inputs.value)
    )
    made = Computation(form=Form.WIDTH, sizes=SIZES, readings=(), inputs=Inputs(query, key, value))
    right = torch.einsum(letters, torch.from_numpy(referred(inputs))).flatten(2)
    assert_same(made.answer(Recipe(head_order=order)).output, right.numpy())


def test_a_mask_of_other_sizes_cannot_be_computed():
    with pytest.raises(CannotComputeError, match=r"a mask of .* does not fit"):
        computed(drawn(), Recipe(), mask=flags(SEQ_LEN, KV_LEN - 1))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(masking="transposed"), "not square"),
        (Recipe(padding="on queries"), "does not fit the queries"),
        (Recipe(mask_means="other"), "is open"),
        (Recipe(tensors_swapped="query key"), "query and key differ in shape"),
        (Recipe(tensors_swapped="key value"), "key and value differ in shape"),
        (Recipe(batch_mixed=True), "cannot be mixed"),
        (Recipe(heads_mixed=True), "different lengths"),
        (Recipe(rope=Rope(rotary_dim=12)), "do not fit the width"),
    ],
)
def test_knobs_that_sizes_do_not_allow(recipe, words):
    handed = {"mask": flags(SEQ_LEN, KV_LEN), "padding": flags(BATCH, KV_LEN)}
    with pytest.raises(CannotComputeError, match=words):
        computed(drawn(), recipe, **handed)


def test_every_knob_of_a_fault_exists_and_is_turned():
    known = {knob.name: knob.default for knob in fields(Recipe)}
    for entry in ENTRIES:
        for change in entry.changes:
            assert change.keys() <= known.keys(), entry.fault.name
            assert all(known[name] != value for name, value in change.items()), entry.fault.name


def test_prefix_alignment_is_that_of_positions():
    # Behind two keys that came earlier, the first row stands at place 2.
    inputs = drawn()
    right = referred(inputs, mask=CausalFrom((2, 2)))
    assert_same(computed(inputs, Recipe(causal=True)), right)
