"""The page in a real browser: what it draws, what it says, and that nothing in it runs by itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .chromium import Browser
from .colour import contrast, luminance, oklab, parsed
from .page_data import SENTENCE, Made, make, saved

TOKENS = ["<s>", *SENTENCE, "."]
HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\"'`${alert(2)}&amp;",
    "a\u2028b",
    "\u202eevil",
    "\x00",
    "\u200b\ufeff",
    "<img src=x>",
]
SHOWN = [
    "</script><img src=x onerror=alert(1)>",
    "<!--<script>",
    "\"'`${alert(2)}&amp;",
    "a⟨U+2028⟩b",
    "⟨U+202E⟩evil",
    "⟨U+0000⟩",
    "⟨U+200B⟩⟨U+FEFF⟩",
    "<img src=x>",
]
PAPER_LIGHT = (252, 251, 249)


@pytest.fixture(scope="module")
def made() -> Made:
    return make(TOKENS, layers=[(9, 3)] * 30, kinds={0: "special"})


@pytest.fixture(scope="module")
def page(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(made, tmp_path_factory.mktemp("page"))


def test_hostile_tokens_are_shown_as_text_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    hostile = make(HOSTILE, layers=[(2, 1)], name=HOSTILE[0])
    hostile.header["next_tokens"][0]["token"] = HOSTILE[0]
    path = saved(hostile, tmp_path)
    browser.open(path)
    browser.point_at('[data-token="0"]')
    assert browser.texts("#tokens .token") == SHOWN
    assert browser.text("#model-name") == HOSTILE[0]
    assert browser.run("return window.ran") == []
    assert browser.texts("#profile .piece")[-1] == "<img src=x>"
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []
    assert browser.requested() == [path.as_uri()]


def test_a_script_that_got_in_would_not_be_allowed_to_run(
    browser: Browser, page: Path, tmp_path: Path
) -> None:
    pierced = tmp_path / "pierced.html"
    intruder = "<script>alert('ran')</script><img src='x' onerror='alert(1)'>"
    pierced.write_text(page.read_text("utf-8").replace("<header", intruder + "<header", 1), "utf-8")
    browser.open(pierced)
    assert browser.run("return window.ran") == []
    assert any("Content Security Policy" in line for line in browser.complaints())


def test_map_and_matrix_are_darker_where_the_weight_is_larger(
    browser: Browser, page: Path, made: Made
) -> None:
    browser.open(page, fragment="#layer=4&head=7")
    shot = browser.screenshot()
    exact = made.weights[4][7]
    for selector in ('[data-name="4.7"]', "#matrix-ink"):
        box = browser.box(selector)
        cell = box["width"] / len(TOKENS)
        # Off the middle, where no mark or label stands.
        light = np.array(
            [
                [
                    luminance(shot.getpixel((box["left"] + (k + 0.4) * cell, box["top"] + (q + 0.4) * cell)))
                    for k in range(len(TOKENS))
                ]
                for q in range(len(TOKENS))
            ]
        )
        assert luminance(PAPER_LIGHT) - light[exact == 0].min() < 0.01, "masked cells are paper"
        assert light[exact > 0.9].max(initial=0) < 0.1, "a weight near one is near full ink"
        order = np.argsort(exact, axis=None)
        ascending = np.sqrt(exact).ravel()[order]
        darkness = -light.ravel()[order]
        apart = ascending[None, :] - ascending[:, None] > 0.02
        assert (darkness[None, :] > darkness[:, None])[apart].all()


def test_text_takes_ink_in_proportion_to_weight(browser: Browser, page: Path, made: Made) -> None:
    layer, head, query = 11, 1, 8
    browser.open(page, fragment=f"#layer={layer}&head={head}&token={query}")
    shot = browser.screenshot()
    exact = made.weights[layer][head][query]
    full = max(0.25, exact.max())
    paper, ink = oklab(PAPER_LIGHT)[0], oklab((11, 42, 111))[0]
    for token in range(query + 1):
        box = browser.box(f'[data-token="{token}"]')
        # Left of the middle of the upper padding, where no letter stands.
        pixel = shot.getpixel((box["left"] + 2, box["top"] + 2))
        share = (paper - oklab(pixel)[0]) / (paper - ink)
        assert share == pytest.approx(exact[token] / full, abs=0.02), TOKENS[token]


def test_arcs_are_drawn_and_as_wide_as_the_weight(browser: Browser, page: Path, made: Made) -> None:
    layer, head, query = 11, 1, 8
    browser.open(page, fragment=f"#layer={layer}&head={head}&token={query}")
    drawn = browser.run("""
        return Array.from(document.querySelectorAll('#arcs .chosen path'), (path) => {
            const box = document.getElementById('arcs').getBoundingClientRect();
            const top = path.getPointAtLength(path.getTotalLength() / 2);
            const width = Number(path.getAttribute('stroke-width'));
            return [top.x + box.left + scrollX, top.y + box.top + scrollY, width];
        })""")
    exact = np.sort(made.weights[layer][head][query])
    exact = exact[np.round(255 * np.sqrt(exact)) > 0]
    widths = np.array([width for _, _, width in drawn])
    np.testing.assert_allclose(widths, np.maximum(0.6, 8 * exact), atol=0.05)
    x, y, _ = drawn[-1]
    assert contrast(browser.screenshot().getpixel((x, y)), PAPER_LIGHT) > 2


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_scale_is_even_and_of_one_hue(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    box = browser.box("#map-legend canvas")
    shot = browser.screenshot()
    middle = box["top"] + box["height"] / 2
    scale = np.array([oklab(shot.getpixel((box["left"] + x, middle))) for x in range(2, 160, 12)])
    steps = np.linalg.norm(np.diff(scale, axis=0), axis=1)
    assert steps.max() / steps.min() < 1.2
    assert abs(scale[-1, 0] - scale[0, 0]) > 0.6
    hues = np.degrees(np.arctan2(scale[:, 2], scale[:, 1]))[np.hypot(scale[:, 1], scale[:, 2]) > 0.03]
    assert np.ptp(hues) < 12


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_word_has_contrast(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, fragment="#layer=4&head=8", dark=dark)
    pairs = browser.run("""
        const found = [];
        const words = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (words.nextNode()) {
            const holder = words.currentNode.parentElement;
            if (!words.currentNode.data.trim()) continue;
            if (holder.closest('script, noscript, dialog, option')) continue;
            let under = holder;
            const ground = (one) => getComputedStyle(one).backgroundColor;
            while (under.parentElement && ground(under) === 'rgba(0, 0, 0, 0)') under = under.parentElement;
            const style = getComputedStyle(holder);
            const colour = holder.closest('svg') ? style.fill : style.color;
            found.push([words.currentNode.data, colour, ground(under)]);
        }
        return found;""")
    assert len(pairs) > 100
    for words, colour, ground in pairs:
        assert contrast(parsed(colour), parsed(ground)) >= 4.5, (words, colour, ground)
    ground = parsed(pairs[0][2])
    assert luminance(ground) < 0.02 if dark else luminance(ground) > 0.9


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_nothing_hangs_over_the_edge(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    assert browser.run("return document.scrollingElement.scrollWidth") <= width
    assert browser.run("return document.querySelectorAll('.cell').length") == 270
    assert browser.box("#matrix")["width"] <= width


def test_nothing_moves_by_itself(browser: Browser, page: Path) -> None:
    browser.open(page)
    moving = browser.run("""
        return Array.from(document.querySelectorAll('*')).filter((one) => {
            const style = getComputedStyle(one);
            const still = style.animationName === 'none' && style.transitionDuration === '0s';
            return !still || style.scrollBehavior === 'smooth';
        }).length""")
    assert moving == 0


def test_a_browser_that_cannot_unpack_the_maps_is_told_so(browser: Browser, page: Path) -> None:
    gone = browser.command(
        "Page.addScriptToEvaluateOnNewDocument", source="delete window.DecompressionStream"
    )
    try:
        browser.driver.get("about:blank")
        browser.driver.get(page.as_uri())
        assert "cannot unpack the maps" in browser.text("#facts")
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", **gone)


def test_the_foot_says_what_was_run(browser: Browser, tmp_path: Path) -> None:
    for difference, told in ((3.05e-5, "3.05e-5"), (0.0, "none")):
        made = make(["The", " bank"], layers=[(2, 1)])
        made.header["max_logit_difference"] = difference
        browser.open(saved(made, tmp_path))
        foot = browser.text("#run-line")
        assert foot.endswith(
            f"2 tokens · largest difference of a logit from eager attention, on a probe, {told}"
        )


def test_moving_over_the_text_moves_nothing_else(browser: Browser, page: Path) -> None:
    for width in (1440, 390):
        browser.open(page, fragment="#layer=4&head=7&first=out", width=width)
        before = [browser.box(part) for part in ("#benches", "#statistics", "#arcs", "#caveats")]
        for token in (0, 4, 9):
            browser.point_at(f'[data-token="{token}"]')
            after = [browser.box(part) for part in ("#benches", "#statistics", "#arcs", "#caveats")]
            assert after == before


def test_right_to_left_text_runs_right_to_left(browser: Browser, tmp_path: Path) -> None:
    arabic = make(["رفع", " البنك", " أسعار", " الفائدة"], layers=[(2, 1)])
    browser.open(saved(arabic, tmp_path))
    lefts = [browser.box(f'[data-token="{token}"]')["left"] for token in range(4)]
    assert lefts == sorted(lefts, reverse=True)


def test_each_line_has_the_direction_of_its_own_first_letter(browser: Browser, tmp_path: Path) -> None:
    mixed = make(["رفع", " البنك", "\n", "def", " rates", "\n", "رفع", " البنك"], layers=[(2, 1)])
    browser.open(saved(mixed, tmp_path))
    zone = browser.box("#tokens")
    middle = zone["left"] + zone["width"] / 2
    lefts = [browser.box(f'[data-token="{token}"]')["left"] for token in range(8)]
    # A line that runs to the left begins at the right edge, and the other way round.
    assert lefts[0] > middle > lefts[3]
    assert lefts[6] > middle


def test_code_keeps_its_indentation(browser: Browser, tmp_path: Path) -> None:
    code = make(["def", " f", "():", "\n       ", " return", " 1"], layers=[(2, 1)])
    browser.open(saved(code, tmp_path))
    step = browser.run("""
        const range = document.createRange();
        const line = document.querySelector('[data-token="4"]').firstChild;
        range.setStart(line, 1); range.setEnd(line, 2);
        const margin = document.querySelector('[data-token="0"]').getBoundingClientRect().left;
        return range.getBoundingClientRect().left - margin;""")
    assert step > 60, "eight blanks stand before the word"
    assert browser.texts("#tokens .token")[3] == "↵\n       "
