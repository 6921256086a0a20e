"""The page of `explain two-heads` as it looks: lines, bars, widths, words, names of what can be changed."""

import re
from pathlib import Path

import pytest

from headwise.verbs.explain import explain_two_heads
from headwise.verbs.explain.render_page import write_page

from .chromium import Browser
from .colour import contrast, parsed


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(explain_two_heads(), tmp_path_factory.mktemp("page") / "two.html")


def test_lines_lead_from_box_to_box(browser: Browser, page: Path) -> None:
    browser.open(page)
    boxes = {
        name: browser.box(f"#box-{name}") for name in ("input", "head-0", "head-1", "concatenated", "output")
    }
    flow = browser.box("#flow")
    ends = []
    for path in browser.run(
        "return Array.from(document.querySelectorAll('#lines path'), (one) => one.getAttribute('d'))"
    ):
        numbers = [float(one) for one in re.findall(r"-?\d+(?:\.\d+)?", path)]
        ends.append((numbers[:2], numbers[-2:]))
    pairs = [
        ("input", "head-0"),
        ("input", "head-1"),
        ("head-0", "concatenated"),
        ("head-1", "concatenated"),
        ("concatenated", "output"),
    ]
    for (above, below), (begin, end) in zip(pairs, ends, strict=True):
        for box, (x, y), edge in ((boxes[above], begin, boxes[above]["height"]), (boxes[below], end, 0)):
            assert x == pytest.approx(box["left"] + box["width"] / 2 - flow["left"], abs=1)
            assert y == pytest.approx(box["top"] + edge - flow["top"], abs=1)
    assert boxes["head-0"]["top"] == boxes["head-1"]["top"], "side by side where there is room"


def test_bars_are_as_long_as_weights(browser: Browser, page: Path) -> None:
    browser.open(page)
    script = """
        return Array.from(document.querySelectorAll("td.weight"), (one) =>
            [one.style.getPropertyValue("--ink"), one.title]);"""
    pairs = browser.run(script)
    assert len(pairs) == 18
    assert all(ink == weight for ink, weight in pairs)


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window_and_words_can_be_read(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    for selector in ("p", ".quiet", "th", "td.computed", "input[type=number]"):
        colours = browser.run(
            "const one = getComputedStyle(document.querySelector(arguments[0]));"
            "return [one.color, getComputedStyle(document.documentElement).backgroundColor]",
            selector,
        )
        assert contrast(*(parsed(colour) for colour in colours)) >= 4.5, selector


def test_every_number_that_can_be_changed_has_a_name(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = browser.run(
        "return Array.from(document.querySelectorAll('input[type=number]'), (one) => one.ariaLabel)"
    )
    assert len(names) == 12 + 2 * 24 + 16
    assert names[0] == "X, row cat, column x0"
    assert all(names)
