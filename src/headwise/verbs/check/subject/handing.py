"""The arguments of one call: each parameter's value, from the probe, the sizes and the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import Any

import torch
from torch import Tensor

from headwise.rope import Rope
from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.meaning import INPUTS, Constant, Meaning, Part
from headwise.verbs.check.subject.rotation import rotation
from headwise.verbs.check.subject.signature import is_required
from headwise.verbs.check.subject.way import Asked, Kept
from headwise.verbs.check.subject.weight_names import WeightRole

_ABSENT = object()
# What says "nothing of the kind" where a parameter must be given and the probe has no word on it.
_NOTHING: dict[Role, Any] = {Role.CAUSAL: False, Role.DROPOUT: 0.0, Role.NEED_WEIGHTS: False}
# As long as no probe is.
CAPACITY = 128


@dataclass(frozen=True, eq=False)
class Parameters:
    """The parameters of a callable, and what each one means that is handed over.

    - is_open: whether query, key and value go to `*args`
    - rope: rotary positions for those who are handed cosines and sines; None for positions that turn nothing
    """

    signature: Signature
    meanings: Mapping[str, Meaning]
    is_open: bool
    rope: Rope | None = None

    @property
    def roles(self) -> frozenset[Role]:
        """What it can be given."""
        open_inputs = INPUTS if self.is_open else frozenset()
        return open_inputs | {meaning for meaning in self.meanings.values() if isinstance(meaning, Role)}


def arguments_of(parameters: Parameters, asked: Asked) -> tuple[list[Any], dict[str, Any]]:
    """Return what is handed over by position and by name."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    if parameters.is_open:
        args = [asked.tensors[role] for role in (Role.QUERY, Role.KEY, Role.VALUE)]
    for name, meaning in parameters.meanings.items():
        parameter = parameters.signature.parameters.get(name)
        value = _value(meaning, asked, parameters.rope)
        if value is _ABSENT and parameter is not None and is_required(parameter):
            value = _nothing(meaning, asked)
        if parameter is not None and parameter.kind is Parameter.POSITIONAL_ONLY:
            args.append(parameter.default if value is _ABSENT else value)
        elif value is not _ABSENT:
            kwargs[name] = value
    return args, kwargs


def _value(meaning: Meaning, asked: Asked, rope: Rope | None) -> Any:
    if isinstance(meaning, Constant):
        return meaning.value
    if isinstance(meaning, WeightRole):
        weight = asked.way.weights.get(meaning)
        return _ABSENT if weight is None else weight.clone()
    if meaning is Part.ROTATION:
        return _rotation(asked, rope)
    if isinstance(meaning, Part):
        return _OF_PART[meaning](asked)
    if meaning in INPUTS:
        return asked.tensors[meaning]
    sizes = asked.way.sizes
    counts = {Role.NUM_HEADS: sizes.num_heads, Role.NUM_KV_HEADS: sizes.num_kv_heads}
    given = counts[meaning] if meaning in counts else asked.inputs.options.get(meaning, _ABSENT)
    return given.value if isinstance(given, Kept) else given


def _nothing(meaning: Meaning, asked: Asked) -> Any:
    if meaning is Role.SCALE:
        return asked.way.sizes.head_dim**-0.5
    return _NOTHING.get(meaning) if isinstance(meaning, Role) else None


def _rotation(asked: Asked, rope: Rope | None) -> tuple[Tensor, Tensor]:
    dtype = asked.inputs.query.dtype
    return rotation(rope, _positions(asked), head_dim=asked.way.sizes.head_dim, dtype=dtype)


def _positions(asked: Asked) -> Tensor:
    counted = torch.arange(asked.seen, asked.seen + asked.seq_len)
    return counted.expand(asked.batch, -1) if asked.way.has_batch else counted


def _where_a_cache_is(value: Callable[[Asked], Any]) -> Callable[[Asked], Any]:
    return lambda asked: value(asked) if Role.CACHE in asked.inputs.options else _ABSENT


_OF_PART: dict[Part, Callable[[Asked], Any]] = {
    Part.D_MODEL: lambda asked: asked.way.sizes.d_model,
    Part.HEAD_DIM: lambda asked: asked.way.sizes.head_dim,
    Part.VALUE_HEAD_DIM: lambda asked: asked.way.sizes.value_head_dim,
    Part.WIDTH: lambda asked: asked.way.sizes.num_heads * asked.way.sizes.head_dim,
    Part.GROUP_SIZE: lambda asked: asked.way.sizes.num_heads // asked.way.sizes.num_kv_heads,
    Part.BATCH: lambda asked: asked.batch,
    Part.SEQ_LEN: lambda asked: asked.seq_len,
    Part.KV_LEN: lambda asked: asked.kv_len,
    Part.LENGTHS: lambda asked: _ABSENT,
    Part.CAPACITY: lambda asked: CAPACITY,
    Part.GROUPED: lambda asked: asked.way.sizes.num_kv_heads < asked.way.sizes.num_heads,
    Part.TRAINING: lambda asked: asked.inputs.training,
    Part.USE_CACHE: _where_a_cache_is(lambda asked: True),
    Part.START: lambda asked: asked.seen,
    Part.POSITIONS: _where_a_cache_is(_positions),
}
