"""Two runs on one page: two texts, or two models."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from headwise.verbs.view import Comparison
from headwise.verbs.view.render_page import write_page

from .chromium import Browser
from .made_view import made_view
from .page_data import SENTENCE, Made, compared, make, saved
from .test_view_page_save import table, taken

TOKENS = ["<s>", *SENTENCE, "."]
OTHER = ["<s>", "The", " river", " bank", " was", " rising", " because", " rain", " fell", "!"]
PAPER = (252, 251, 249)


@pytest.fixture(scope="module")
def texts() -> Made:
    """One model on two texts of the same length."""
    sizes = {"layers": [(6, 3)] * 4}
    return compared(make(TOKENS, **sizes), make(OTHER, **sizes, seed=4))


@pytest.fixture(scope="module")
def page(texts: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(texts, tmp_path_factory.mktemp("compared"))


def numbers(browser: Browser, selector: str) -> list[str]:
    return [number for number in browser.texts(f"{selector} .number") if number]


def test_both_texts_both_maps_and_both_matrices_are_shown(browser: Browser, page: Path, texts: Made) -> None:
    browser.open(page, fragment="#layer=2&head=5&token=8&token-second=4")
    assert browser.texts("#tokens .token") == TOKENS
    assert browser.texts("#tokens-second .token") == OTHER
    assert browser.texts("figcaption") == ["first text", "second text", "second less first"]
    assert browser.text("#model-name") == "smollm2-135m, two texts"
    for suffix, weights, token in (("", texts.weights[2][5], 8), ("-second", texts.weights[6][5], 4)):
        shown = numbers(browser, f"#profile{suffix}")
        for number, weight in zip(shown, weights[token], strict=False):
            assert float(number.lstrip("<")) == pytest.approx(weight, abs=0.006)
        assert browser.box(f"#matrix-ink{suffix}")["width"] > 200
    assert browser.complaints() == []
    ids = browser.run("return Array.from(document.querySelectorAll('[id]'), (one) => one.id)")
    assert len(ids) == len(set(ids))


def test_one_head_is_chosen_for_both_and_a_token_for_each_text(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.click('#grid-second [data-name="3.4"]')
    browser.click('#tokens-second [data-token="2"]')
    browser.point_at("#caveats")
    assert browser.run("return location.hash") == "#layer=3&head=4&token-second=2"
    assert browser.texts("h2[id^=depth-heading]") == ["Layer 3, head 4"] * 2
    assert browser.text("#query-line-second").startswith("river token 2")
    browser.run("document.getElementById('depth-heading-second').focus()")
    browser.press(Keys.ARROW_RIGHT, Keys.ESCAPE)
    assert browser.run("return location.hash").endswith("token-second=3")
    assert browser.run("return document.activeElement.closest('.grid').id") == "grid-second"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_difference_is_blue_where_the_first_has_more_and_orange_where_the_second_has(
    browser: Browser, page: Path, texts: Made, tmp_path: Path, dark: bool
) -> None:
    browser.open(page, fragment="#layer=0&head=0", dark=dark)
    shot = browser.screenshot()
    apart = texts.weights[4 + 2] - texts.weights[2]
    box = browser.box('#grid-difference [data-name="2.3"]')
    cell = box["width"] / len(TOKENS)
    warm = np.empty((len(TOKENS), len(TOKENS)))
    for query, key in np.ndindex(warm.shape):
        pixel = shot.getpixel((box["left"] + (key + 0.5) * cell, box["top"] + (query + 0.5) * cell))
        warm[query, key] = pixel[0] - pixel[2]
    neutral = (16, 18, 22) if dark else PAPER
    assert (warm[np.triu_indices(len(TOKENS), 1)] == neutral[0] - neutral[2]).all(), "no difference is paper"
    assert (warm[apart[3] > 0.05] > 10).all()
    assert (warm[apart[3] < -0.05] < -10).all()
    rows = table_of_difference(browser, tmp_path)
    row = next(row for row in rows if (row["layer"], row["head"], row["map_row"]) == ("2", "3", "7"))
    found = [float(row[f"key_cell_{key}"]) for key in range(len(TOKENS))]
    np.testing.assert_allclose(found, apart[3, 7], atol=0.015)


def table_of_difference(browser: Browser, folder: Path) -> list[dict[str, str]]:
    browser.run("""
        const wanted = document.querySelector('#save-map-difference [data-save="map of heads CSV"]');
        for (const other of document.querySelectorAll('[data-save="map of heads CSV"]')) {
            if (other !== wanted) delete other.dataset.save;
        }""")
    return table(taken(browser, "map of heads CSV", folder))


def test_a_statistic_and_its_difference_are_read_out(browser: Browser, page: Path, texts: Made) -> None:
    browser.open(page, fragment="#layer=1&head=2&show=entropy")
    first, second = (
        next(head["entropy"] for head in header["heads"] if (head["layer"], head["head"]) == (1, 2))
        for header in (texts.header, texts.header["against"])
    )
    told = re.findall(r"[+-]?[\d.]+", browser.text("#map-readout span").split(":")[1])
    assert [float(number) for number in told] == pytest.approx([first, second, second - first], abs=0.005)
    assert len(browser.texts("#map-legend .strip")) == 2


def test_texts_of_different_length_differ_in_statistics_only(browser: Browser, tmp_path: Path) -> None:
    sizes = {"layers": [(4, 2)] * 2}
    browser.open(saved(compared(make(TOKENS, **sizes), make(TOKENS[:7], **sizes)), tmp_path))
    assert "no difference cell by cell" in browser.text("#map-note")
    assert not browser.find("#map-part-difference").is_displayed()
    browser.press("m")
    assert browser.find("#map-part-difference").is_displayed()
    assert "no difference" not in browser.text("#map-note")
    assert browser.text("#text-heading") == "10 and 7 tokens"


def test_models_with_other_heads_are_chosen_from_each_for_itself(browser: Browser, tmp_path: Path) -> None:
    two = compared(make(TOKENS, layers=[(4, 2)] * 2), make(TOKENS, layers=[(3, 3)] * 3, name="other"))
    browser.open(saved(two, tmp_path), fragment="#layer=0&head=3&layer-second=2&head-second=1")
    assert browser.text("#model-name") == "smollm2-135m against other"
    assert browser.texts("h2[id^=depth-heading]") == ["Layer 0, head 3", "Layer 2, head 1"]
    assert browser.texts("figcaption") == ["smollm2-135m", "other"]
    assert "there is no difference to show" in browser.text("#map-note")
    browser.click('#tokens-second [data-token="3"]')
    assert "token=3" in browser.run("return location.hash"), "the same tokens move together"
    assert "token-second" not in browser.run("return location.hash")
    assert browser.text("#query-line").startswith("raised token 3")


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_hangs_over_the_edge(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    assert browser.run("return document.scrollingElement.scrollWidth") <= width


def test_a_comparison_is_written_as_one_page_within_the_budget_of_one(
    browser: Browser, tmp_path: Path
) -> None:
    sizes = {"layers": 30, "num_heads": 9, "num_kv_heads": 3}
    pair = Comparison(made_view(700, **sizes), made_view(691, **sizes, seed=8))
    page = write_page(pair, tmp_path / "page.html")
    assert page.stat().st_size < 10_000_000
    browser.open(page, fragment="#layer=29&head=8")
    assert browser.text("#depth-heading-second") == "Layer 29, head 8"
    assert browser.complaints() == []
