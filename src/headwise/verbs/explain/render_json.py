"""An explanation as one JSON document: every matrix with its shape, masked scores as null."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headwise.verbs.explain.result import Explanation, HeadTrace, Matrix

HEAD_STEPS = (
    "w_q",
    "w_k",
    "w_v",
    "query",
    "key",
    "value",
    "scores",
    "scaled",
    "masked",
    "weights",
    "output",
)


def to_json(explanation: Explanation, *, page: Path | None = None) -> dict[str, Any]:
    """Return `explanation` as plain dictionaries, lists, strings and numbers; `page` is where it was written.

    Example:
        >>> from headwise.verbs.explain import explain_two_heads
        >>> to_json(explain_two_heads())["output"]["shape"]
        [3, 4]

    """
    return {
        "tokens": list(explanation.tokens),
        "drawn_tokens": list(explanation.drawn_tokens),
        "d_model": explanation.d_model,
        **asdict(explanation.layout),
        "seed": explanation.seed,
        "causal": explanation.causal,
        "input": matrix_to_json(explanation.input),
        "heads": [_head_to_json(head) for head in explanation.heads],
        "concatenated": matrix_to_json(explanation.concatenated),
        "w_o": matrix_to_json(explanation.w_o),
        "output": matrix_to_json(explanation.output),
        "page": None if page is None else str(page),
    }


def matrix_to_json(matrix: Matrix) -> dict[str, Any]:
    """Return a matrix with its shape; what is not finite is masked and becomes null."""
    rows = [[number if np.isfinite(number) else None for number in row] for row in matrix.tolist()]
    return {"shape": list(matrix.shape), "values": rows}


def _head_to_json(head: HeadTrace) -> dict[str, Any]:
    steps = {name: matrix_to_json(getattr(head, name)) for name in HEAD_STEPS}
    return {"head": head.head, "kv_head": head.kv_head, **steps}
