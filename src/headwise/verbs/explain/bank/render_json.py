"""The example `bank` as one JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headwise.verbs.explain.bank.result import BankExplanation, BankHead, Routing
from headwise.verbs.explain.render_json import matrix_to_json

DEFINITIONS = {
    "exact": "share of a token's content that the heads' outputs tell by the best linear guess, by formula",
    "measured": "the same share over drawn sentences, by an output projection fitted on other sentences",
    "deviation": "standard deviation of the scores query . key, undivided",
    "entropy": "of the softmax of the scores, in nats; low, median, high are the percentiles 10, 50, 90",
    "gradient": "Frobenius norm of the derivatives of the weights by what goes into the softmax",
}


def to_json(found: BankExplanation) -> dict[str, Any]:
    """Return the example as plain dictionaries, lists, strings and numbers.

    Example:
        >>> from headwise.verbs.explain.bank import explain_bank
        >>> [round(share, 2) for share in to_json(explain_bank())["one_head"]["exact"]]
        [0.0, 0.0, 0.5, 0.5]

    """
    return {
        "tokens": list(found.tokens),
        "query_token": found.query_token,
        "wanted": list(found.wanted),
        "seed": found.seed,
        "strength": found.strength,
        "sentences": found.sentences,
        "definitions": DEFINITIONS,
        "contents": matrix_to_json(found.contents),
        "one_head": _routing(found.one),
        "two_heads": _routing(found.two),
        "mixes": [
            {"second": mix.second, "weights": mix.weights.tolist(), "exact": mix.exact.tolist()}
            for mix in found.mixes
        ],
        "scaling": {
            "draws": found.draws,
            "keys": found.keys,
            "points": [asdict(point) for point in found.scaling],
        },
    }


def _routing(found: Routing) -> dict[str, Any]:
    return {
        "heads": [_head(head) for head in found.heads],
        "delivered": matrix_to_json(found.delivered),
        "measured": found.measured.tolist(),
        "exact": found.exact.tolist(),
    }


def _head(head: BankHead) -> dict[str, Any]:
    return {
        "wishes": list(head.wishes),
        "head_dim": head.head_dim,
        "query": head.query.tolist(),
        "key": matrix_to_json(head.key),
        "scaled": head.scaled.tolist(),
        "weights": head.weights.tolist(),
        "output": head.output.tolist(),
    }
