"""An explanation as one self-contained page, where changing a number computes everything again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.errors import ArgumentError
from headwise.verbs.explain import words
from headwise.verbs.explain.result import Explanation
from headwise.verbs.page_file import filled_page, page_asset, write_whole
from headwise.version import __version__

PACKAGE = "headwise.verbs.explain"
# Later scripts use the names of earlier ones.
SCRIPTS = ("attention", "matrices", "flow")
MOST_NUMBERS = 10_000
"""Each is a cell of the page; with 9,464 a change of the input took a quarter of a second, mostly layout."""
FOOT = (
    f"headwise {__version__}. The weights are drawn, not learned: what these heads look at means nothing; "
    "how they arrive there is what every model does."
)


def write_page(explanation: Explanation, path: Path) -> Path:
    """Write the page of an explanation to `path`, whole or not at all; return the path.

    Raises:
        ArgumentError: it has more numbers than a page can show, or the file cannot be written.

    """
    return write_whole(build_page(explanation), path)


def build_page(explanation: Explanation) -> str:
    """Return the page of an explanation as one HTML document.

    Raises:
        ArgumentError: it has more numbers than a page can show.

    Example:
        >>> from headwise.verbs.explain import explain_two_heads
        >>> build_page(explain_two_heads()).startswith("<!DOCTYPE html>")
        True

    """
    check_size(explanation)
    script = "\n".join(page_asset(PACKAGE, f"{name}.js") for name in SCRIPTS)
    return filled_page(PACKAGE, title=words.title(explanation), script=script, header=_header(explanation))


def check_size(explanation: Explanation) -> None:
    """Refuse an explanation with more numbers than a page can show.

    Raises:
        ArgumentError: it has.

    """
    count = _numbers(explanation)
    if count > MOST_NUMBERS:
        raise ArgumentError(
            f"a page of this example would show {count:,} numbers; the most is {MOST_NUMBERS:,}: take fewer "
            "tokens or heads or a smaller d_model, or leave --out away"
        )


def _numbers(explanation: Explanation) -> int:
    heads = sum(
        matrix.size
        for head in explanation.heads
        for matrix in (head.w_q, head.w_k, head.w_v, head.query, head.key, head.value, head.output)
    )
    rows = 3 * len(explanation.heads) * len(explanation.tokens) ** 2
    whole = (explanation.input, explanation.concatenated, explanation.w_o, explanation.output)
    return heads + rows + sum(matrix.size for matrix in whole)


def _header(explanation: Explanation) -> dict[str, Any]:
    firsts = [
        explanation.heads[explanation.layout.query_heads_of(kv_head)[0]]
        for kv_head in range(explanation.layout.num_kv_heads)
    ]
    return {
        "title": words.title(explanation),
        "sizes": words.sizes(explanation),
        "foot": FOOT,
        "tokens": list(explanation.tokens),
        "causal": explanation.causal,
        "kv_heads": [head.kv_head for head in explanation.heads],
        "input": explanation.input.tolist(),
        "w_q": [head.w_q.tolist() for head in explanation.heads],
        "w_k": [head.w_k.tolist() for head in firsts],
        "w_v": [head.w_v.tolist() for head in firsts],
        "w_o": explanation.w_o.tolist(),
    }
