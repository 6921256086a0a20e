"""What `view` computes, held against the models' own eager attention."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from headwise.errors import ArgumentError
from headwise.verbs.view import View, view
from headwise.verbs.view.render_json import to_json
from headwise.verbs.view.render_page import page_data, write_page

TEXT = "The bank raised rates because inflation was rising"


@pytest.fixture(scope="module")
def decoder_view(smollm2) -> View:
    return view(smollm2, TEXT)


@pytest.fixture(scope="module")
def encoder_view(minilm) -> View:
    return view(minilm, TEXT)


def eager_weights(opened, ids: list[int]) -> list[np.ndarray]:
    """Each layer's weights, `[num_heads, seq_len, seq_len]`, as the model's own eager attention has them."""
    model = opened.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            outputs = model(input_ids=torch.tensor([ids]), output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    return [weights[0].numpy() for weights in outputs.attentions]


def test_json_of_a_decoder_has_the_promised_facts(decoder_view):
    document = json.loads(json.dumps(to_json(decoder_view), allow_nan=False))
    assert document["model"] == "smollm2-135m"
    facts = ("layers", "num_heads", "num_kv_heads", "head_dim", "kv_bytes_per_token")
    assert [document[name] for name in facts] == [30, 9, 3, 64, 23040]
    assert document["tokens"] == [
        "The", " bank", " raised", " rates", " because", " inflation", " was", " rising",
    ]  # fmt: skip
    assert [head["kv_head"] for head in document["heads"][:9]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [(head["layer"], head["head"]) for head in document["heads"]] == [
        (layer, head) for layer in range(30) for head in range(9)
    ]
    assert set(document["heads"][0]) == {
        "layer", "head", "kv_head", "entropy", "first_token", "previous_token", "self", "mean_distance",
    }  # fmt: skip
    assert 0 <= document["max_logit_difference"] < 1e-3
    assert document["page"] is None


def test_next_tokens_are_the_five_likeliest_of_the_plain_model(smollm2, decoder_view):
    ids = torch.tensor([[token.id for token in decoder_view.tokens]])
    with torch.inference_mode():
        probabilities = smollm2.model(input_ids=ids).logits[0, -1].softmax(-1)
    expected = probabilities.topk(5)
    assert [found.token for found in decoder_view.next_tokens] == [
        smollm2.tokenizer.decode([token]) for token in expected.indices.tolist()
    ]
    np.testing.assert_allclose(
        [found.probability for found in decoder_view.next_tokens], expected.values.numpy(), atol=1e-5
    )


@pytest.mark.parametrize("which", ["decoder_view", "encoder_view"])
def test_every_statistic_of_every_head_equals_the_one_of_eager_weights(which, request):
    found = request.getfixturevalue(which)
    opened = request.getfixturevalue("smollm2" if which == "decoder_view" else "minilm")
    all_weights = eager_weights(opened, [token.id for token in found.tokens])
    assert len(all_weights) == len(found.layers)
    for maps, weights in zip(found.layers, all_weights, strict=True):
        np.testing.assert_allclose(maps.weights, weights, atol=1e-5)
        for summary, of_head in zip(found.heads_of(maps.layer), weights, strict=True):
            for name, expected in statistics_by_hand(of_head.astype(np.float64)).items():
                assert getattr(summary, name) == pytest.approx(expected, abs=2e-5), (summary, name)


def statistics_by_hand(weights: np.ndarray) -> dict[str, float]:
    positions = np.arange(len(weights))
    distance = abs(positions[:, None] - positions)
    logarithms = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return {
        "entropy": float(-(weights * logarithms).sum(-1).mean()),
        "first_token": float(weights[:, 0].mean()),
        "previous_token": float(np.diagonal(weights, -1).mean()),
        "self_token": float(np.diagonal(weights).mean()),
        "mean_distance": float((weights * distance).sum(-1).mean()),
    }


def test_an_encoder_has_no_next_tokens_and_no_cache(encoder_view):
    document = to_json(encoder_view)
    assert [document[name] for name in ("layers", "num_heads", "num_kv_heads", "head_dim")] == [6, 12, 12, 32]
    assert document["kv_bytes_per_token"] == 0
    assert document["next_tokens"] == []
    assert document["causal"] is False
    assert document["tokens"][0] == "[CLS]"
    assert document["tokens"][-1] == "[SEP]"
    assert len(document["heads"]) == 72


def test_libraries_say_nothing_while_a_view_is_made(minilm, said_by_transformers):
    view(minilm, "The bank")
    assert said_by_transformers == []
    transformers.logging.get_logger("transformers").warning("heard again")
    assert said_by_transformers == ["heard again"]


def test_heads_that_stand_out_are_the_ends_of_each_statistic(decoder_view):
    found = decoder_view.stand_outs(each=1)
    assert [(item.statistic.name, item.highest) for item in found] == [
        ("entropy", True),
        ("entropy", False),
        ("first_token", True),
        ("previous_token", True),
        ("self_token", True),
        ("mean_distance", True),
    ]
    for item in found:
        of_all = [getattr(head, item.statistic.name) for head in decoder_view.heads]
        assert item.value == (max if item.highest else min)(of_all)
        assert item.median == pytest.approx(np.median(of_all))


def test_a_layer_that_does_not_exist_is_refused_with_the_numbers(smollm2):
    with pytest.raises(ArgumentError, match=r"layer=30 does not exist; smollm2-135m has layers 0 to 29"):
        view(smollm2, TEXT, layer=30)


def test_a_long_text_keeps_whole_weights_of_the_layer_asked_for_only(minilm):
    found = view(minilm, "word " * 300, layer=4)
    assert [maps.layer for maps in found.layers if maps.weights is not None] == [4]
    header, blocks = page_data(found)
    assert [layer["tile"] for layer in header["layers"]] == [False, False, False, False, True, False]
    assert blocks["weights/4"].shape == (12, 302, 302)
    assert blocks["thumbnails/0"].shape == (12, 64, 64)


def test_thumbnail_rows_sum_to_one(decoder_view, minilm):
    for found in (decoder_view, view(minilm, "word " * 100)):
        for maps in found.layers:
            np.testing.assert_allclose(maps.thumbnails.sum(-1), 1, atol=1e-5)


def test_page_data_of_a_short_text_keeps_weights_as_computed(decoder_view):
    header, blocks = page_data(decoder_view)
    assert header["exact"]
    for maps in decoder_view.layers:
        np.testing.assert_array_equal(blocks[f"weights/{maps.layer}"], maps.weights)


def test_a_page_is_written_whole_or_not_at_all(decoder_view, tmp_path, monkeypatch):
    page = write_page(decoder_view, tmp_path / "page.html")
    whole = page.read_bytes()

    def stop_half_way(path: Path, text: str, *, encoding: str) -> None:
        path.write_bytes(text[:1000].encode(encoding))
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", stop_half_way)
    with pytest.raises(KeyboardInterrupt):
        write_page(decoder_view, page)
    assert list(tmp_path.iterdir()) == [page]
    assert page.read_bytes() == whole
    assert len(whole) < 1_000_000


def test_one_token_is_a_text_too(smollm2):
    notices: list[str] = []
    found = view(smollm2, "Hello", notify=notices.append)
    assert notices == ["running smollm2-135m on 1 token"]
    assert len(found.tokens) == 1
    assert found.heads[0].previous_token is None
    assert found.heads[0].self_token == pytest.approx(1)
    assert found.stand_outs() == (), "every head gives all to the one token"
    json.dumps(to_json(found), allow_nan=False)
