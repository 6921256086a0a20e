"""How much of a view its page carries, and that the page says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headwise.verbs.view import View
from headwise.verbs.view.page_blocks import Packer, as_ink
from headwise.verbs.view.page_budget import LONG_PAGE, SHORT_PAGE, PageBudget, budget_for
from headwise.verbs.view.page_detail import Detail, detail_of
from headwise.verbs.view.render_page import page_data, write_page

from .chromium import Browser
from .made_view import made_view
from .test_view_page_save import table, taken

ROOM = PageBudget(page=10**9, maps=10**8, tiles=10**8, exact=10**8, statistics=10**8)
NONE = replace(ROOM, tiles=0, exact=0, statistics=0)


@pytest.fixture(scope="module")
def long() -> View:
    return made_view(431, focus_layer=1, exact_rows=(7, 430))


def detail(view: View, budget: PageBudget) -> tuple[Detail, Packer]:
    packer = Packer()
    return detail_of(view, budget=budget, packer=packer), packer


def entries(found: Detail, layer: int, head: int) -> list[dict[int, int]]:
    """The entries of each row of a head: key to code."""
    counts = found.blocks[f"top_counts/{layer}"]
    ends = np.cumsum(counts, dtype=np.int64).reshape(counts.shape)
    keys, codes = found.blocks[f"top_keys/{layer}"], found.blocks[f"top_weights/{layer}"]
    rows = [slice(end - count, end) for end, count in zip(ends[head], counts[head], strict=True)]
    assert all((np.diff(keys[row].astype(int)) > 0).all() for row in rows), "in the order of the text"
    return [dict(zip(keys[row].tolist(), codes[row].tolist(), strict=True)) for row in rows]


def expected(view: View, layer: int, head: int, *, always: int, from_code: int) -> list[dict[int, int]]:
    maps = view.layers[layer]
    codes = as_ink(maps.top_weights[head])
    return [
        {
            int(key): int(code)
            for rank, (key, code) in enumerate(zip(maps.top_keys[head, row], codes[row], strict=True))
            if code > 0 and (rank < always or code >= from_code)
        }
        for row in range(len(view.tokens))
    ]


def test_budgets_are_those_that_were_promised() -> None:
    assert (budget_for(1024), budget_for(2048), budget_for(8000)) == (SHORT_PAGE, SHORT_PAGE, LONG_PAGE)
    assert (SHORT_PAGE.page, LONG_PAGE.page) == (10_000_000, 25_000_000)
    for budget in (SHORT_PAGE, LONG_PAGE):
        assert budget.shared(2, 10_000).page * 2 + 10_000 <= budget.page


def test_with_room_every_key_that_was_collected_is_carried(long: View) -> None:
    found, _ = detail(long, NONE)
    assert found.keys.as_header() == {"always": 8, "at_most": 8, "from_weight": (1 / 255) ** 2}
    for layer in (0, 1):
        for head in (0, 2):
            assert entries(found, layer, head) == expected(long, layer, head, always=8, from_code=1)


@pytest.mark.parametrize(("share", "always"), [(0.6, 2), (0.2, 1), (0.08, 0)])
def test_with_less_room_a_row_keeps_its_largest_keys_first(long: View, share: float, always: int) -> None:
    whole, packer = detail(long, NONE)
    names = [name for name in whole.blocks if name.startswith("top_")]
    budget = int(share * packer.size(*(whole.blocks[name] for name in names)))
    maps = packer.size(*(whole.blocks[name] for name in whole.blocks if name not in names))
    found, packer = detail(long, replace(NONE, page=maps + budget))
    size = packer.size(*(found.blocks[name] for name in names))
    assert 0.85 * budget < size <= budget
    assert found.keys.always == always
    code = found.keys.from_code
    assert entries(found, 1, 2) == expected(long, 1, 2, always=always, from_code=code)
    assert 1 < code < 255


def test_without_any_room_the_page_has_maps_and_no_keys(long: View) -> None:
    found, _ = detail(long, replace(NONE, page=0))
    assert not found.blocks["top_counts/0"].any()
    assert found.blocks["thumbnails/0"].shape == (3, 64, 64)


def test_every_weight_is_carried_exactly_or_in_eight_bits_or_of_the_layer_in_focus() -> None:
    whole = made_view(61, focus_layer=1, weights=True)
    found, packer = detail(whole, ROOM)
    assert (found.exact, found.tiles, found.keys) == (True, {0, 1}, None)
    np.testing.assert_array_equal(found.blocks["weights/1"], whole.layers[1].weights)
    exact = packer.size(found.blocks["weights/0"], found.blocks["weights/1"])
    found, packer = detail(whole, replace(ROOM, exact=exact - 1))
    assert (found.exact, found.tiles, found.keys) == (False, {0, 1}, None)
    coded = (found.blocks["weights/0"] / 255.0) ** 2
    assert abs(coded - whole.layers[0].weights).max() <= 1 / 255
    one = packer.size(found.blocks["weights/1"])
    found, _ = detail(whole, replace(ROOM, exact=0, tiles=one))
    assert found.tiles == {1}
    assert "top_keys/0" in found.blocks
    assert "top_keys/1" not in found.blocks
    found, _ = detail(whole, replace(ROOM, exact=0, tiles=one - 1))
    assert found.tiles == set()


def test_statistics_and_rows_asked_for_are_of_all_layers_or_of_the_one_in_focus(long: View) -> None:
    found, packer = detail(long, replace(ROOM, tiles=0))
    for part, layers in (("rows/0/self", 2), ("exact/0", 2)):
        assert part in found.blocks
        kind = part.split("/", maxsplit=1)[0]
        size = packer.size(*(block for name, block in found.blocks.items() if name.startswith(kind)))
        budget = {"rows": "statistics", "exact": "exact"}[kind]
        less, _ = detail(long, replace(ROOM, tiles=0, **{budget: size - 1}))
        assert {name.split("/")[1] for name in less.blocks if name.startswith(kind)} == {"1"}, layers
        none, _ = detail(long, replace(ROOM, tiles=0, **{budget: size // 3}))
        assert not [name for name in none.blocks if name.startswith(kind)]
    np.testing.assert_array_equal(found.blocks["exact/0"], long.layers[0].exact_weights)
    assert found.exact_rows == {0, 1}


def test_maps_that_are_too_large_are_pooled_and_rows_keep_their_sums(long: View) -> None:
    whole, packer = detail(long, NONE)
    size = packer.size(whole.blocks["thumbnails/0"], whole.blocks["thumbnails/1"])
    found, _ = detail(long, replace(NONE, maps=size // 2))
    assert found.map_sizes == {0: (32, 32), 1: (32, 32)}
    sums = ((found.blocks["thumbnails/1"] / 255.0) ** 2).sum(axis=2)
    np.testing.assert_allclose(sums, 1, atol=0.03)


def test_the_same_view_gives_the_same_page(long: View, tmp_path: Path) -> None:
    one, two = write_page(long, tmp_path / "one.html"), write_page(long, tmp_path / "two.html")
    assert one.read_bytes() == two.read_bytes()


def test_a_page_of_1024_tokens_and_270_heads_with_a_layer_in_focus_is_under_10_megabytes(
    tmp_path: Path,
) -> None:
    view = made_view(1024, layers=30, num_heads=9, num_kv_heads=3, focus_layer=17)
    page = write_page(view, tmp_path / "page.html")
    assert page.stat().st_size < 10_000_000
    header, blocks = page_data(view)
    assert [layer["layer"] for layer in header["layers"] if layer["tile"]] == [17]
    assert header["keys"]["always"] == 2
    assert blocks["thumbnails/0"].shape == (9, 64, 64)


def test_the_page_says_which_weights_are_exact_and_which_it_has(browser: Browser, tmp_path: Path) -> None:
    long = made_view(431, exact_rows=(7, 430))
    page = write_page(long, tmp_path / "page.html")
    browser.open(page, fragment="#layer=1&head=2&token=430")
    foot = browser.text("#exact-line")
    assert "Exact: statistics and the weights of 2 rows." in foot
    assert "the 8 largest keys of each row are carried" in foot
    exact = np.sort(long.layers[1].exact_weights[2, 1])[::-1]
    assert browser.texts("#profile .number") == [f"{weight:.3g}" for weight in exact[:8]]
    assert "As computed, not in 8 bits." in browser.text("#profile")
    browser.press("d", "d")
    rows = table(taken(browser, "matrix CSV", tmp_path))
    kinds = {int(row["query"]): row["numbers"] for row in rows}
    assert {query for query, kind in kinds.items() if kind == "exact"} == {7, 430}
    last = {int(row["key"]): float(row["weight"]) for row in rows if row["query"] == "430"}
    known = long.layers[1].exact_weights[2, 1]
    np.testing.assert_allclose([last[key] for key in sorted(last)], known[known > 0], rtol=1e-8)


def test_a_layer_with_a_fine_map_is_drawn_from_it(browser: Browser, tmp_path: Path) -> None:
    view = made_view(1201, focus_layer=1, weights=False, focus_map_size=300)
    browser.open(write_page(view, tmp_path / "page.html"), fragment="#layer=1&head=2&token=30")
    assert "Pooled to 300 × 300 cells" in browser.text("#matrix-note")  # noqa: RUF001 - as the page writes it
    exact = view.layers[1].thumbnails[2]
    box, shot = browser.box("#matrix-ink"), browser.screenshot()
    ratio = box["width"] / 300
    dark = [
        sum(shot.getpixel((box["left"] + (key + 0.5) * ratio, box["top"] + (row + 0.5) * ratio)))
        for row, key in ((200, 20), (200, 280))
    ]
    assert exact[200, 20] > 0
    assert dark[0] < dark[1], "what lies in the future is paper"
    browser.press("k")
    assert "largest keys of each row" in browser.text("#matrix-note"), "a pooled map cannot leave one key out"
