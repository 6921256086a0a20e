"""A plan as one JSON document: every figure keeps its unit and its arithmetic."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwise.verbs.plan.result import Plan


def to_json(plan: Plan) -> dict[str, Any]:
    """Return `plan` as plain dictionaries, lists, strings and numbers.

    Example:
        >>> from headwise.verbs.plan import plan
        >>> to_json(plan(num_heads=8, d_model=512))["parameters"]["total"]["value"]
        1048576

    """
    return {
        "layout": {"kind": plan.kind, **asdict(plan.layout), "group_size": plan.layout.group_size},
        "settings": asdict(plan.settings),
        "parameters": asdict(plan.parameters),
        "query_key_products": asdict(plan.query_key_products),
        "prefill_flops": {"dense": asdict(plan.prefill_dense), "causal": asdict(plan.prefill_causal)},
        "decode_step_flops": asdict(plan.decode_step),
        "decode_flop_per_byte": asdict(plan.decode_flop_per_byte),
        "kv_cache": asdict(plan.kv_cache),
        "variants": [asdict(variant) for variant in plan.variants],
    }
