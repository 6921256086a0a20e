"""A view, or two beside each other, as one JSON document."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwise.evidence import STATISTICS
from headwise.models.head_scores import SCORES, HeadScores
from headwise.models.tokens import Token
from headwise.verbs.view.differences import head_differences, tokens_note, why_not_head_by_head
from headwise.verbs.view.result import Comparison, HeadSummary, LayerMaps, View

STRONGEST = 5
"""Heads that are named for each score."""


def to_json(shown: View | Comparison, *, page: Path | None = None) -> dict[str, Any]:
    """Return the document `headwise view --json` prints; `page` is where the page was written, if it was."""
    document = _view_to_json(shown) if isinstance(shown, View) else _comparison_to_json(shown)
    return {**document, "page": None if page is None else str(page)}


def head_to_json(head: HeadSummary) -> dict[str, Any]:
    """Return one head: where it is, and each statistic under its key."""
    return {
        "layer": head.layer,
        "head": head.head,
        "kv_head": head.kv_head,
        **{statistic.key: getattr(head, statistic.name) for statistic in STATISTICS},
    }


def _view_to_json(view: View) -> dict[str, Any]:
    return {
        "model": view.facts.name,
        **{name: value for name, value in asdict(view.facts).items() if name != "name"},
        "text": view.text,
        **_tokens("tokens", view.tokens),
        "part": view.part,
        **_tokens("key_tokens", view.key_tokens),
        "image_grid": None if view.image_grid is None else list(view.image_grid),
        "next_tokens": [asdict(token) for token in view.next_tokens],
        "attention_layers": [_layer_to_json(maps) for maps in view.layers],
        "not_recorded": [asdict(module) for module in view.unseen],
        "heads": [head_to_json(head) for head in view.heads],
        "focus_layer": view.focus_layer,
        "rows": _rows_to_json(view),
        "head_scores": None if view.head_scores is None else scores_to_json(view.head_scores),
        "max_logit_difference": view.max_logit_difference,
    }


def _tokens(name: str, tokens: tuple[Token, ...] | None) -> dict[str, Any]:
    details = name.removesuffix("s") + "_details"
    if tokens is None:
        return {name: None, details: None}
    return {name: [token.text for token in tokens], details: [asdict(token) for token in tokens]}


def _layer_to_json(maps: LayerMaps) -> dict[str, Any]:
    return {
        "layer": maps.layer,
        "name": maps.name,
        "num_heads": maps.num_heads,
        "num_kv_heads": maps.num_kv_heads,
    }


def _rows_to_json(view: View) -> list[dict[str, Any]]:
    """Return for each row that was asked for the exact weights of every head."""
    return [
        {
            "row": row,
            "token": view.tokens[row].text,
            "heads": [
                {"layer": maps.layer, "head": head, "weights": maps.exact_weights[head, place].tolist()}
                for maps in view.layers
                if maps.exact_weights is not None
                for head in range(maps.num_heads)
            ],
        }
        for place, row in enumerate(view.exact_rows)
    ]


def scores_to_json(scores: HeadScores) -> dict[str, Any]:
    """Return the scores of every head, and the strongest by each score."""
    return {
        "text": {
            "num_tokens": scores.num_tokens,
            "batch": scores.batch,
            "seed": scores.seed,
            "seq_len": scores.seq_len,
        },
        "definitions": {score.key: score.definition for score in SCORES},
        "strongest": {
            score.key: [
                {"layer": head.layer, "head": head.head, "score": getattr(head, score.name)}
                for head in scores.strongest(score.name, count=STRONGEST)
            ]
            for score in SCORES
        },
        "sink_share": scores.sink_share,
        "heads": [asdict(head) for head in scores.heads],
    }


def _comparison_to_json(comparison: Comparison) -> dict[str, Any]:
    return {
        "first": _view_to_json(comparison.first),
        "second": _view_to_json(comparison.second),
        "differences": [
            {
                "statistic": one.statistic.key,
                "layer": one.first.layer,
                "head": one.first.head,
                "first": getattr(one.first, one.statistic.name),
                "second": getattr(one.second, one.statistic.name),
                "difference": one.difference,
            }
            for one in head_differences(comparison)
        ],
        "no_differences_because": why_not_head_by_head(comparison),
        "tokens_note": tokens_note(comparison),
    }
