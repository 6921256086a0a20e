"""The page of `explain two-heads` as a document: tokens are never code; what can be no page is refused."""

from pathlib import Path

import pytest

from headwise.errors import ArgumentError
from headwise.verbs.explain import explain_two_heads
from headwise.verbs.explain.render_page import build_page, write_page

from .chromium import Browser

HOSTILE = ["</script><img src=x onerror=alert(1)>", "<!--<script>", "\u202eevil", "\x00", "a\u2028b"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(explain_two_heads(), tmp_path_factory.mktemp("page") / "two.html")


def test_hostile_tokens_are_shown_as_text_and_run_nothing(browser: Browser, tmp_path: Path) -> None:
    path = write_page(explain_two_heads(tokens=HOSTILE), tmp_path / "page.html")
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
        write_page(large, tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"^cannot write --out .*none/page\.html: No such file or directory"
    ):
        write_page(explain_two_heads(), tmp_path / "none" / "page.html")


def test_the_same_example_gives_the_same_page() -> None:
    assert build_page(explain_two_heads()) == build_page(explain_two_heads())
    assert build_page(explain_two_heads()) != build_page(explain_two_heads(seed=4))
