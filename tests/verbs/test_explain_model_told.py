"""What `explain MODEL` hands on: a result that cannot be changed, JSON, and a story for a terminal."""

import dataclasses
import json
import re

import numpy as np
import pytest
from rich.cells import cell_len

from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.explain_model import ModelTrace, explain_model
from headwise.verbs.explain_model.render_json import to_json

from .explain_told import TEXT, told


def test_the_result_cannot_be_changed(trace: ModelTrace) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.layer = 4
    assert trace.logit is not None
    for array in (trace.query, trace.added, trace.row.weights, trace.logit.layers[0].heads):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0


@pytest.mark.parametrize("name", ["trace", "encoder"])
def test_json_has_every_number(name: str, request: pytest.FixtureRequest) -> None:
    found: ModelTrace = request.getfixturevalue(name)
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    for key in ("query", "key", "value"):
        assert document[key]["values"] == getattr(found, key).tolist()
    assert document["row"]["weights"] == found.row.weights.tolist()
    assert document["added_by_head"]["values"] == found.added.tolist()
    if found.logit is None:
        assert (document["logit"], document["no_logit_because"]) == (None, found.no_logit)
        return
    parts = document["logit"]
    total = parts["embedding"] + parts["constant"]
    total += sum(sum(one["heads"]) + one["bias"] + one["mlp"] for one in parts["layers"])
    assert total == pytest.approx(parts["logit"], abs=1e-4)


def test_scores_of_hidden_keys_are_null(smollm2: OpenedModel) -> None:
    found = explain_model(smollm2, TEXT, layer=3, head=0, query=2)
    masked = to_json(found)["row"]["masked"]
    assert [score is None for score in masked] == [False] * 3 + [True] * 4
    assert masked[:3] == found.row.scaled[:3].tolist()
    assert (found.row.weights[3:] == 0).all()
    assert "softmax over the 3 of 7" in told(found)


def test_the_story_shows_the_numbers(trace: ModelTrace) -> None:
    text, parts = told(trace), trace.logit
    assert parts is not None
    for key, weight in enumerate(trace.row.weights):
        assert re.search(rf"^{key} \w+ +.*{trace.row.scaled[key]:.3f} +{weight:.4f}", text, re.MULTILINE)
    for head, added in enumerate(trace.added):
        length, amount = f"{np.linalg.norm(added):.4f}", f"{parts.layers[20].heads[head]:+.4f}"
        assert re.search(rf"head {head}( \(this one\))? +{length} +{re.escape(amount)}\n", text)
    assert f"{parts.total:+.4f}" in text
    strongest = max(
        ((abs(amount), one.layer, head) for one in parts.layers for head, amount in enumerate(one.heads))
    )
    assert f"\n{strongest[1]}.{strongest[2]} " in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_is_wider_than_the_terminal(trace: ModelTrace, width: int) -> None:
    assert max(map(cell_len, told(trace, width).splitlines())) <= width


def test_long_texts_show_the_keys_that_weigh_most(smollm2: OpenedModel) -> None:
    found = explain_model(smollm2, " ".join(["rates rise"] * 12), layer=5, head=1)
    text = told(found)
    assert f"The 12 of {len(found.tokens)} that weigh most; --json has all." in text
    section = text[text.index("3. Scores") : text.index("4. What")]
    rows = re.findall(r"^(\d+) \w+ .* (\d\.\d{4})", section, re.MULTILINE)
    assert sorted(float(weight) for _, weight in rows) == pytest.approx(
        np.sort(found.row.weights)[-12:].round(4), abs=1e-4
    )


def test_tokens_cannot_steer_the_terminal(smollm2: OpenedModel) -> None:
    text = told(explain_model(smollm2, "a\x1b[31mred\n[bold]x", layer=0, head=0))
    assert "\x1b" not in text
    assert "bold" in text
