"""Images as grids of patches, and queries that look at another text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from headwise.errors import ArgumentError
from headwise.verbs.view import View
from headwise.verbs.view.render_page import page_data, write_page

from .chromium import Browser
from .colour import oklab
from .made_view import open_view
from .test_view_page_save import picture, table, taken

PAPER, INK = (252, 251, 249), (11, 42, 111)


@pytest.fixture(scope="module")
def image() -> View:
    """A class token and 3 rows of 5 patches."""
    return open_view(16, grid=(3, 5))


@pytest.fixture(scope="module")
def crossed() -> View:
    return open_view(7, 11)


def test_patches_stand_as_they_lie_in_the_image(browser: Browser, image: View, tmp_path: Path) -> None:
    browser.open(write_page(image, tmp_path / "page.html"), fragment="#layer=1&head=2&token=0")
    boxes = [browser.box(f'#tokens [data-token="{token}"]') for token in range(1, 16)]
    lefts = np.array([box["left"] for box in boxes]).reshape(3, 5)
    tops = np.array([box["top"] for box in boxes]).reshape(3, 5)
    assert (np.diff(lefts, axis=1) > 0).all()
    assert (np.diff(tops, axis=0) > 0).all()
    assert (lefts == lefts[0]).all()
    assert (tops == tops[:, :1]).all()
    assert browser.text('#tokens [data-token="0"]') == "[CLS]"
    assert browser.find('[data-token="8"]').get_attribute("aria-label") == "patch in row 1, column 2"
    shot = browser.screenshot()
    exact = image.layers[1].weights[2, 0]
    full = max(0.05, exact.max())
    for token, box in enumerate(boxes, start=1):
        pixel = shot.getpixel((box["left"] + box["width"] / 2, box["top"] + box["height"] / 2))
        share = (oklab(PAPER)[0] - oklab(pixel)[0]) / (oklab(PAPER)[0] - oklab(INK)[0])
        assert share == pytest.approx(exact[token] / full, abs=0.03)
    assert browser.text("#text-heading") == "an image of 3 × 5 patches"  # noqa: RUF001 - as the page writes it
    assert browser.complaints() == []


def test_an_image_is_walked_up_and_down_and_has_no_arcs(
    browser: Browser, image: View, tmp_path: Path
) -> None:
    browser.open(write_page(image, tmp_path / "page.html"), fragment="#layer=1&head=2")
    assert browser.text("#query-line").startswith("1,2 token 8 looks at"), "the middle of the image"
    browser.run("document.querySelector('#tokens [tabindex=\"0\"]').focus()")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ENTER)
    assert browser.run("return location.hash").endswith("token=14")
    assert not browser.find("#arcs").is_displayed()
    assert not browser.run("return document.querySelector('[data-save^=arcs]')")
    rows = table(taken(browser, "matrix CSV", tmp_path))
    assert {row["query_token"] for row in rows} == {
        "[CLS]",
        *(f"{r},{c}" for r in range(3) for c in range(5)),
    }


def test_a_grid_that_does_not_fit_is_refused(image: View) -> None:
    with pytest.raises(ArgumentError, match=r"image_grid=\(4, 5\) has 20 patches, and there are 16 tokens"):
        write_page(replace(image, image_grid=(4, 5)), Path("never.html"))


def test_queries_look_at_another_text(browser: Browser, crossed: View, tmp_path: Path) -> None:
    browser.open(write_page(crossed, tmp_path / "page.html"), fragment="#layer=1&head=3&token=2")
    assert browser.texts("#tokens .token") == [token.text for token in crossed.tokens]
    assert browser.texts("#key-tokens .token") == [token.text for token in crossed.key_tokens]
    assert browser.text("#text-heading") == "7 tokens looking at 11 tokens"
    exact = crossed.layers[1].weights[3]
    shown = [float(number.lstrip("<")) for number in browser.texts("#profile .number") if number]
    np.testing.assert_allclose(shown, exact[2][exact[2] > 0], rtol=0.006, atol=1e-8)
    assert not browser.run("return document.querySelector('#tokens .inked')")
    inked = browser.run("return document.querySelectorAll('#key-tokens .inked').length")
    assert inked == np.count_nonzero(exact[2] / max(0.25, exact[2].max()) >= 1 / 255)
    box = browser.box("#matrix-ink")
    assert box["width"] / box["height"] == pytest.approx(11 / 7, rel=0.02)
    assert browser.complaints() == []


def test_pointing_at_a_key_shows_who_looks_at_it(browser: Browser, crossed: View, tmp_path: Path) -> None:
    browser.open(write_page(crossed, tmp_path / "page.html"), fragment="#layer=1&head=3&token=2")
    browser.point_at('#key-tokens [data-token="9"]')
    assert browser.text("#query-line").startswith("Zinsen token 9 is looked at by")
    assert browser.run("return document.querySelector('[name=direction]:checked').value") == "from"
    browser.point_at("#caveats")
    assert browser.text("#query-line").startswith("raised token 2 looks at"), "pointing only previews"
    browser.click('#key-tokens [data-token="9"]')
    browser.point_at("#caveats")
    assert browser.run("return location.hash") == "#layer=1&head=3&token=9&direction=to"
    assert browser.run("return document.querySelector('#tokens [aria-selected=true]')") is None
    exact = crossed.layers[1].weights[3][:, 9]
    shown = [float(number.lstrip("<")) for number in browser.texts("#profile .number") if number]
    np.testing.assert_allclose(shown, exact[exact > 0], rtol=0.006, atol=1e-8)
    browser.press("d")
    assert "token=9" not in browser.run("return location.hash"), "token 9 is no query"


def test_lines_lead_from_one_text_to_the_other(browser: Browser, crossed: View, tmp_path: Path) -> None:
    browser.open(write_page(crossed, tmp_path / "page.html"), fragment="#layer=1&head=3&token=2")
    exact = crossed.layers[1].weights[3][2]
    widths = browser.run(
        "return Array.from(document.querySelectorAll('#arcs .chosen path'), "
        "(path) => Number(path.getAttribute('stroke-width')))"
    )
    np.testing.assert_allclose(widths, np.maximum(0.6, 8 * np.sort(exact[exact > 0])), atol=0.05)
    svg = picture(taken(browser, "arcs SVG", tmp_path))
    words = " ".join(text.text or "" for text in svg.iter("{http://www.w3.org/2000/svg}text"))
    assert "lines between the texts" in words
    assert "looking at “Die Bank" in words
    rows = table(taken(browser, "matrix CSV", tmp_path))
    assert {row["numbers"] for row in rows} == {"exact"}
    found = {(int(row["query"]), int(row["key"])): float(row["weight"]) for row in rows}
    weights = crossed.layers[1].weights[3]
    for (query, key), weight in found.items():
        assert weight == pytest.approx(weights[query, key], rel=1e-8)


def test_few_queries_over_many_keys_have_rows_that_can_be_seen(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_page(open_view(5, 211), tmp_path / "page.html"), fragment="#layer=1&head=3")
    box = browser.box("#matrix-ink")
    assert box["height"] == 5 * 14
    assert box["width"] <= 456
    browser.point_at('#tokens [data-token="4"]')
    mark = browser.box("#matrix-mark")
    assert mark["top"] + 1 - box["top"] == pytest.approx(4 * 14, abs=1)


def test_the_header_tells_the_kinds_apart(image: View, crossed: View) -> None:
    header, blocks = page_data(crossed)
    assert (header["seq_len"], header["kv_len"], len(header["key_tokens"])) == (7, 11, 11)
    assert blocks["weights/0"].shape == (4, 7, 11)
    header, _ = page_data(image)
    assert header["image_grid"] == [3, 5]
    assert header["key_tokens"] is None
