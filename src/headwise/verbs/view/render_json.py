"""A view as one JSON document."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwise.evidence import STATISTICS
from headwise.verbs.view.result import HeadSummary, View


def to_json(view: View, *, page: Path | None = None) -> dict[str, Any]:
    """Return the document `headwise view --json` prints; `page` is where the page was written, if it was."""
    return {
        "model": view.facts.name,
        **{name: value for name, value in asdict(view.facts).items() if name != "name"},
        "text": view.text,
        "tokens": [token.text for token in view.tokens],
        "token_details": [asdict(token) for token in view.tokens],
        "next_tokens": [asdict(token) for token in view.next_tokens],
        "heads": [head_to_json(head) for head in view.heads],
        "focus_layer": view.focus_layer,
        "max_logit_difference": view.max_logit_difference,
        "page": None if page is None else str(page),
    }


def head_to_json(head: HeadSummary) -> dict[str, Any]:
    """Return one head: where it is, and each statistic under its key."""
    return {
        "layer": head.layer,
        "head": head.head,
        "kv_head": head.kv_head,
        **{statistic.key: getattr(head, statistic.name) for statistic in STATISTICS},
    }
