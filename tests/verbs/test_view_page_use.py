"""The page in use: keys, address, switches, and the numbers they lead to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from .chromium import Browser
from .page_data import SENTENCE, Made, make, saved

TOKENS = ["<s>", *SENTENCE, "."]


@pytest.fixture(scope="module")
def made() -> Made:
    return make(TOKENS, layers=[(9, 3)] * 6, kinds={0: "special"})


@pytest.fixture(scope="module")
def page(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(made, tmp_path_factory.mktemp("page"))


def focused(browser: Browser) -> str | None:
    return browser.run("return document.activeElement.dataset.name ?? document.activeElement.id")


def profile(browser: Browser) -> dict[str, str]:
    names, numbers = browser.texts("#profile .piece"), browser.texts("#profile .number")
    return {name: number for name, number in zip(names, numbers, strict=True) if number}


def address(browser: Browser) -> str:
    return browser.run("return location.hash")


def assert_near(number: str, weight: float, stretch: float = 1.0) -> None:
    """An 8-bit square root is right to half a step; discounting stretches that step."""
    allowed = stretch * 2 * np.sqrt(weight / stretch) * 0.5 / 255 + 1e-3
    assert float(number.lstrip("<")) == pytest.approx(weight, abs=allowed)


def test_the_map_is_walked_with_keys_and_a_head_is_opened_and_left(browser: Browser, page: Path) -> None:
    browser.open(page, fragment="#layer=2&head=2")
    browser.run("document.querySelector('.cell[tabindex=\"0\"]').focus()")
    assert focused(browser) == "2.2"
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert focused(browser) == "3.3"
    assert browser.text("#depth-heading") == "Layer 3, head 3", "walking previews"
    assert address(browser) == "#layer=2&head=2", "walking does not pin"
    browser.press(Keys.ENTER)
    assert focused(browser) == "depth-heading"
    assert address(browser) == "#layer=3&head=3"
    browser.press(Keys.ARROW_LEFT)
    assert "token=8" in address(browser)
    browser.press(Keys.ESCAPE)
    assert focused(browser) == "3.3"
    browser.press(Keys.END)
    assert focused(browser) == "3.8"
    browser.press(Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ARROW_UP)
    assert focused(browser) == "0.8", "the walk stops at the edge"
    assert browser.run("return document.querySelectorAll('.cell[tabindex=\"0\"]').length") == 1


def test_left_and_right_lead_into_the_map_and_up_and_down_scroll(browser: Browser, page: Path) -> None:
    browser.open(page, fragment="#layer=2&head=2")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ENTER)
    assert browser.run("return document.activeElement === document.body")
    browser.press(Keys.ARROW_RIGHT)
    assert focused(browser) == "2.2"
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert focused(browser) == "3.3"


def test_keys_turn_the_direction_the_sink_the_map_and_call_help(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press("d")
    assert browser.run("return document.querySelector('[name=direction]:checked').value") == "to"
    browser.press("k")
    assert browser.run("return document.getElementById('discount').checked")
    browser.press("m")
    assert browser.run("return document.getElementById('show').value") == "entropy"
    assert address(browser).endswith("&direction=to&first=out&show=entropy")
    browser.press("d", "k", "m")
    assert "direction" not in address(browser)
    assert "first" not in address(browser)
    assert "show" not in address(browser)
    browser.press("?")
    assert browser.run("return document.getElementById('help').open")
    browser.press("d")
    assert "direction" not in address(browser), "keys rest while help is open"
    browser.press(Keys.ESCAPE)
    assert not browser.run("return document.getElementById('help').open")


def test_every_control_has_a_name_and_a_visible_focus(browser: Browser, page: Path) -> None:
    browser.open(page)
    reached = []
    for _ in range(40):
        browser.press(Keys.TAB)
        found = browser.run("""
            const one = document.activeElement;
            const shown = one.matches('input') ? one.nextElementSibling : one;
            const name = one.getAttribute('aria-label') || one.textContent.trim()
                || Array.from(one.labels ?? [], (label) => label.textContent.trim()).join();
            return [one.id || one.name || one.className, name, getComputedStyle(shown).outlineStyle];""")
        if found[0] in {name for name, _, _ in reached} and found[0] == reached[0][0]:
            break
        if found[0] == "":
            break
        assert found[1], found
        assert found[2] != "none", found
        reached.append(found)
    names = " ".join(name for name, _, _ in reached)
    for control in ("help-open", "direction", "token", "show", "order", "cell", "discount", "sibling"):
        assert control in names


def test_the_address_restores_what_was_pinned(browser: Browser, page: Path) -> None:
    pinned = "#layer=4&head=7&token=3&direction=to&first=out&show=self&order=mean_distance"
    browser.open(page, fragment=pinned)
    assert browser.text("#depth-heading") == "Layer 4, head 7"
    assert browser.run("return document.querySelector('[name=direction]:checked').value") == "to"
    assert browser.run("return document.getElementById('discount').checked")
    assert browser.run("return document.getElementById('show').value") == "self"
    assert browser.run("return document.getElementById('order').value") == "mean_distance"
    assert (
        browser.run("return document.querySelector('#tokens [aria-selected=true]').textContent") == " raised"
    )
    browser.open(page, fragment="#layer=99&head=x&token=10&direction=up&show=alert(1)")
    assert browser.text("#depth-heading").startswith("Layer ")
    assert browser.run("return document.querySelector('#tokens [aria-selected=true]')") is None
    assert browser.complaints() == []


def test_pointing_previews_and_clicking_pins(browser: Browser, page: Path) -> None:
    browser.open(page, fragment="#layer=0&head=0")
    browser.point_at('[data-name="5.4"]')
    assert browser.text("#depth-heading") == "Layer 5, head 4"
    browser.point_at('[data-token="2"]')
    assert browser.text("#depth-heading") == "Layer 0, head 0", "the preview ends with the pointer"
    assert browser.text("#query-line").startswith("bank token 2 looks at")
    browser.click('[data-name="5.4"]')
    browser.click('[data-token="2"]')
    browser.point_at("#caveats")
    assert address(browser) == "#layer=5&head=4&token=2"
    assert browser.text("#depth-heading") == "Layer 5, head 4"


def test_the_direction_turns_the_numbers(browser: Browser, page: Path, made: Made) -> None:
    exact = made.weights[1][2]
    browser.open(page, fragment="#layer=1&head=2&token=4")
    shown = profile(browser)
    assert list(shown) == [token.strip() for token in TOKENS[:5]], "a causal row sees no later token"
    for token, number in zip(range(5), shown.values(), strict=True):
        assert_near(number, exact[4, token])
    browser.press("d")
    shown = profile(browser)
    assert list(shown) == [token.strip() for token in TOKENS[4:]]
    for query, number in zip(range(4, 10), shown.values(), strict=True):
        assert_near(number, exact[query, 4])


def test_leaving_the_first_token_out_renormalises_the_rows(browser: Browser, page: Path, made: Made) -> None:
    exact = made.weights[1][2][8]
    browser.open(page, fragment="#layer=1&head=2&token=8")
    browser.press("k")
    shown = profile(browser)
    assert "<s>" not in shown
    left = 1 - exact[0]
    for token in range(1, 9):
        assert_near(shown[TOKENS[token].strip()], exact[token] / left, 1 / left)
    assert sum(float(number.lstrip("<")) for number in shown.values()) == pytest.approx(1, abs=0.005)
    assert "each row brought back to its sum" in browser.text("#matrix-note")


def test_a_row_that_is_all_first_token_is_not_blown_up(browser: Browser, tmp_path: Path) -> None:
    sunk = make(TOKENS, layers=[(2, 1)])
    for name in ("weights/0", "thumbnails/0"):
        sunk.blocks[name][:, 6, :] = [255, 1, 1, *[0] * (sunk.blocks[name].shape[2] - 3)]
    browser.open(saved(sunk, tmp_path), fragment="#layer=0&head=1&token=6&first=out")
    assert profile(browser) == {}
    assert "too little of this row is left" in browser.text("#profile")
    shot = browser.screenshot()
    for selector in ("#matrix-ink", '[data-name="0.1"]'):
        box = browser.box(selector)
        cell = box["width"] / len(TOKENS)
        assert shot.getpixel((box["left"] + 1.4 * cell, box["top"] + 6.4 * cell)) == (252, 251, 249)


def test_a_learned_sink_is_a_column_that_discounting_leaves_alone(browser: Browser, tmp_path: Path) -> None:
    sunk = make(TOKENS, layers=[(4, 2)] * 2, sink=True)
    browser.open(saved(sunk, tmp_path), fragment="#layer=1&head=3&token=9")
    kept = 1 - sunk.weights[1][3][9].sum()
    before = profile(browser)
    assert_near(before["learned sink"], kept)
    assert "sink" in browser.texts("#matrix-labels text")
    assert browser.box("#matrix-ink")["width"] > browser.box("#matrix-ink")["height"]
    browser.press("k")
    after = profile(browser)
    assert after["learned sink"] == before["learned sink"]
    assert sum(float(number.lstrip("<")) for number in after.values()) == pytest.approx(1, abs=0.01)


def test_heads_of_one_kv_head_stand_together(browser: Browser, page: Path) -> None:
    browser.open(page)
    lefts = [browser.box(f'[data-name="2.{head}"]')["left"] for head in range(9)]
    width = browser.box('[data-name="2.0"]')["width"]
    gaps = np.diff(lefts) - width
    assert gaps[[2, 5]].min() >= 3 * gaps[[0, 1, 3, 4, 6, 7]].max()
    assert browser.texts(".column-name.kv") == ["KV 0", "KV 1", "KV 2"]
    browser.click('[data-name="2.4"]')
    assert browser.texts("#siblings .sibling") == ["head 3", "head 4", "head 5"]
    browser.click("#siblings .sibling:last-child")
    assert address(browser) == "#layer=2&head=5"


def test_layers_with_fewer_heads_leave_their_places_empty(browser: Browser, tmp_path: Path) -> None:
    mixed = make(TOKENS, layers=[(8, 2), (4, 1), (6, 6)])
    browser.open(saved(mixed, tmp_path), fragment="#layer=0&head=7")
    rows = browser.run(
        "return Array.from(document.querySelectorAll('.row'), (row) => row.querySelectorAll('.cell').length)"
    )
    assert rows == [8, 4, 6]
    empty = (browser.box('[data-name="0.7"]')["left"] + 4, browser.box('[data-name="1.0"]')["top"] + 4)
    assert browser.screenshot().getpixel(empty) == (252, 251, 249)
    browser.run("document.querySelector('[data-name=\"0.7\"]').focus()")
    browser.press(Keys.ARROW_DOWN)
    assert focused(browser) == "1.3", "the walk passes over empty places"


def test_the_order_of_a_statistic_runs_from_its_largest_value(
    browser: Browser, page: Path, made: Made
) -> None:
    browser.open(page, fragment="#layer=0&head=0&order=entropy&show=entropy")
    names = browser.run("return Array.from(document.querySelectorAll('.cell'), (cell) => cell.dataset.name)")
    heads = sorted(made.header["heads"], key=lambda head: -head["entropy"])
    assert names == [f"{head['layer']}.{head['head']}" for head in heads]
    shot, dark = browser.screenshot(), []
    for name in (names[0], names[len(names) // 2], names[-1]):
        box = browser.box(f'[data-name="{name}"]')
        dark.append(sum(shot.getpixel((box["left"] + box["width"] / 2, box["top"] + box["height"] / 2))))
    assert dark == sorted(dark), "the largest value has the most ink"


def test_a_text_kept_by_its_largest_keys_says_so(browser: Browser, tmp_path: Path) -> None:
    long = make(TOKENS[1:9] * 40, layers=[(2, 1)] * 2, tile=False, row_statistics=False)
    browser.open(saved(long, tmp_path), fragment="#layer=1&head=1&token=311")
    exact = np.sort(long.weights[1][1][311])[::-1][:8]
    numbers = browser.texts("#profile .number")
    assert len(numbers) == 8
    for number, weight in zip(numbers, exact, strict=True):
        assert_near(number, weight)
    assert "8 largest keys of each row" in browser.text("#matrix-note")
    assert "pooled to 64" in browser.text("#exact-line")
    browser.press("d")
    assert "Rows of which this token's weight is carried" in browser.text("#profile")
