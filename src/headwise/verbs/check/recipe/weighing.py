"""From the heads to the weights of each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.verbs.check.asking import Role, Sizes
from headwise.verbs.check.recipe.heads import Heads
from headwise.verbs.check.recipe.knobs import Recipe
from headwise.verbs.check.recipe.visibility import Shown

_AXES = {"queries": -2, "heads": 1, "batch": 0}
_LOW_DTYPES = {
    "float16": torch.float16,
    "float16 product": torch.float16,
    "bfloat16": torch.bfloat16,
    "bfloat16 product": torch.bfloat16,
}


class Weights(NamedTuple):
    """The weights `[batch, num_heads, seq_len, kv_len]`.

    - known `[batch, seq_len]`: False at rows whose numbers depend on a constant of the subject that cannot be
      guessed, such as the score of what is hidden where no softmax follows; None if all are known
    - empty `[batch, seq_len]`: True at rows that see no key in some head; None if there are none
    - has_empty: whether a softmax, over whatever axis, had no visible entry
    - scores: those before the softmax, 0 where hidden; rounding grows with them
    """

    weights: Tensor
    known: Tensor | None
    empty: Tensor | None
    has_empty: bool
    scores: Tensor

    def largest_score(self) -> float:
        """Return the largest finite score of what is visible."""
        return float(self.scores.nan_to_num(0.0, posinf=0.0, neginf=0.0).abs().max())


def products(heads: Heads, recipe: Recipe) -> Tensor:
    """Return `query . key`, `[batch, num_heads, seq_len, kv_len]`."""
    low = _LOW_DTYPES.get(recipe.precision)
    if low is None:
        return heads.query @ heads.key.mT
    query, key = (rows.to(low).to(rows.dtype) for rows in heads[:2])
    dots = query @ key.mT
    # A product in float16 is infinite beyond 65504.
    return dots.to(low).to(dots.dtype) if recipe.precision.endswith("product") else dots


class Scores(NamedTuple):
    """The scores before the softmax, and which are hidden, `[batch, num_heads, seq_len, kv_len]`."""

    scores: Tensor
    hidden: Tensor


def score(dots: Tensor, seen: Shown, options: Mapping[Role, Any], sizes: Sizes, recipe: Recipe) -> Scores:
    """Return the scores that a recipe makes of products of query and key."""
    bias = _bias(options, dots.dtype, recipe)
    scale = _scale(dots, options, sizes, recipe)
    scores = (dots + bias) * scale if bias is not None and recipe.bias == "before scale" else dots * scale
    softcap = recipe.softcap or options.get(Role.SOFTCAP)
    if recipe.softcapping == "ignored":
        softcap = None
    if softcap is not None and recipe.softcapping == "right":
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores + seen.added
    if bias is not None and recipe.bias == "right":
        scores = scores + bias
    hidden = ~seen.visible
    if softcap is not None and recipe.softcapping == "after mask":
        # What was hidden with -inf comes back as the lowest score there is.
        scores = softcap * torch.tanh(scores.masked_fill(hidden, -torch.inf) / softcap)
        hidden = torch.zeros_like(hidden)
    return Scores(scores, hidden.expand(scores.shape))


def weigh(scored: Scores, options: Mapping[Role, Any], recipe: Recipe) -> Weights:
    """Return the weights that a recipe makes of scores."""
    found = _weights(*scored, recipe)
    bias = _bias(options, scored.scores.dtype, recipe)
    if bias is not None and recipe.bias == "after softmax":
        found = found._replace(weights=found.weights + bias)
    return found


def _bias(options: Mapping[Role, Any], dtype: torch.dtype, recipe: Recipe) -> Tensor | None:
    bias = options.get(Role.BIAS)
    return None if bias is None or recipe.bias == "ignored" else bias.to(dtype)


def _scale(dots: Tensor, options: Mapping[Role, Any], sizes: Sizes, recipe: Recipe) -> float:
    given = options.get(Role.SCALE)
    if given is not None and recipe.scale_option == "right":
        return float(given)
    default = sizes.head_dim**-0.5 if recipe.scale is None else recipe.scale
    return {
        "right": default,
        "missing": 1.0,
        "d_model": sizes.d_model**-0.5,
        "squared": 1.0 / sizes.head_dim,
        "heads": sizes.num_heads**-0.5,
        "multiplied": sizes.head_dim**0.5,
        "kv_len": dots.shape[-1] ** -0.5,
        "value": sizes.value_head_dim**-0.5,
    }[recipe.scaling]


def _weights(scores: Tensor, hidden: Tensor, recipe: Recipe) -> Weights:
    visible_scores = scores.masked_fill(hidden, 0.0)
    if recipe.softmax == "missing":
        known = ~hidden.any(dim=-1).any(dim=1)
        return Weights(visible_scores, known, None, has_empty=False, scores=visible_scores)
    if recipe.softmax == "before mask":
        weights = torch.softmax(scores, dim=-1).masked_fill(hidden, 0.0)
        return Weights(weights, None, None, has_empty=False, scores=visible_scores)
    if recipe.hidden_score is not None:
        scores, hidden = scores.masked_fill(hidden, recipe.hidden_score), torch.zeros_like(hidden)
    elif recipe.hidden_added is not None:
        scores, hidden = scores + hidden.to(scores.dtype) * recipe.hidden_added, torch.zeros_like(hidden)
    axis = _AXES.get(recipe.softmax, -1)
    weights = _softmax(scores.masked_fill(hidden, -torch.inf), axis, recipe)
    return _with_empty(weights, hidden, axis, recipe, visible_scores)


def _with_empty(
    weights: Tensor, hidden: Tensor, axis: int, recipe: Recipe, visible_scores: Tensor
) -> Weights:
    """Return the weights with what a recipe has where a softmax sees nothing."""
    empty = hidden.all(dim=axis, keepdim=True)
    if not bool(empty.any()):
        return Weights(weights, None, None, has_empty=False, scores=visible_scores)
    mean = 1.0 / weights.shape[axis]
    instead = {"zero": 0.0, "nan": torch.nan, "mean": mean, "other": 0.0}[recipe.empty]
    rows = empty[..., 0].any(dim=1) if axis == -1 else None
    known = ~rows if rows is not None and recipe.empty == "other" else None
    weights = torch.where(empty, instead, weights)
    return Weights(weights, known, rows, has_empty=True, scores=visible_scores)


def _softmax(scores: Tensor, axis: int, recipe: Recipe) -> Tensor:
    if recipe.softmax != "overflows":
        return torch.softmax(scores, dim=axis)
    # Without the largest score taken off, in float32: the exponential of 89 is infinite already.
    raised = scores.to(torch.float32).exp()
    return (raised / raised.sum(dim=axis, keepdim=True)).to(scores.dtype)
