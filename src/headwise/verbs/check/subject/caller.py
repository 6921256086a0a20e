"""One protected call of the subject: its mode, its dtype, its random state, its warnings and its errors."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.arrays import as_arrays
from headwise.verbs.check.subject.handing import Parameters, arguments_of
from headwise.verbs.check.subject.raised import raised_by, told
from headwise.verbs.check.subject.random_state import RandomState
from headwise.verbs.check.subject.way import Asked, Kept


@dataclass(frozen=True)
class Returned:
    """What a call returned, the inputs it wrote into, its warnings, and what it was asked, in words."""

    value: Any
    changed: tuple[str, ...]
    warnings: tuple[str, ...]
    told: str
    cache: Any


@dataclass(eq=False)
class Caller:
    """A callable and how to call it.

    - target: what is called; a module, a function, or an object that can be called
    - defined_at: the file and the line where it is written, None where that is not known
    """

    name: str
    target: Callable[..., Any]
    parameters: Parameters
    defined_at: tuple[str, int] | None
    _random: RandomState = field(default_factory=lambda: RandomState(seed=0))
    _in_dtype: dict[torch.dtype, nn.Module] = field(default_factory=dict)

    def call(self, asked: Asked) -> Returned:
        """Ask once; what is handed over are copies.

        Raises:
            SubjectError: it raised.

        """
        originals = _originals(asked)
        copies = {id(one): _copied(one) for one in originals.values()}
        handed = _with_copies(asked, copies)
        args, kwargs = arguments_of(self.parameters, handed)
        words = told(args, kwargs)
        if asked.way.as_arrays:
            args, kwargs = as_arrays(args), as_arrays(kwargs)
        called = self._in(asked.inputs.query.dtype)
        try:
            with (
                torch.no_grad(),
                self._random(),
                in_mode(called, training=asked.inputs.training),
                warnings.catch_warnings(record=True) as warned,
            ):
                warnings.simplefilter("always")
                value = called(*args, **kwargs)
        except (Exception, SystemExit) as error:  # code that ends the program ends no check
            raise raised_by(
                error, name=self.name, defined_at=self.defined_at, args=args, kwargs=kwargs
            ) from error
        changed = tuple(name for name, one in originals.items() if not _same_numbers(one, copies[id(one)]))
        cache = handed.inputs.options.get(Role.CACHE)
        return Returned(
            value,
            changed,
            tuple(
                f"{each.category.__name__}: {each.message} ({each.filename}:{each.lineno})" for each in warned
            ),
            words,
            cache.value if isinstance(cache, Kept) else cache,
        )

    def _in(self, dtype: torch.dtype) -> Callable[..., Any]:
        """Return the target with parameters of a dtype: a copy of a module that has another one."""
        target = self.target
        if not isinstance(target, nn.Module):
            return target
        own = next((each.dtype for each in target.parameters() if each.is_floating_point()), dtype)
        if own == dtype:
            return target
        if dtype not in self._in_dtype:
            try:
                self._in_dtype[dtype] = copy.deepcopy(target).to(dtype)
            except (Exception, SystemExit) as error:
                raise raised_by(
                    error, name=f"copying {self.name} to {dtype}", defined_at=None, args=[], kwargs={}
                ) from error
        return self._in_dtype[dtype]


@contextmanager
def in_mode(target: Any, *, training: bool) -> Iterator[None]:
    """Put a module and all it holds into training or evaluation mode, and back."""
    before = {each: each.training for each in target.modules()} if isinstance(target, nn.Module) else {}
    for each in before:
        each.training = training
    try:
        yield
    finally:
        for each, was in before.items():
            each.training = was


def _originals(asked: Asked) -> dict[str, Any]:
    """Return the tensors and the cache that are handed over, by role."""
    inputs = {role.value: tensor for role, tensor in asked.tensors.items()}
    options = {
        role.value: value.value if isinstance(value, Kept) else value
        for role, value in asked.inputs.options.items()
        if isinstance(value, Tensor | Kept)
    }
    return {**inputs, **options}


def _copied(given: Any) -> Any:
    if isinstance(given, Tensor):
        return given.contiguous().clone()
    try:
        return copy.deepcopy(given)
    except Exception:
        # A cache that refuses to be copied is handed over itself.
        return given


def _with_copies(asked: Asked, copies: Mapping[int, Any]) -> Asked:
    options = {
        role: Kept(copies[id(value.value)], value.tokens)
        if isinstance(value, Kept)
        else copies.get(id(value), value)
        for role, value in asked.inputs.options.items()
    }
    tensors = {role: copies[id(tensor)] for role, tensor in asked.tensors.items()}
    return asked.with_copies(tensors, options)


def _same_numbers(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor):
        return True
    return torch.equal(one, other) or torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))
