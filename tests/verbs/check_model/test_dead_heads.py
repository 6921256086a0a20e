"""Heads that do nothing."""

from __future__ import annotations

import pytest
import torch

from headwise.verbs.check_model import check_model

from ...models.attachment.families import family
from .changing import columns, rows, said, told

WIDTH = 8


@pytest.mark.parametrize(
    ("name", "kind", "matrix"),
    [("q_proj", "dead-query", "query"), ("o_proj", "dead-output", "output")],
)
@pytest.mark.parametrize("size", [0.0, 1e-3])
def test_a_matrix_of_one_query_head(name: str, kind: str, matrix: str, size: float) -> None:
    model = family("LlamaForCausalLM").build()
    linear = getattr(model.model.layers[1].self_attn, name)
    slice_of = columns if matrix == "output" else rows
    with torch.no_grad():
        slice_of(linear, 2, WIDTH).mul_(size)
    found = check_model(model)
    assert said(found) == [(kind, 1, (2,), (matrix,))]
    amount = "is zero" if size == 0 else "is next to zero (at most 0.00"
    assert amount in found.findings[0].words
    assert found.findings[0].numbers["share_of_median"] == pytest.approx(size, rel=0.5)


@pytest.mark.parametrize(
    ("name", "kind", "matrix"), [("k_proj", "dead-key", "key"), ("v_proj", "dead-value", "value")]
)
def test_a_matrix_of_a_kv_head_is_one_of_all_query_heads_that_read_it(
    name: str, kind: str, matrix: str
) -> None:
    model = family("LlamaForCausalLM").build()
    with torch.no_grad():
        rows(getattr(model.model.layers[0].self_attn, name), 1, WIDTH).zero_()
    assert said(check_model(model)) == [(kind, 0, (2, 3), (matrix,))]


def test_a_pruned_head_is_one_finding() -> None:
    model = family("BertModel").build()
    own, output = model.encoder.layer[0].attention.self, model.encoder.layer[0].attention.output.dense
    with torch.no_grad():
        for linear in (own.query, own.key, own.value):
            rows(linear, 3, WIDTH).zero_()
        columns(output, 3, WIDTH).zero_()
    found = check_model(model)
    assert said(found) == [("dead-output", 0, (3,), ("query", "key", "value", "output"))]
    assert found.findings[0].words.startswith(
        "W_Q, W_K, W_V and W_O of head 3 are zero: nothing of what it does"
    )


def test_heads_that_are_dead_are_no_duplicates() -> None:
    model = family("LlamaForCausalLM").build()
    with torch.no_grad():
        for head in (0, 3):
            columns(model.model.layers[1].self_attn.o_proj, head, WIDTH).zero_()
    assert said(check_model(model)) == [("dead-output", 1, (0, 3), ("output",))]


def test_a_head_whose_sink_takes_all_is_silent_on_the_text() -> None:
    model = family("GptOssForCausalLM").build()
    with torch.no_grad():
        model.model.layers[0].self_attn.sinks[1] = 30.0
    found = check_model(model)
    assert said(found) == [("silent-head", 0, (1,), ())]
    assert "head 1 adds next to nothing to the output on this text" in told(found).replace("\n", " ")


def test_a_head_that_writes_where_nothing_is_read_is_silent() -> None:
    model = family("LlamaForCausalLM").build()
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        rows(attention.v_proj, 0, WIDTH)[: WIDTH // 2] = 0.0
        columns(attention.o_proj, 1, WIDTH)[:, WIDTH // 2 :] = 0.0
    assert said(check_model(model)) == [("silent-head", 1, (1,), ())]


def test_a_layer_that_is_dead_throughout() -> None:
    model = family("LlamaForCausalLM").build()
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
    assert said(check_model(model)) == [("dead-output", 0, (0, 1, 2, 3), ("output",))]
