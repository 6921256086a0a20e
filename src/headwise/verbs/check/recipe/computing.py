"""One question's answer by any recipe; what recipes have in common is computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Projection, Projections, Role, Sizes
from headwise.verbs.check.recipe.heads import Given, Heads, heads_of, mapped
from headwise.verbs.check.recipe.knobs import CannotComputeError, Recipe
from headwise.verbs.check.recipe.visibility import Lengths, Shown, check_fit, shown
from headwise.verbs.check.recipe.weighing import Scores, Weights, products, score, weigh

_HEADS_KNOBS = (
    "reading", "head_order", "rope", "batch_mixed", "heads_mixed", "projections_swapped", "tensors_swapped",
    "projection_biases", "split", "shared_head", "rotary", "rotary_base", "kv_heads", "cache_used",
)  # fmt: skip
_PRODUCTS_KNOBS = (*_HEADS_KNOBS, "precision")
_SHOWN_KNOBS = (
    "causal", "causal_behind_cache", "window", "window_sides", "alignment", "mask_means", "float_mask",
    "padding_means", "causality", "upper_left", "windowing", "masking", "padding", "cache_used",
)  # fmt: skip
# All but those that tell what becomes of the weighted values.
_WEIGHTS_KNOBS = tuple(knob.name for knob in fields(Recipe) if knob.name not in ("join", "output"))

_heads_part, _products_part = attrgetter(*_HEADS_KNOBS), attrgetter(*_PRODUCTS_KNOBS)
_shown_part, _weights_part = attrgetter(*_SHOWN_KNOBS), attrgetter(*_WEIGHTS_KNOBS)
# A search tries many thousands of recipes; those that share a part are tried close together.
_MOST_KEPT = 4096


class Computed(NamedTuple):
    """What a recipe answers.

    - output: in the axes of the form
    - weights: of its heads, and which rows they fix
    """

    output: Tensor
    weights: Weights


class Computation:
    """One question to one subject, in one dtype.

    Args:
        form, sizes, readings: the subject's.
        inputs: what is asked.
        past: an earlier call whose tokens are remembered, or None.
        dtype: of the computation.

    """

    def __init__(
        self,
        *,
        form: Form,
        sizes: Sizes,
        readings: tuple[Projections, ...],
        inputs: Inputs,
        past: Inputs | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        query, key, value = (rows.to(dtype) for rows in (inputs.query, inputs.key, inputs.value))
        if past is not None:
            key = torch.cat((past.key.to(dtype), key), dim=-2)
            value = torch.cat((past.value.to(dtype), value), dim=-2)
        past_len = 0 if past is None else past.key.shape[-2]
        maps = tuple(_in_dtype(reading, dtype) for reading in readings)
        self._given = Given(form, sizes, query, key, value, past_len, maps)
        self._options: Mapping[Role, Any] = inputs.options
        self._dtype = dtype
        self._heads: dict[tuple[Any, ...], Heads] = {}
        self._products: dict[tuple[Any, ...], Tensor] = {}
        self._shown: dict[tuple[Any, ...], Shown] = {}
        self._weights: dict[tuple[Any, ...], Weights] = {}

    def answer(self, recipe: Recipe) -> Computed:
        """Return what a recipe answers.

        Raises:
            CannotComputeError: a knob asks for what these sizes do not allow.

        """
        heads, weights = self._heads_by(recipe), self.weights(recipe)
        if weights.weights.shape[-1] != heads.value.shape[-2]:
            raise CannotComputeError("weights and values differ in length")
        return Computed(self._joined(weights.weights @ heads.value, recipe), weights)

    def weights(self, recipe: Recipe) -> Weights:
        """Return the weights alone."""
        key = _weights_part(recipe)
        if key not in self._weights:
            _make_room(self._weights)
            self._weights[key] = weigh(self.scores(recipe), self._options, recipe)
        return self._weights[key]

    def scores(self, recipe: Recipe) -> Scores:
        """Return the scores before the softmax alone."""
        dots = self.products(recipe)
        past = self._given.past if recipe.cache_used else 0
        lengths = Lengths(dots.shape[0], dots.shape[-2], dots.shape[-1], past)
        key = (lengths, *_shown_part(recipe))
        if key not in self._shown:
            check_fit(self._options, dots.shape)
            self._shown[key] = shown(lengths, self._options, recipe, self._dtype)
        seen = self._shown[key]
        return score(dots, seen, self._options, self._given.sizes, recipe)

    def _heads_by(self, recipe: Recipe) -> Heads:
        key = _heads_part(recipe)
        if key not in self._heads:
            _make_room(self._heads)
            self._heads[key] = heads_of(self._given, recipe)
        return self._heads[key]

    def products(self, recipe: Recipe) -> Tensor:
        """Return `query . key` alone."""
        key = _products_part(recipe)
        if key not in self._products:
            heads = self._heads_by(recipe)
            if heads.query.shape[-1] != heads.key.shape[-1]:
                raise CannotComputeError("query and key differ in width")
            _make_room(self._products)
            self._products[key] = products(heads, recipe)
        return self._products[key]

    def _joined(self, output: Tensor, recipe: Recipe) -> Tensor:
        form = self._given.form
        if form is Form.HEADS:
            return output.transpose(1, 2) if recipe.heads_mixed else output
        if recipe.heads_mixed:
            output = output.transpose(1, 2)
        batch, num_heads, seq_len, width = output.shape
        if recipe.join == "view":
            rows = output.reshape(batch, seq_len, num_heads * width)
        elif (recipe.join == "width major") != (recipe.head_order == "width major"):
            rows = output.permute(0, 2, 3, 1).reshape(batch, seq_len, num_heads * width)
        else:
            rows = output.transpose(1, 2).reshape(batch, seq_len, num_heads * width)
        if form is Form.PROJECTED:
            rows = self._output_projected(rows, recipe)
        return rows.transpose(0, 1) if recipe.batch_mixed else rows

    def _output_projected(self, rows: Tensor, recipe: Recipe) -> Tensor:
        by = self._given.readings[recipe.reading].output
        if by is None or recipe.output == "missing":
            if by is None and recipe.output != "right":
                raise CannotComputeError("there is no output projection")
            return rows
        if recipe.output == "transposed":
            if by.weight.shape[0] != by.weight.shape[1]:
                raise CannotComputeError("the output projection is not square")
            by = type(by)(by.weight.mT, by.bias)
        return mapped(rows, by, biased=recipe.projection_biases in ("right", "ignored in"))


def _in_dtype(maps: Projections, dtype: torch.dtype) -> Projections:
    def converted(one: Projection) -> Projection:
        return Projection(one.weight.to(dtype), None if one.bias is None else one.bias.to(dtype))

    return Projections(
        converted(maps.query),
        converted(maps.key),
        converted(maps.value),
        None if maps.output is None else converted(maps.output),
        maps.fused,
    )


def _make_room(kept: dict[tuple[Any, ...], Any]) -> None:
    if len(kept) >= _MOST_KEPT:
        kept.clear()
