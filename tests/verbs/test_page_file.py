"""What every page shares: parts put into a skeleton, a policy that names them, and a file written whole."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from headwise.errors import ArgumentError
from headwise.verbs.page_file import filled_page, page_asset, write_whole

PACKAGE = "headwise.verbs.explain"


def filled(*, title: str = "title", script: str = "go()", header: object = None, **more: object) -> str:
    return filled_page(PACKAGE, title=title, script=script, header=header, **more)


def test_the_policy_names_the_style_the_script_and_what_else_is_allowed() -> None:
    page = filled(script="let één = 1", allowed=["img-src data:", "font-src data:"])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    parts = "let één = 1", page_asset(PACKAGE, "page.css")
    script, style = (base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in parts)
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
        "img-src data:; font-src data:; base-uri 'none'; form-action 'none'"
    )


def test_what_is_put_in_is_not_searched_again() -> None:
    page = filled(title="{{script}}", script="'{{header}}'", header="{{style}}")
    assert "<title>{{script}}</title>" in page
    assert "<script type=\"module\">'{{header}}'</script>" in page
    assert '<script type="application/json" id="header">"{{style}}"</script>' in page


def test_data_and_titles_are_never_markup() -> None:
    hostile = "</script><img src=x onerror=alert(1)><!--<script>&\u2028\u202e\x00"
    page = filled(title=hostile, header=[hostile])
    assert "<img" not in page
    carried = re.search(r'id="header">(.*?)</script>', page)[1]
    assert json.loads(carried) == [hostile]
    assert not re.search(r"[<>&]|[^ -~]", carried)


def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        filled(header=[float("nan")])


def test_a_page_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("the last one", encoding="utf-8")
    assert write_whole("日本", path) == path
    assert path.read_bytes() == "日本".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "page.html"
    taken.mkdir()
    with pytest.raises(ArgumentError, match=r"^cannot write --out .*page\.html: Is a directory; choose a"):
        write_whole("page", taken)
    with pytest.raises(ArgumentError, match=r"^cannot write --out .*none/page\.html: No such file or dir"):
        write_whole("page", tmp_path / "none" / "page.html")
    assert list(tmp_path.iterdir()) == [taken]
    assert list(taken.iterdir()) == []
