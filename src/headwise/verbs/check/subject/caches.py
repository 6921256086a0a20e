"""Caches that a caller has to bring, those of headwise and of transformers: a call fills what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import nn

from headwise.cache import KVCache
from headwise.nn import MultiHeadAttention
from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.way import Asked, Kept


def started(asked: Asked, target: Any) -> Asked:
    """Return the call with an empty cache where a probe asks for one that the subject has to be given."""
    options = asked.inputs.options
    make = _maker(target)
    if Role.CACHE not in options or options[Role.CACHE] is not None or make is None:
        return asked
    started_options = {**options, Role.CACHE: Kept(make(), 0)}
    return replace(asked, inputs=replace(asked.inputs, options=started_options))


def _maker(target: Any) -> Callable[[], Any] | None:
    if isinstance(target, MultiHeadAttention):
        return KVCache
    if isinstance(target, nn.Module) and type(target).__module__.startswith("transformers."):
        from transformers import DynamicCache  # noqa: PLC0415 - only where one of its modules is examined

        return DynamicCache
    return None
