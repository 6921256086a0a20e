"""What the page says of a model: its part, what is not recorded, layers' names and heads' scores."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headwise.models.attachment import Unseen
from headwise.models.head_scores import SCORES, HeadScore, HeadScores
from headwise.verbs.view import Comparison, View
from headwise.verbs.view.render_page import page_data, write_page
from headwise.verbs.view.result import Part

from .chromium import Browser
from .colour import luminance
from .made_view import made_view, open_view
from .test_view_page_save import picture, table, taken

NO_SOFTMAX = "computes no softmax attention"
DID_NOT_RUN = "did not run on the probe"


def scored(view: View, *, seed: int) -> View:
    """The view with a score of every kind for each head, no two alike."""
    random = np.random.default_rng(seed)
    drawn = random.permutation(np.linspace(0.02, 0.98, len(view.heads) * len(SCORES)))
    scores = drawn.reshape(len(view.heads), len(SCORES)).tolist()
    heads = tuple(
        HeadScore(head.layer, head.head, head.kv_head, *own)
        for head, own in zip(view.heads, scores, strict=True)
    )
    return replace(view, head_scores=HeadScores(view.facts.name, 47, 3, 0, 95, 64, heads))


def hybrid() -> View:
    """Layers 1 and 3 of four have heads, and names of their own."""
    view = made_view(7, num_heads=4, num_kv_heads=2)
    names = {0: (1, "model.layers.1.self_attn"), 1: (3, "model.layers.3.self_attn\u200b")}
    layers = tuple(
        replace(maps, layer=names[maps.layer][0], name=names[maps.layer][1]) for maps in view.layers
    )
    heads = tuple(replace(head, layer=names[head.layer][0]) for head in view.heads)
    unseen = tuple(Unseen(f"model.layers.{layer}.mamba", NO_SOFTMAX) for layer in (0, 2, 4, 5, 6))
    unseen += (Unseen("model.<i>idle</i>", DID_NOT_RUN),)
    return replace(view, facts=replace(view.facts, layers=4), layers=layers, heads=heads, unseen=unseen)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("encoder", "the encoder's self-attention, looks both ways"),
        ("decoder", "the decoder's self-attention, causal"),
        ("cross", "cross attention, from decoder to encoder"),
    ],
)
def test_which_attention_of_an_encoder_decoder_is_said_above_below_and_under_pictures(
    browser: Browser, tmp_path: Path, part: Part, said: str
) -> None:
    shown = {"encoder": open_view(7), "decoder": made_view(7, name="open"), "cross": open_view(7, 11)}[part]
    browser.open(write_page(replace(shown, part=part), tmp_path / "page.html"))
    assert said in browser.text("#facts").split(" · ")
    assert said in browser.text("#run-line").split(" · ")
    svg = picture(taken(browser, "matrix SVG", tmp_path))
    words = " ".join(text.text or "" for text in svg.iter("{http://www.w3.org/2000/svg}text"))
    assert f"open ({said}) on 7 tokens" in words
    assert browser.complaints() == []


def test_a_model_of_one_part_has_no_part_named(browser: Browser, tmp_path: Path) -> None:
    for view, direction in ((made_view(7), "causal"), (open_view(7), "looks both ways")):
        browser.open(write_page(view, tmp_path / "page.html"))
        assert direction in browser.text("#facts").split(" · ")
        assert direction not in browser.text("#run-line")
        assert not browser.find("#unseen").is_displayed()
        assert browser.text("#depth-facts").count("·") == 0, "no name of a layer"


def test_what_is_not_recorded_is_named_by_the_reason_why(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(hybrid(), tmp_path / "page.html"))
    assert browser.text("#unseen") == (
        "6 modules not recorded: model.layers.0.mamba, model.layers.2.mamba, model.layers.4.mamba and 2 more "
        f"({NO_SOFTMAX}); model.<i>idle</i> ({DID_NOT_RUN})"
    )
    assert browser.text("#facts").split(" · ")[1] == "2 of 4 layers"


def test_an_open_head_says_its_layers_name_and_rows_keep_their_numbers(
    browser: Browser, tmp_path: Path
) -> None:
    browser.open(write_page(hybrid(), tmp_path / "page.html"), fragment="#layer=1&head=2")
    assert browser.texts(".row-name") == ["1", "3"]
    assert browser.text("#depth-facts") == "reads KV head 1, as head 3 does · model.layers.1.self_attn"
    browser.click('[data-name="3.0"]')
    assert browser.text("#depth-facts").endswith(" · model.layers.3.self_attn⟨U+200B⟩")


def test_a_score_is_inked_read_out_and_orders_the_map(browser: Browser, tmp_path: Path) -> None:
    view = scored(made_view(7, layers=3, num_heads=4), seed=2)
    assert view.head_scores is not None
    found = {(head.layer, head.head): head.induction for head in view.head_scores.heads}
    page = write_page(view, tmp_path / "page.html")
    browser.open(page, fragment="#layer=2&head=1&show=score_induction")
    assert browser.run("return document.getElementById('show').value") == "score_induction"
    shot = browser.screenshot()
    inks = {}
    for layer, head in found:
        box = browser.box(f'[data-name="{layer}.{head}"]')
        inks[layer, head] = -luminance(
            shot.getpixel((box["left"] + box["width"] / 2, box["top"] + box["height"] / 2))
        )
    assert sorted(found, key=lambda place: inks[place]) == sorted(found, key=lambda place: found[place])
    assert browser.text("#map-readout span") == f"layer 2, head 1: {found[2, 1]:.3g} mass"
    assert "Scores are of 47 random tokens twice, not of this text." in browser.text("#map-note")
    rows = table(taken(browser, "map of heads CSV", tmp_path))
    saved = {(int(row["layer"]), int(row["head"])): float(row["score_induction"]) for row in rows}
    assert saved == pytest.approx(found, rel=1e-6)
    browser.open(page, fragment="#order=score_sink")
    strongest = view.head_scores.strongest("sink", count=12)
    walked = browser.run("return Array.from(document.querySelectorAll('.cell'), (one) => one.dataset.name)")
    assert walked == [f"{head.layer}.{head.head}" for head in strongest]


def test_an_open_head_says_its_scores_apart_from_its_statistics_on_this_text(
    browser: Browser, tmp_path: Path
) -> None:
    view = scored(made_view(7), seed=2)
    assert view.head_scores is not None
    browser.open(write_page(view, tmp_path / "page.html"), fragment="#layer=1&head=2")
    lines = browser.texts("#statistics tbody tr")
    start = lines.index("Scores on 47 random tokens twice, not on this text")
    own = view.head_scores.heads[-1]
    expected = [
        line
        for score in SCORES
        for line in (f"{score.label} score mass {getattr(own, score.name):.3g}", score.definition)
    ]
    shown = [re.sub(r"\s+", " ", line) for line in lines[start + 1 :]]
    assert [re.sub(r"0+$", "", line) for line in shown] == [re.sub(r"0+$", "", line) for line in expected]
    assert "score" not in " ".join(lines[:start])


def test_two_runs_say_each_its_own(browser: Browser, tmp_path: Path) -> None:
    first = scored(hybrid(), seed=2)
    second = replace(scored(hybrid(), seed=3), unseen=first.unseen[:1], part="decoder")
    browser.open(
        write_page(Comparison(first, second), tmp_path / "page.html"),
        fragment="#layer=3&head=1&show=score_duplicate_token",
    )
    assert browser.text("#unseen").startswith("6 modules")
    assert browser.text("#unseen-second") == f"1 module not recorded: model.layers.0.mamba ({NO_SOFTMAX})"
    assert "the decoder's self-attention, causal" not in browser.text("#facts")
    assert "the decoder's self-attention, causal" in browser.text("#facts-second")
    assert "model.layers.3.self_attn" in browser.text("#depth-facts-second")
    known = [view.head_scores for view in (first, second) if view.head_scores is not None]
    before, after = (scores.heads[5].duplicate_token for scores in known)
    told = re.findall(r"[+-]?\d[\d.]*", browser.text("#map-readout span").split(":")[1])
    assert [float(number) for number in told] == pytest.approx([before, after, after - before], rel=0.01)
    for suffix, value in (("", before), ("-second", after)):
        lines = [re.sub(r"\s+", " ", line) for line in browser.texts(f"#statistics{suffix} tbody tr")]
        line = next(line for line in lines if line.startswith("duplicate token score"))
        assert float(line.split()[-1]) == pytest.approx(value, rel=0.01)
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1440, 390])
def test_long_names_do_not_hang_over_the_edge(browser: Browser, tmp_path: Path, width: int) -> None:
    long = "model.language_model.layers.0." + "long_" * 20 + "mixer"
    view = scored(replace(hybrid(), unseen=(Unseen(long, NO_SOFTMAX),)), seed=2)
    view = replace(view, layers=tuple(replace(maps, name=long) for maps in view.layers))
    for shown in (view, Comparison(view, view)):
        browser.open(write_page(shown, tmp_path / "page.html"), width=width)
        assert browser.run("return document.scrollingElement.scrollWidth") <= width


def test_without_scores_the_page_offers_none(browser: Browser, tmp_path: Path) -> None:
    view = made_view(7)
    header, _ = page_data(view)
    assert header["scores"] is None
    assert not [name for head in header["heads"] for name in head if name.startswith("score")]
    browser.open(write_page(view, tmp_path / "page.html"), fragment="#show=score_induction")
    assert browser.run("return document.getElementById('show').value") == "maps"
    assert "score" not in browser.text("#statistics").lower()
