"""An explanation as one self-contained page, where changing a number computes everything again.

The page opens from a file URL and asks the network for nothing: a content security policy allows exactly the
style and the script that stand in it, by their hashes. Data are never code: they are JSON with every
character escaped that HTML could take for its own.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.errors import ArgumentError
from headwise.verbs.explain import words
from headwise.verbs.explain.result import Explanation
from headwise.version import __version__

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
    page = build_page(explanation)
    # With the process in its name, for two may write the same page at once.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_text(page, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise ArgumentError(
            f"cannot write --out {path}: {error.strerror}; choose a file you may write"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return path


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
    style = _asset("page.css")
    script = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{_sha256(script)}'",
            f"style-src 'sha256-{_sha256(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "policy": policy,
        "title": html.escape(words.title(explanation)),
        "style": style,
        "header": _as_json(_header(explanation)),
        "script": script,
    }
    # One pass over the skeleton: what is put in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))


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


def _asset(name: str) -> str:
    return resources.files("headwise.verbs.explain").joinpath("page", name).read_text(encoding="utf-8")


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_json(value: object) -> str:
    # Beyond ASCII everything is escaped, U+2028 among it.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
