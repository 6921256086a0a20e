"""What findings have in common in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwise.verbs.check_model.copies import Likeness
from headwise.verbs.check_model.result import WRITTEN, Matrix

EXACT = 1e-6
"""A factor or difference nearer than this is called equal: float32 keeps seven digits."""


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them.

    Example:
        >>> listed(["W_Q"]), listed(["W_Q", "W_K", "W_O"])
        ('W_Q', 'W_Q, W_K and W_O')

    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def head_numbers(heads: Sequence[int]) -> str:
    """Return head numbers, runs of three and more as a range.

    Example:
        >>> head_numbers([4]), head_numbers([0, 1, 2, 3, 7])
        ('head 4', 'heads 0-3, 7')

    """
    runs: list[list[int]] = []
    for head in heads:
        if runs and head == runs[-1][-1] + 1:
            runs[-1].append(head)
        else:
            runs.append([head])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"head{'s' if len(heads) > 1 else ''} {', '.join(parts)}"


def shared_words(matrices: Sequence[Matrix], shared: Sequence[Mapping[Matrix, Likeness]]) -> str:
    """Return which matrices are shared, and how nearly: by a factor, up to rounding, with the bias or not."""
    return listed([_one(matrix, [each[matrix] for each in shared]) for matrix in matrices])


def _one(matrix: Matrix, likenesses: Sequence[Likeness]) -> str:
    name = WRITTEN[matrix]
    notes = []
    difference = max(each.difference for each in likenesses)
    # What rounding leaves of a copy moves the factor too.
    other = [each.factor for each in likenesses if abs(each.factor - 1) > max(EXACT, difference)]
    if other:
        notes.append(f"times {' and '.join(sorted({f'{factor:.4g}' for factor in other}))}")
    if difference > EXACT:
        notes.append(f"up to {difference:.1%}")
    biases = {each.bias_too for each in likenesses}
    if False in biases:
        notes.append("but not its bias")
    elif biases == {True}:
        name += " and its bias"
    return f"{name} ({', '.join(notes)})" if notes else name
