"""The gist of somebody else's error, for the end of one of ours."""

from __future__ import annotations


def short_cause(error: BaseException) -> str:
    """Return what an error says in one line of at most 300 characters; its type if it says nothing."""
    said = str(error)
    if "ignore_mismatched_sizes" in said:
        # transformers writes which ones into a log; here the config and the weights are simply not a pair.
        return "the weights have other sizes than the config says"
    if isinstance(error, MemoryError) or "can't allocate memory" in said:
        return "it takes more memory than there is"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
