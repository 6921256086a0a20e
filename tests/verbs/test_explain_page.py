"""The page of `explain two-heads` in a real browser: what it shows, and what it computes again."""

import re
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from headwise import reference
from headwise.verbs.explain import Explanation, explain_two_heads
from headwise.verbs.explain.matrices import four_decimals
from headwise.verbs.explain.render_page import write_page

from .chromium import Browser
from .explain_page import cell, exact, given, put, shown

KV_SHARED = {"num_heads": 4, "num_kv_heads": 2, "d_model": 8, "tokens": ["a", "b", "a", "日本", "x"]}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(explain_two_heads(), tmp_path_factory.mktemp("page") / "two.html")


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
    browser.open(write_page(found, tmp_path / "page.html"), width=1024)
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
