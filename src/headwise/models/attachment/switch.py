"""Switching a model's attention implementation, its parts included, and putting everything back."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedConfig, PreTrainedModel

from headwise.errors import UnsupportedError


class Implementations:
    """The attention implementation of each config of a model, as it was found."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._found = [(config, config._attn_implementation) for config in _configs(model)]

    def found(self) -> set[str | None]:
        """Return the names that the configs had."""
        return {name for _, name in self._found}

    def now(self) -> set[str | None]:
        """Return the names that the configs have."""
        return {config._attn_implementation for config, _ in self._found}

    def restore(self) -> None:
        """Give each config back the implementation it had."""
        for config, name in self._found:
            # Past the property: its setter would write the name into the sub-configs as well.
            config._attn_implementation_internal = name


def switch(model: PreTrainedModel, name: str) -> None:
    """Make the model and its parts use the attention implementation `name`.

    Raises:
        UnsupportedError: transformers cannot switch the model or one of its parts.

    """
    try:
        with _quiet():
            model.set_attn_implementation(name)
    except (ValueError, KeyError, ImportError) as error:
        raise UnsupportedError(
            f"{type(model).__name__} cannot be switched to {name} attention: {error}"
        ) from error
    for part in (part for part in model.modules() if isinstance(part, PreTrainedModel)):
        if part.config._attn_implementation != name:
            raise UnsupportedError(
                f"{type(part).__name__} {_why_not(type(part))}; its attention stays "
                f"{part.config._attn_implementation}, and its heads cannot be recorded"
            )


def _why_not(kind: type[PreTrainedModel]) -> str:
    """Return why transformers would not switch a class, in whose source it looks for the interface."""
    try:
        inspect.getsource(sys.modules[kind.__module__])
    except (OSError, TypeError, KeyError):
        return (
            "is defined where its source cannot be read, as in a notebook or at a prompt, so transformers "
            "does not switch its attention (put the class into a file)"
        )
    return "does not go through transformers' attention interface"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' warning that a switch had no effect; `switch` checks it and says so."""
    logger = logging.getLogger("transformers.modeling_utils")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _configs(model: PreTrainedModel) -> list[PreTrainedConfig]:
    """Return every config object of the model and its parts, each once."""
    waiting = [part.config for part in model.modules() if isinstance(part, PreTrainedModel)]
    found: dict[int, PreTrainedConfig] = {}
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            waiting += [sub for key in config.sub_configs if (sub := getattr(config, key, None)) is not None]
    return list(found.values())
