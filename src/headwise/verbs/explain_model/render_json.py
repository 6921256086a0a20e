"""A traced call as one JSON document; scores of hidden keys are null."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from headwise.verbs.explain.render_json import matrix_to_json
from headwise.verbs.explain_model.result import HeadRow, LogitParts, ModelTrace


def to_json(trace: ModelTrace) -> dict[str, Any]:
    """Return `trace` as plain dictionaries, lists, strings and numbers."""
    return {
        "model": trace.model,
        "family": trace.family,
        "text": trace.text,
        "tokens": [token.text for token in trace.tokens],
        "token_details": [asdict(token) for token in trace.tokens],
        "position": trace.position,
        "layer": trace.layer,
        "layer_name": trace.layer_name,
        "num_layers": trace.num_layers,
        "head": trace.head,
        "kv_head": trace.kv_head,
        "num_heads": trace.num_heads,
        "num_kv_heads": trace.num_kv_heads,
        "query": matrix_to_json(trace.query),
        "key": matrix_to_json(trace.key),
        "value": matrix_to_json(trace.value),
        "row": _row(trace.row),
        "output_projection": trace.projection,
        "added_by_head": matrix_to_json(trace.added),
        "added_by_bias": None if trace.bias is None else trace.bias.tolist(),
        "block_output": trace.block.tolist(),
        "sum_difference": trace.sum_difference,
        "next_tokens": [asdict(token) for token in trace.next_tokens],
        "logit": None if trace.logit is None else _logit(trace.logit),
        "no_logit_because": trace.no_logit,
        "max_logit_difference": trace.max_logit_difference,
    }


def _row(row: HeadRow) -> dict[str, Any]:
    masked = np.where(row.visible, row.scaled + (0.0 if row.added is None else row.added), np.nan)
    return {
        "scale": row.scale,
        "softcap": row.softcap,
        "scores": row.scores.tolist(),
        "scaled": row.scaled.tolist(),
        "bias": None if row.added is None else row.added.tolist(),
        "masked": [None if np.isnan(score) else score for score in masked.tolist()],
        "weights": row.weights.tolist(),
        "sink": row.sink,
        "output": row.output.tolist(),
        "output_difference": row.output_difference,
    }


def _logit(parts: LogitParts) -> dict[str, Any]:
    return {
        "embedding": parts.embedding,
        "layers": [
            {"layer": one.layer, "heads": one.heads.tolist(), "bias": one.bias, "mlp": one.mlp}
            for one in parts.layers
        ],
        "constant": parts.constant,
        "total": parts.total,
        "logit": parts.logit,
        "difference": parts.difference,
        "residual_difference": parts.residual_difference,
        "final_norm": parts.norm_name,
        "norm_scale": parts.norm_scale,
    }
