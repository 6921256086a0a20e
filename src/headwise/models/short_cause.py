"""The gist of somebody else's error, for the end of one of ours."""

from __future__ import annotations


def short_cause(error: BaseException) -> str:
    """Return the first line of an error's text, at most 300 characters; its type if it has none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
