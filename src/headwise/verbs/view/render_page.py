"""A view as one self-contained HTML page: this module turns the numbers into the page's header and blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from headwise.evidence import STATISTICS, Statistic
from headwise.models.head_scores import SCORES, HeadScores
from headwise.models.tokens import Token
from headwise.verbs.page_file import write_whole
from headwise.verbs.view.page_blocks import Packer
from headwise.verbs.view.page_budget import budget_for
from headwise.verbs.view.page_builder import bare_size, build_page
from headwise.verbs.view.page_detail import Detail, detail_of
from headwise.verbs.view.render_json import head_to_json
from headwise.verbs.view.result import Comparison, View
from headwise.version import __version__

BLOCK_BYTES = 1_300
"""Of the page, for each layer: the markup of its blocks and what the header says of it."""

CAVEATS = (
    "Attention is not explanation: a large weight need not matter to the output, and other weights can give "
    "the same prediction. What a head does is a hypothesis to test by ablation, and ablation is a lower "
    "bound, since later layers make up for what is removed."
)


def write_page(shown: View | Comparison, path: Path) -> Path:
    """Write the page of a view, or of two beside each other, to `path`, whole or not at all; return the path.

    Raises:
        ArgumentError: the file cannot be written.

    """
    header, blocks, packer = _page_parts(shown)
    return write_whole(build_page(header, blocks, packer=packer), path)


def page_data(shown: View | Comparison) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the page's JSON header and its named arrays, as much as `page_budget` allows.

    A comparison's header is that of the first run with the second run's under `against`; the second run's
    blocks are named `second/...`.
    """
    header, blocks, _ = _page_parts(shown)
    return header, blocks


def _page_parts(shown: View | Comparison) -> tuple[dict[str, Any], dict[str, NDArray[Any]], Packer]:
    views = [shown] if isinstance(shown, View) else [shown.first, shown.second]
    headers = [_run_header(view) for view in views]
    longest = max(max(len(view.tokens), len(view.key_tokens or ())) for view in views)
    # What the headers say of the detail is not known yet; it is a small part of these bytes.
    overhead = bare_size(_joined(headers)) + BLOCK_BYTES * sum(len(view.layers) for view in views)
    budget = budget_for(longest).shared(len(views), overhead)
    packer = Packer()
    blocks: dict[str, NDArray[Any]] = {}
    for view, header, prefix in zip(views, headers, ("", "second/"), strict=False):
        detail = detail_of(view, budget=budget, packer=packer)
        header.update(_detail_header(view, detail))
        blocks |= {prefix + name: block for name, block in detail.blocks.items()}
    return _joined(headers), blocks, packer


def _joined(headers: list[dict[str, Any]]) -> dict[str, Any]:
    page = {"format": 2, "program": {"name": "headwise", "version": __version__}, "caveats": CAVEATS}
    return {**page, **headers[0], "against": headers[1] if len(headers) > 1 else None}


def _run_header(view: View) -> dict[str, Any]:
    return {
        "model": asdict(view.facts),
        "tokens": _tokens(view.tokens),
        "key_tokens": None if view.key_tokens is None else _tokens(view.key_tokens),
        "image_grid": None if view.image_grid is None else list(view.image_grid),
        "next_tokens": [asdict(token) for token in view.next_tokens],
        "part": view.part,
        "unseen": [asdict(module) for module in view.unseen],
        "statistics": [_statistic(one, one.key, one.label) for one in STATISTICS],
        "scores": None if view.head_scores is None else _scores(view.head_scores),
        "heads": _heads(view),
        "seq_len": len(view.tokens),
        "kv_len": len(view.tokens if view.key_tokens is None else view.key_tokens),
        "reference": "eager",
        "max_logit_difference": view.max_logit_difference,
        "focus_layer": view.focus_layer,
        "exact_rows": list(view.exact_rows),
        "layers": [],
    }


def _statistic(statistic: Statistic, key: str, label: str) -> dict[str, str]:
    return {"key": key, "label": label, "unit": statistic.unit, "definition": statistic.definition}


def _score_key(score: Statistic) -> str:
    # A statistic of the text and a score on random tokens may have the same key.
    return f"score_{score.key}"


def _scores(scores: HeadScores) -> dict[str, Any]:
    return {
        "num_tokens": scores.num_tokens,
        "statistics": [_statistic(one, _score_key(one), f"{one.label} score") for one in SCORES],
    }


def _heads(view: View) -> list[dict[str, Any]]:
    """Return each head's statistics and, where the heads were scored, its scores beside them."""
    scored = () if view.head_scores is None else view.head_scores.heads
    scores = {
        (head.layer, head.head): {_score_key(one): getattr(head, one.name) for one in SCORES}
        for head in scored
    }
    return [head_to_json(head) | scores.get((head.layer, head.head), {}) for head in view.heads]


def _tokens(tokens: Sequence[Token]) -> list[dict[str, Any]]:
    return [asdict(token) for token in tokens]


def _detail_header(view: View, detail: Detail) -> dict[str, Any]:
    return {
        "exact": detail.exact,
        "keys": None if detail.keys is None else detail.keys.as_header(),
        "layers": [
            {
                "layer": maps.layer,
                "name": maps.name,
                "num_heads": maps.num_heads,
                "num_kv_heads": maps.num_kv_heads,
                "sink": maps.sink is not None,
                "tile": maps.layer in detail.tiles,
                "exact_rows": maps.layer in detail.exact_rows,
                "map_rows": detail.map_sizes[maps.layer][0],
                "map_columns": detail.map_sizes[maps.layer][1],
            }
            for maps in view.layers
        ],
    }
