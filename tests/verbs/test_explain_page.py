"""The page of `explain two-heads` in a real browser: what it shows, and what it computes again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from headwise import reference
from headwise.errors import ArgumentError
from headwise.verbs.explain import Explanation, explain_two_heads
from headwise.verbs.explain.matrices import four_decimals
from headwise.verbs.explain.render_page import build_page, write_page

from .chromium import Browser
from .colour import contrast, parsed

KV_SHARED = {"num_heads": 4, "num_kv_heads": 2, "d_model": 8, "tokens": ["a", "b", "a", "日本", "x"]}
HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u202eevil", "\x00", "a\u2028b"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(explain_two_heads(), tmp_path_factory.mktemp("page") / "two.html")


def saved(found: Explanation, folder: Path) -> Path:
    return write_page(found, folder / "page.html")


def shown(browser: Browser, name: str) -> list[list[str]]:
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("td"), (cell) => cell.textContent));"""
    return browser.run(script, name)


def exact(browser: Browser, name: str) -> Any:
    """The numbers of a computed matrix with all their digits; hidden scores are -inf."""
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("td"), (cell) => cell.title));"""
    rows = browser.run(script, name)
    return np.array([[-np.inf if cell.startswith("hidden") else float(cell) for cell in row] for row in rows])


def given(browser: Browser, name: str) -> Any:
    script = """
        return Array.from(document.querySelectorAll(`[data-name="${arguments[0]}"] tbody tr`), (row) =>
            Array.from(row.querySelectorAll("input"), (input) => input.valueAsNumber));"""
    return np.array(browser.run(script, name), dtype=float)


def cell(name: str, row: int, column: int) -> str:
    return f'[data-name="{name}"] tbody tr:nth-child({row + 1}) td:nth-child({column + 2})'


def put(browser: Browser, name: str, row: int, column: int, words: str) -> None:
    field = browser.find(cell(name, row, column) + " input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(words)
    browser.settle()


def assert_all_follows(browser: Browser, found: Explanation, *, causal: bool) -> None:
    """Hold every computed number against the definition on the numbers that stand in the page."""
    x, w_o = given(browser, "input"), given(browser, "w_o")
    kv_heads = range(found.layout.num_kv_heads)
    w_k, w_v = ([given(browser, f"{name}/{kv}") for kv in kv_heads] for name in ("w_k", "w_v"))
    query = np.stack([x @ given(browser, f"w_q/{head}") for head in range(found.layout.num_heads)])
    key, value = (np.stack([x @ weights for weights in several]) for several in (w_k, w_v))
    count = len(found.tokens)
    mask = np.tril(np.ones((count, count), dtype=bool)) if causal else None
    expected = reference.attention(query[None], key[None], value[None], mask=mask)
    outputs = []
    for head in found.heads:
        kv = head.kv_head
        scores = query[head.head] @ key[kv].T
        masked = np.where(expected.weights[0, head.head] == 0, -np.inf, scores / found.layout.head_dim**0.5)
        for name, matrix in (
            ("query", query[head.head]),
            ("key", key[kv]),
            ("value", value[kv]),
            ("scores", scores),
            ("masked", masked),
            ("weights", expected.weights[0, head.head]),
            ("output", expected.output[0, head.head]),
        ):
            np.testing.assert_allclose(
                exact(browser, f"{name}/{head.head}"), matrix, rtol=0, atol=1e-11, err_msg=name
            )
        outputs.append(expected.output[0, head.head])
    joined = np.concatenate(outputs, axis=1)
    np.testing.assert_allclose(exact(browser, "concatenated"), joined, rtol=0, atol=1e-11)
    np.testing.assert_allclose(exact(browser, "output"), joined @ w_o, rtol=0, atol=1e-11)


def test_it_opens_with_the_numbers_of_the_example(browser: Browser, page: Path) -> None:
    found = explain_two_heads()
    browser.open(page)
    assert browser.text("#title") == "Two heads, step by step"
    matrices = {"concatenated": found.concatenated, "output": found.output}
    for head in found.heads:
        for step in ("query", "key", "value", "scores", "masked", "weights", "output"):
            matrices[f"{step}/{head.head}"] = getattr(head, step)
    for name, matrix in matrices.items():
        assert shown(browser, name) == [[four_decimals(number) for number in row] for row in matrix], name
    for name, matrix in {"input": found.input, "w_q/1": found.heads[1].w_q, "w_o": found.w_o}.items():
        np.testing.assert_array_equal(given(browser, name), matrix)
    assert browser.complaints() == []
    assert browser.requested() == [page.as_uri()]


@pytest.mark.parametrize(
    ("name", "row", "column"),
    [("input", 1, 2), ("w_q/0", 3, 1), ("w_k/1", 0, 0), ("w_v/0", 2, 1), ("w_o", 3, 3)],
)
def test_changing_any_number_computes_everything_again(
    browser: Browser, page: Path, name: str, row: int, column: int
) -> None:
    browser.open(page)
    before = exact(browser, "output")
    put(browser, name, row, column, "-2.75")
    assert given(browser, name)[row, column] == -2.75
    assert_all_follows(browser, explain_two_heads(), causal=False)
    assert not np.allclose(exact(browser, "output"), before)
    assert browser.run("return document.querySelectorAll('td.moved').length") > 0
    browser.click("#reset")
    np.testing.assert_array_equal(exact(browser, "output"), before)
    assert browser.run("return document.querySelectorAll('.moved').length") == 0
    assert browser.complaints() == []


def test_what_does_not_follow_from_a_number_stays(browser: Browser, page: Path) -> None:
    browser.open(page)
    untouched = [exact(browser, f"{name}/1") for name in ("query", "key", "weights", "output")]
    put(browser, "w_q/0", 0, 0, "3")
    for name, before in zip(("query", "key", "weights", "output"), untouched, strict=True):
        np.testing.assert_array_equal(exact(browser, f"{name}/1"), before)
    moved = browser.run(
        "return Array.from(document.querySelectorAll('figure:has(.moved)'), (one) => one.dataset.name)"
    )
    assert moved == [
        "w_q/0",
        "query/0",
        "scores/0",
        "masked/0",
        "weights/0",
        "output/0",
        "concatenated",
        "output",
    ]


def test_the_causal_switch(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run("document.getElementById('causal').click()")
    assert_all_follows(browser, explain_two_heads(causal=True), causal=True)
    assert [row.count("·") for row in shown(browser, "masked/0")] == [2, 1, 0]
    browser.point_at(cell("masked/0", 0, 2))
    assert browser.text("#readout") == "scaled, cat, mat:  hidden: a later token"


def test_heads_that_share_keys_and_values(browser: Browser, tmp_path: Path) -> None:
    found = explain_two_heads(**KV_SHARED, causal=True)
    browser.open(saved(found, tmp_path), width=1024)
    assert browser.run("return document.getElementById('causal').checked")
    assert_all_follows(browser, found, causal=True)
    put(browser, "w_k/1", 5, 0, "1.5")
    assert_all_follows(browser, found, causal=True)
    assert browser.text("#box-head-3 .row p").startswith("W_K and W_V are those of KV head 1")
    assert len(browser.texts('[data-name^="w_k/"]')) == 2
    assert browser.texts('[data-name="input"] tbody th') == ["a (0)", "b", "a (2)", "日本", "x"]


@pytest.mark.parametrize("words", ["", "-", "e", "1e9"])
def test_what_is_no_number_leaves_the_last_one(browser: Browser, page: Path, words: str) -> None:
    browser.open(page)
    before = exact(browser, "output")
    field = browser.find(cell("input", 0, 0) + " input")
    field.send_keys(Keys.BACKSPACE)
    field.send_keys(words)
    browser.settle()
    assert field.get_attribute("aria-invalid") == "true"
    assert "is kept" in browser.text("#readout")
    # On the way to 1e9 stands 1, which is what was there.
    np.testing.assert_array_equal(exact(browser, "output"), before)
    browser.click("#reset")
    assert field.get_attribute("aria-invalid") == "false"
    np.testing.assert_array_equal(exact(browser, "output"), before)


def test_pointing_at_a_number_works_it_out(browser: Browser, page: Path) -> None:
    browser.open(page)
    number = r"-?\d+\.\d{4}"
    for name in ("query/0", "key/1", "value/0", "scores/1", "output/0", "output"):
        browser.point_at(cell(name, 1, 1))
        terms, result = browser.text("#readout").split(":  ")[1].split(" = ")
        total = sum(np.prod([float(one) for one in re.findall(number, term)]) for term in terms.split(" + "))
        assert total == pytest.approx(float(result), abs=3e-4), name
        assert result == shown(browser, name)[1][1]
    browser.point_at(cell("weights/0", 2, 0))
    own, *row = [float(one) for one in re.findall(rf"exp\(({number})\)", browser.text("#readout"))]
    assert np.exp(own) / np.exp(row).sum() == pytest.approx(0.4565, abs=2e-4)


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


def test_hostile_tokens_are_shown_as_text_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    path = saved(explain_two_heads(tokens=HOSTILE), tmp_path)
    browser.open(path)
    names = browser.texts('[data-name="input"] tbody th')
    assert names == [HOSTILE[0], HOSTILE[1], "⟨U+202E⟩evil", "⟨U+0000⟩", "a⟨U+2028⟩b"]
    assert browser.run("return window.ran") == []
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.complaints() == []
    assert browser.requested() == [path.as_uri()]


def test_a_script_that_got_in_would_not_run(browser: Browser, page: Path, tmp_path: Path) -> None:
    pierced = tmp_path / "pierced.html"
    intruder = "<script>alert('ran')</script><img src='x' onerror='alert(1)'>"
    pierced.write_text(page.read_text("utf-8").replace("<header", intruder + "<header", 1), "utf-8")
    browser.open(pierced)
    assert browser.run("return window.ran") == []
    assert any("Content Security Policy" in line for line in browser.complaints())


def test_too_many_numbers_for_a_page_are_refused(tmp_path: Path) -> None:
    large = explain_two_heads(d_model=64, num_heads=8)
    with pytest.raises(
        ArgumentError, match=r"^a page of this example would show 1\d,\d{3} numbers; the most is"
    ):
        saved(large, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"^cannot write --out .*none/page\.html: No such file or directory"
    ):
        write_page(explain_two_heads(), tmp_path / "none" / "page.html")


def test_the_same_example_gives_the_same_page() -> None:
    assert build_page(explain_two_heads()) == build_page(explain_two_heads())
    assert build_page(explain_two_heads()) != build_page(explain_two_heads(seed=4))
