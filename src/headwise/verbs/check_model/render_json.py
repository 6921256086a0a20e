"""What was found of a model as one JSON document; numbers that are not finite are null."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headwise.verbs.check_model.result import Finding, LayerCheck, ModelCheck


def to_json(found: ModelCheck) -> dict[str, Any]:
    """Return the document that `headwise check MODEL --json` prints."""
    return {
        "model": found.model,
        "family": found.family,
        "is_right": found.is_right,
        "implementation": found.implementation,
        "dtype": found.dtype,
        "text": found.text,
        "num_tokens": found.num_tokens,
        "seed": found.seed,
        "findings": [_finding(each) for each in found.findings],
        "remarks": [_finding(each) for each in found.remarks],
        "layers": [_layer(each) for each in found.layers],
        "unseen": [asdict(each) for each in found.unseen],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "layer": finding.layer,
        "layer_name": finding.layer_name,
        "words": finding.words,
        "mend": finding.mend,
        "heads": [asdict(head) for head in finding.heads],
        "kv_heads": [asdict(head) for head in finding.kv_heads],
        "matrices": list(finding.matrices),
        "numbers": {name: _finite(number) for name, number in finding.numbers.items()},
    }


def _layer(layer: LayerCheck) -> dict[str, Any]:
    return {
        "layer": layer.layer,
        "name": layer.name,
        "kind": layer.kind,
        "num_heads": layer.num_heads,
        "num_kv_heads": layer.num_kv_heads,
        "head_dim": layer.head_dim,
        "value_head_dim": layer.value_head_dim,
        "is_right": layer.is_right,
        "error": _finite(layer.error),
        "allowed": layer.allowed,
        "largest": layer.largest,
        "rows": layer.rows,
        "is_finite": layer.is_finite,
        "projections": dict(layer.projections),
        "not_found": layer.not_found,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
