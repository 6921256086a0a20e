"""What the page saves: pictures and tables of exactly what is shown."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.keys import Keys

from .chromium import Browser
from .page_data import SENTENCE, Made, make, saved

TOKENS = ["<s>", *SENTENCE, "."]
ACTING = ["=1+1", " +2", "-3", '@"a",b', "\t=4", "plain", "\uff1d5", "\n", "\x00"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def made() -> Made:
    return make(TOKENS, layers=[(9, 3)] * 4, kinds={0: "special"})


@pytest.fixture(scope="module")
def page(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(made, tmp_path_factory.mktemp("page"))


def taken(browser: Browser, what: str, folder: Path) -> Path:
    """Press the word that saves `what` ("matrix SVG") with the keyboard, and return the file it made."""
    browser.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    before = set(folder.iterdir())
    browser.run("document.querySelector('[data-save=\"' + arguments[0] + '\"]').focus()", what)
    browser.press(Keys.ENTER)

    def arrived() -> list[Path]:
        return [one for one in set(folder.iterdir()) - before if one.suffix == f".{what[-3:].lower()}"]

    return browser.until(arrived)[0]


def picture(path: Path) -> ElementTree.Element:
    return ElementTree.fromstring(path.read_text("utf-8"))  # noqa: S314 - the page under test made it


def table(path: Path) -> list[dict[str, str]]:
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf"), "the mark by which spreadsheets know UTF-8"
    assert data.endswith(b"\r\n")
    return list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))


def test_the_matrix_is_saved_as_the_numbers_that_are_shown(
    browser: Browser, page: Path, made: Made, tmp_path: Path
) -> None:
    browser.open(page, fragment="#layer=1&head=2&token=8")
    path = taken(browser, "matrix CSV", tmp_path)
    assert path.name == "smollm2-135m-layer-1-head-2-matrix.csv"
    rows = table(path)
    exact = made.weights[1][2]
    found = np.zeros_like(exact)
    for row in rows:
        query, key = int(row["query"]), int(row["key"])
        found[query, key] = float(row["weight"])
        assert (row["layer"], row["head"]) == ("1", "2")
        assert (row["query_token"], row["key_token"]) == (TOKENS[query], TOKENS[key])
        assert (row["numbers"], row["first_token"]) == ("8-bit", "kept")
        assert row["chosen"] == ("1" if query == 8 else "0")
    # To within half a step of an 8-bit square root, and three digits.
    assert (abs(found - exact) <= np.sqrt(exact) / 255 + 0.005 * exact + 1e-5).all()
    assert len(rows) == np.count_nonzero(np.round(255 * np.sqrt(exact)))


def test_a_saved_table_follows_the_direction_and_the_first_token(
    browser: Browser, page: Path, made: Made, tmp_path: Path
) -> None:
    browser.open(page, fragment="#layer=1&head=2&token=3&direction=to&first=out")
    rows = table(taken(browser, "matrix CSV", tmp_path))
    assert {row["first_token"] for row in rows} == {"left out"}
    assert "0" not in {row["key"] for row in rows}
    sums = np.zeros(len(TOKENS))
    for row in rows:
        sums[int(row["query"])] += float(row["weight"])
        assert row["chosen"] == ("1" if row["key"] == "3" else "0")
    np.testing.assert_allclose(sums[1:], 1, atol=0.02)


def test_arcs_are_saved_with_their_weights(browser: Browser, page: Path, made: Made, tmp_path: Path) -> None:
    browser.open(page, fragment="#layer=1&head=2&token=8")
    rows = table(taken(browser, "arcs CSV", tmp_path))
    drawn = browser.run("return document.querySelectorAll('#arcs path').length")
    chosen = [row for row in rows if row["chosen"] == "1"]
    others = [row for row in rows if row["chosen"] == "0"]
    assert all(row["query"] == "8" for row in chosen)
    assert all(float(row["weight"]) >= 0.02 and row["query"] != row["key"] for row in others)
    faint = sum(float(row["weight"]) >= 0.02 and row["query"] != row["key"] for row in chosen)
    assert len(rows) + faint == drawn, "the chosen token's arcs stand over the faint ones of all"


def test_a_learned_sink_is_in_the_table(browser: Browser, tmp_path: Path) -> None:
    sunk = make(TOKENS, layers=[(4, 2)], sink=True)
    browser.open(saved(sunk, tmp_path), fragment="#layer=0&head=3&token=9")
    rows = table(taken(browser, "matrix CSV", tmp_path))
    sinks = [float(row["weight"]) for row in rows if not row["key"]]
    assert {row["key_token"] for row in rows} == {*TOKENS, "learned sink"}
    np.testing.assert_allclose(sinks, 1 - sunk.weights[0][3].sum(axis=1), atol=0.008)
    svg = picture(taken(browser, "matrix SVG", tmp_path))
    assert "sink" in [text.text for text in svg.iter(f"{SVG}text")]


def test_a_token_is_no_formula_in_a_spreadsheet(browser: Browser, tmp_path: Path) -> None:
    acting = make(ACTING, layers=[(1, 1)], name="=cmd")
    browser.open(saved(acting, tmp_path), fragment="#layer=0&head=0")
    path = taken(browser, "matrix CSV", tmp_path)
    assert not re.search(r'"\s*[=+\-@\uff1d]', path.read_text("utf-8-sig"))
    names = {int(row["key"]): row["key_token"] for row in table(path)}
    assert names == {
        0: "'=1+1", 1: "' +2", 2: "'-3", 3: "'@\"a\",b", 4: "⇥=4",
        5: "plain", 6: "'\uff1d5", 7: "↵", 8: "⟨U+0000⟩",
    }  # fmt: skip


def test_a_picture_of_the_matrix_has_cells_names_the_row_and_a_caption(
    browser: Browser, page: Path, made: Made, tmp_path: Path
) -> None:
    browser.open(page, fragment="#layer=1&head=2&token=8&first=out")
    shown = browser.texts("#matrix-labels text")
    svg = picture(taken(browser, "matrix SVG", tmp_path))
    texts = [text.text for text in svg.iter(f"{SVG}text")]
    assert set(shown) <= set(texts)
    assert "rising token 8 looks at" in texts
    assert {number for number in browser.texts("#profile .number") if number} <= set(texts)
    caption = " ".join(texts[-8:])
    for part in ("smollm2-135m, layer 1, head 2", "first token is left out", "<s>The bank", "headwise 0.1.0"):
        assert part in caption
    assert not list(svg.iter(f"{SVG}image")), "few cells are vectors"
    cells = next(group for group in svg.iter(f"{SVG}g") if group.get("shape-rendering") == "crispEdges")
    squares = sum(
        int(width) for path in cells.iter(f"{SVG}path") for width in re.findall(r"h(\d+)v", path.get("d"))
    )
    assert squares == len(TOKENS) ** 2, "every cell is drawn once"
    assert len({path.get("fill") for path in cells}) > 10


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_png_is_the_svg_at_twice_its_size(browser: Browser, page: Path, tmp_path: Path, dark: bool) -> None:
    browser.open(page, fragment="#layer=1&head=2&token=8", dark=dark)
    for what in ("matrix", "arcs", "map of heads"):
        svg = picture(taken(browser, f"{what} SVG", tmp_path))
        png = Image.open(taken(browser, f"{what} PNG", tmp_path)).convert("RGB")
        assert png.size == (2 * float(svg.get("width")), 2 * float(svg.get("height")))
        paper = (16, 18, 22) if dark else (252, 251, 249)
        assert png.getpixel((1, 1)) == paper
        assert len(png.getcolors(png.width * png.height)) > 30, "more than paper"
    assert [line for line in browser.complaints() if "Security Policy" in line] == []


def test_a_long_matrix_is_an_image_of_crisp_cells(browser: Browser, tmp_path: Path) -> None:
    long = make((SENTENCE * 20)[:151], layers=[(2, 1)])
    browser.open(saved(long, tmp_path), fragment="#layer=0&head=1")
    svg = picture(taken(browser, "matrix SVG", tmp_path))
    (image,) = svg.iter(f"{SVG}image")
    assert image.get("href").startswith("data:image/png;base64,")
    assert image.get("image-rendering") == "pixelated"


def test_the_map_is_saved_in_the_order_shown(
    browser: Browser, page: Path, made: Made, tmp_path: Path
) -> None:
    browser.open(page, fragment="#layer=0&head=0&order=entropy&show=entropy")
    rows = table(taken(browser, "map of heads CSV", tmp_path))
    heads = sorted(made.header["heads"], key=lambda head: -head["entropy"])
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [
        (head["layer"], head["head"]) for head in heads
    ]
    np.testing.assert_allclose(
        [float(row["entropy"]) for row in rows], [head["entropy"] for head in heads], rtol=1e-12
    )
    svg = picture(taken(browser, "map of heads SVG", tmp_path))
    texts = " ".join(text.text or "" for text in svg.iter(f"{SVG}text"))
    assert "entropy (nats)" in texts
    assert "All heads, largest first." in texts


def test_small_maps_are_saved_with_their_numbers(
    browser: Browser, page: Path, made: Made, tmp_path: Path
) -> None:
    browser.open(page)
    rows = table(taken(browser, "map of heads CSV", tmp_path))
    assert len(rows) == len(made.header["heads"]) * len(TOKENS)
    row = next(row for row in rows if (row["layer"], row["head"], row["map_row"]) == ("2", "5", "7"))
    weights = [float(row[f"key_cell_{key}"]) for key in range(len(TOKENS))]
    np.testing.assert_allclose(weights, made.weights[2][5][7], atol=0.006)
    svg = picture(taken(browser, "map of heads SVG", tmp_path))
    assert len(list(svg.iter(f"{SVG}image"))) == len(made.header["heads"]) + 1, "and the scale"


def test_every_word_that_saves_is_named(browser: Browser, page: Path) -> None:
    browser.open(page)
    names = browser.run(
        "return Array.from(document.querySelectorAll('[data-save]'), (one) => one.getAttribute('aria-label'))"
    )
    assert names == [
        f"save the {what} as {kind}"
        for what in ("map of heads", "matrix", "arcs")
        for kind in ("SVG", "PNG", "CSV")
    ]
