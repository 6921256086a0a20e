"""The page as a document: one file, no network, data that are never code."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from importlib import resources

import numpy as np
import pytest

from headwise.errors import ArgumentError
from headwise.verbs.view.page_builder import SCRIPTS, build_page

from .page_data import SENTENCE, Made, make

HOSTILE = "</script><img src=x onerror=alert(1)><!--<script>&\u2028\u202e\x00"


@pytest.fixture(scope="module")
def made() -> Made:
    return make(["<s>", *SENTENCE, "."], layers=[(9, 3)] * 30, kinds={0: "special"})


def test_a_page_of_270_heads_on_ten_tokens_is_under_a_megabyte(made: Made) -> None:
    assert len(build_page(made.header, made.blocks).encode()) < 1_000_000


def test_the_same_data_give_the_same_file(made: Made) -> None:
    assert build_page(made.header, made.blocks) == build_page(made.header, made.blocks)


def test_nothing_in_the_page_names_another_place(made: Made) -> None:
    page = build_page(made.header, made.blocks)
    # What is saved is handed over by the address of a blob that the page made itself.
    for own in ("link.href = address;", "image.src = address;"):
        page = page.replace(own, "", 1)
    assert "://" not in page
    assert not re.search(r"\b(src|href|action|srcset|poster)\s*=", page.split("<body>")[1])
    assert not re.search(r"url\(|@import|\bimport\b|fetch\(|XMLHttpRequest|WebSocket|sendBeacon", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", page)
    assert not re.search(r"<[a-z]+[^>]*\son[a-z]+\s*=", page), "an inline event handler"


def test_the_policy_allows_this_script_and_this_style_and_nothing_else(made: Made) -> None:
    page = build_page(made.header, made.blocks)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)[1]
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    hashes = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (script, style)]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src blob: data:; base-uri 'none'; form-action 'none'"
    )


def test_a_token_cannot_leave_the_header() -> None:
    made = make([HOSTILE, "{{script}}"], layers=[(1, 1)], name=HOSTILE)
    page = build_page(made.header, made.blocks)
    held = re.search(r'<script type="application/json" id="header">(.*?)</script>', page, re.DOTALL)[1]
    assert not set("<>&\u2028\x00") & set(held)
    assert json.loads(held) == made.header
    assert "<img" not in page


def test_numbers_that_are_missing_travel_as_null(made: Made) -> None:
    header = json.loads(json.dumps(made.header))
    header["heads"][0]["previous_token"] = float("nan")
    header["max_logit_difference"] = None
    page = build_page(header, made.blocks)
    held = json.loads(re.search(r'id="header">(.*?)</script>', page, re.DOTALL)[1])
    assert held["heads"][0]["previous_token"] is None
    assert held["max_logit_difference"] is None


def test_blocks_come_back_as_they_went_in(made: Made) -> None:
    page = build_page(made.header, made.blocks)
    found = re.findall(r'data-name="([^"]+)" data-dtype="([^"]+)">([^<]+)<', page)
    assert [name for name, _, _ in found] == list(made.blocks)
    for name, dtype, packed in found:
        planes = np.frombuffer(gzip.decompress(base64.b64decode(packed)), np.uint8)
        size = np.dtype(dtype).itemsize
        block = planes.reshape(size, -1).T.copy().view(np.dtype(dtype).newbyteorder("<"))
        np.testing.assert_array_equal(block.ravel(), made.blocks[name].ravel())


def test_the_package_carries_every_part_of_the_page() -> None:
    folder = resources.files("headwise.verbs.view").joinpath("page")
    names = {entry.name for entry in folder.iterdir()}
    assert names == {"page.html", "page.css", *(f"{script}.js" for script in SCRIPTS)}


def test_a_block_that_is_missing_is_refused(made: Made) -> None:
    blocks = {name: block for name, block in made.blocks.items() if name != "weights/7"}
    with pytest.raises(ArgumentError, match=r"block 'weights/7' is missing; .* shape \(9, 10, 10\)"):
        build_page(made.header, blocks)


def test_keys_that_are_not_counted_are_refused() -> None:
    short = make(SENTENCE, layers=[(2, 1)], tile=False)
    entries = int(short.blocks["top_counts/0"].sum())
    blocks = short.blocks | {"top_keys/0": short.blocks["top_keys/0"][:-3]}
    with pytest.raises(ArgumentError, match=rf"'top_keys/0' has shape \({entries - 3},\); .* \({entries},\)"):
        build_page(short.header, blocks)
    del blocks["top_counts/0"]
    with pytest.raises(ArgumentError, match=r"block 'top_counts/0' is missing; .* shape \(2, 8\)"):
        build_page(short.header, blocks)


def test_a_block_of_another_shape_is_refused(made: Made) -> None:
    blocks = made.blocks | {"thumbnails/2": made.blocks["thumbnails/2"][:, :, :5]}
    with pytest.raises(ArgumentError, match=r"'thumbnails/2' has shape \(9, 10, 5\); .* \(9, 10, 10\)"):
        build_page(made.header, blocks)


def test_a_block_of_another_type_is_refused(made: Made) -> None:
    blocks = made.blocks | {"weights/1": made.blocks["weights/1"].astype(np.float64)}
    with pytest.raises(ArgumentError, match=r"'weights/1' holds float64; the page reads uint8, .* cast it"):
        build_page(made.header, blocks)


def test_a_block_with_a_name_the_page_does_not_know_is_refused(made: Made) -> None:
    blocks = made.blocks | {'x"><script>': np.zeros(1, np.uint8)}
    with pytest.raises(ArgumentError, match=r"no name the page knows; names look like 'thumbnails/0'"):
        build_page(made.header, blocks)
