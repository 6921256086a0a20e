"""One self-contained HTML page: its parts put into a skeleton, and the file written whole or not at all.

A page opens from a file URL and asks the network for nothing: a content security policy allows exactly the
style and the script that stand in it, by their hashes. Data are never code: they are JSON with every
character escaped that HTML or a script could take for its own.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import os
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from headwise.errors import ArgumentError


def page_asset(package: str, name: str) -> str:
    """Return a text that lies in the folder `page` of a package.

    Args:
        package: the package's name.
        name: the file's name.

    Example:
        >>> page_asset("headwise.verbs.explain", "page.html").splitlines()[0]
        '<!DOCTYPE html>'

    """
    return resources.files(package).joinpath("page", name).read_text(encoding="utf-8")


def filled_page(
    package: str, *, title: str, script: str, header: Any, allowed: Sequence[str] = (), **parts: str
) -> str:
    """Return the page whose skeleton `page.html` and style `page.css` lie in the folder `page` of a package.

    Args:
        package: the package's name.
        title: the page's title, as text.
        script: the one script of the page.
        header: data that the script reads, of what JSON knows.
        allowed: what the page needs beside its style and script, as directives of the policy.
        parts: HTML for the other places of the skeleton.

    Raises:
        ValueError: a number of the header is not finite, and JSON has none of these.

    Example:
        >>> page = filled_page("headwise.verbs.explain", title="1 < 2", script="", header={})
        >>> "<title>1 &lt; 2</title>" in page
        True

    """
    style = page_asset(package, "page.css")
    policy = (
        "default-src 'none'",
        f"script-src 'sha256-{_sha256(script)}'",
        f"style-src 'sha256-{_sha256(style)}'",
        *allowed,
        "base-uri 'none'",
        "form-action 'none'",
    )
    places = {
        **parts,
        "policy": "; ".join(policy),
        "title": html.escape(title),
        "style": style,
        "header": _as_json(header),
        "script": script,
    }
    # One pass over the skeleton: what is put in is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], page_asset(package, "page.html"))


def write_whole(page: str, path: Path) -> Path:
    """Write a page to `path`, whole or not at all; return the path.

    Raises:
        ArgumentError: the file cannot be written.

    """
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


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _as_json(value: object) -> str:
    # Beyond ASCII everything is escaped, U+2028 among it.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
