"""What is asked of `view` beyond the usual: rows, scores, long texts, progress, two views."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import STATISTICS
from headwise.models.attachment import AttachedLayer
from headwise.models.head_scores import SCORES, head_scores
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.verbs.view import Comparison, compute, recorded, view
from headwise.verbs.view.recorded import what_to_collect
from headwise.verbs.view.render_json import to_json
from headwise.verbs.view.render_page import page_data

from .small_models import MARIAN, opened, small_model, word_tokenizer
from .test_view import eager_weights

TEXT = "The bank raised rates because inflation was rising"


@pytest.fixture(scope="module")
def toy() -> OpenedModel:
    return open_model("toy-induction")


def test_rows_that_are_asked_for_are_those_of_eager_in_every_layer(smollm2: OpenedModel) -> None:
    found = view(smollm2, TEXT, rows=[-1, 2])
    assert found.exact_rows == (2, 7)
    for maps, weights in zip(found.layers, eager_weights(smollm2, [t.id for t in found.tokens]), strict=True):
        assert maps.exact_weights.shape == (9, 2, 8)
        np.testing.assert_allclose(maps.exact_weights, weights[:, [2, 7]], atol=1e-5)
    second = json.loads(json.dumps(to_json(found)))["rows"][1]
    assert (second["row"], second["token"], len(second["heads"])) == (7, " rising", 270)
    of_head = second["heads"][9 * 3 + 4]
    assert (of_head["layer"], of_head["head"]) == (3, 4)
    np.testing.assert_array_equal(of_head["weights"], found.layers[3].exact_weights[4, 1])


def test_the_page_of_a_long_text_carries_the_rows_as_computed(minilm: OpenedModel) -> None:
    found = view(minilm, "word " * 300, rows=[5, -1])
    header, blocks = page_data(found)
    assert header["exact_rows"] == [5, 301]
    assert all(layer["exact_rows"] and not layer["tile"] for layer in header["layers"])
    np.testing.assert_array_equal(blocks["exact/4"], found.layers[4].exact_weights)
    np.testing.assert_allclose(blocks["exact/4"].sum(-1), 1, atol=1e-5)


def test_without_rows_none_are_kept(minilm: OpenedModel) -> None:
    found = view(minilm, TEXT)
    assert {maps.exact_weights is None for maps in found.layers} == {True}
    assert (found.exact_rows, to_json(found)["rows"]) == ((), [])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([8], r"rows\[0\]=8 does not exist; of 8 query rows there is 0 to 7, or -8 to -1 from the end"),
        ([0, -9], r"rows\[1\]=-9 does not exist"),
        ([7, -1], r"rows\[0\] and rows\[1\] are both 7; name each once"),
    ],
)
def test_rows_that_do_not_exist_are_refused_before_the_model_runs(
    rows: list[int], message: str, smollm2: OpenedModel
) -> None:
    said: list[str] = []
    with pytest.raises(ArgumentError, match=message):
        view(smollm2, TEXT, rows=rows, notify=said.append)
    assert said == []


def test_scores_are_those_of_the_model_whatever_the_text(toy: OpenedModel) -> None:
    said: list[str] = []
    found = view(toy, "The cat sat", scores=True, notify=said.append)
    assert found.head_scores == head_scores(toy)
    assert said == [
        "scoring the heads of toy-induction on random tokens",
        "running toy-induction on 4 tokens",
    ]
    document = json.loads(json.dumps(to_json(found)))["head_scores"]
    best = {score: heads[0] for score, heads in document["strongest"].items()}
    assert (best["induction"]["layer"], best["induction"]["head"]) == (1, 2)
    assert (best["previous_token"]["layer"], best["previous_token"]["head"]) == (0, 1)
    assert min(best[score]["score"] for score in ("induction", "previous_token")) > 0.99
    assert [len(heads) for heads in document["strongest"].values()] == 4 * [5]
    assert document["definitions"] == {score.key: score.definition for score in SCORES}
    assert document["text"] == {"num_tokens": 64, "batch": 4, "seed": 0, "seq_len": 129}
    assert len(document["heads"]) == len(found.heads)
    assert to_json(view(toy, "The cat sat"))["head_scores"] is None


def test_heads_of_an_encoder_decoder_are_not_scored(tmp_path: Any) -> None:
    model = opened(small_model("MarianMTModel", MARIAN), tmp_path, word_tokenizer(ends=True))
    with pytest.raises(
        UnsupportedError, match=r"small-marian is an encoder-decoder, and the scores are of one"
    ):
        view(model, "the cat", decoder_text="le chat", scores=True)


def test_a_text_beyond_the_models_positions_is_refused_with_both_numbers(minilm: OpenedModel) -> None:
    with pytest.raises(
        ArgumentError, match=r"text has 602 tokens and minilm-l6 has positions for 512; use a sh"
    ):
        view(minilm, "word " * 600)


def test_only_the_last_logits_are_computed(smollm2: OpenedModel) -> None:
    shapes = []
    hook = smollm2.model.lm_head.register_forward_hook(
        lambda module, args, output: shapes.append(output.shape)
    )
    try:
        view(smollm2, TEXT)
    finally:
        hook.remove()
    assert shapes[-1] == (1, 1, 49152)


def layers(*heads: int) -> dict[int, AttachedLayer]:
    return {
        place: AttachedLayer(place, f"layers.{place}", count, count, 8, 8, "self")
        for place, count in enumerate(heads)
    }


@pytest.mark.parametrize(
    ("seq_len", "kv_len", "focus", "whole", "map_sizes"),
    [
        (256, 256, None, [0, 1, 2], [64, 64, 64]),
        (257, 257, None, [], [64, 64, 64]),
        (5, 257, None, [], [64, 64, 64]),
        (257, 257, 1, [1], [64, 64, 64]),
        (8_000, 8_000, 1, [], [64, 256, 64]),
        # 256 MB are 64 million weights: 4 heads of 4,000 x 4,000.
        (4_000, 4_000, 1, [1], [64, 64, 64]),
        (4_000, 4_001, 1, [], [64, 256, 64]),
    ],
)
def test_weights_are_kept_of_short_texts_and_of_the_layer_in_focus_while_they_fit(
    *, seq_len: int, kv_len: int, focus: int | None, whole: list[int], map_sizes: list[int]
) -> None:
    wanted = what_to_collect(layers(3, 4, 5), seq_len=seq_len, kv_len=kv_len, focus_layer=focus, rows=(-1,))
    collected = list(wanted.values())
    assert [place for place, collect in enumerate(collected) if collect.weights] == whole
    assert [collect.map_size for collect in collected] == map_sizes
    assert {(collect.top_k, collect.rows) for collect in collected} == {(8, (-1,))}


def test_weights_of_very_many_layers_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "WEIGHTS_BYTES", 12 * 7 * 7 * 4 - 1)
    wanted = what_to_collect(layers(3, 4, 5), seq_len=7, kv_len=7, focus_layer=None, rows=())
    assert [collect.weights for collect in wanted.values()] == [False, False, False]


def test_a_layer_in_focus_whose_weights_are_not_kept_has_a_finer_map(
    minilm: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "WEIGHTS_BYTES", 1000)
    found = view(minilm, "word " * 300, layer=4)
    assert [maps.thumbnails.shape[1] for maps in found.layers] == [64, 64, 64, 64, 256, 64]
    assert {maps.weights is None for maps in found.layers} == {True}
    assert page_data(found)[1]["thumbnails/4"].shape == (12, 256, 256)


def test_a_run_that_takes_long_says_how_far_it_is(
    minilm: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute, "QUIET_SECONDS", 0.0)
    hooks = [[*module._forward_hooks] for module in minilm.model.modules()]
    said: list[str] = []
    view(minilm, TEXT, notify=said.append)
    through = [f"running minilm-l6: {done} of 6 layers are through" for done in range(1, 7)]
    assert said == ["running minilm-l6 on 10 tokens", *through]
    monkeypatch.setattr(compute, "QUIET_SECONDS", 1000.0)
    view(minilm, TEXT, notify=said.append)
    assert said[7:] == ["running minilm-l6 on 10 tokens"]
    assert [[*module._forward_hooks] for module in minilm.model.modules()] == hooks


def test_two_texts_of_one_model_are_one_document(toy: OpenedModel) -> None:
    both = Comparison(view(toy, "The cat sat. The cat"), view(toy, "The dog ran. A bird"))
    document = json.loads(json.dumps(to_json(both), allow_nan=False))
    assert set(document) == {
        "first", "second", "differences", "no_differences_because", "tokens_note", "page",
    }  # fmt: skip
    assert [document[name]["text"] for name in ("first", "second")] == [
        "The cat sat. The cat",
        "The dog ran. A bird",
    ]
    assert document["no_differences_because"] is None
    by_hand = differences_by_hand(both)
    for statistic in STATISTICS:
        found = [one for one in document["differences"] if one["statistic"] == statistic.key]
        assert [one["difference"] for one in found] == pytest.approx(by_hand[statistic.name][: len(found)])
        assert 0 < len(found) <= 3
        for one in found:
            assert one["second"] - one["first"] == pytest.approx(one["difference"])


def differences_by_hand(both: Comparison) -> dict[str, list[float]]:
    """Every head's difference, the largest first, whatever its sign."""
    found = {}
    for statistic in STATISTICS:
        first, second = (
            np.array([getattr(head, statistic.name) for head in seen.heads])
            for seen in (both.first, both.second)
        )
        found[statistic.name] = sorted((second - first).tolist(), key=abs, reverse=True)
    return found


def test_models_of_different_grids_are_compared_without_a_table(
    toy: OpenedModel, minilm: OpenedModel
) -> None:
    document = to_json(Comparison(view(toy, "The cat sat"), view(minilm, "The cat sat")))
    assert document["differences"] == []
    assert document["no_differences_because"] == (
        "heads are recorded in layers 0 to 1 in the first and in layers 0 to 5 in the second"
    )
    assert document["tokens_note"] == "the two models cut the text into other tokens (4 and 5)"


def test_what_is_not_there_is_null_in_the_document(minilm: OpenedModel) -> None:
    document = to_json(view(minilm, "The bank"))
    for name in (
        "part",
        "key_tokens",
        "key_token_details",
        "image_grid",
        "focus_layer",
        "head_scores",
        "page",
    ):
        assert document[name] is None
    assert document["not_recorded"] == []
    assert document["attention_layers"][5] == {
        "layer": 5, "name": "encoder.layer.5.attention.self", "num_heads": 12, "num_kv_heads": 12,
    }  # fmt: skip
    assert torch.is_grad_enabled()
