"""What a module does before its first projection and behind its last one: nothing, if it can be examined."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import UnsupportedError
from headwise.verbs.check.asking import Inputs
from headwise.verbs.check.subject.projecting import ReadWeights
from headwise.verbs.check.subject.trial import Tried, trial_inputs


def check_nothing_is_around(tried: Tried, held: ReadWeights) -> None:
    """Refuse a module that norms its rows before it projects them, or adds to what it made of its heads.

    No fault of attention is like it, and it is none. The numbers count here and not their order, which a
    fault may change; and what is random cannot be compared.

    Raises:
        UnsupportedError: the query projection is given other numbers than the module, or the module returns
            others than the output projection does.

    """
    name, module = tried.asker.caller.name, tried.asker.caller.target
    inputs = trial_inputs(tried.asker, kv_len=tried.kv_len)
    # One text, so that one that is asked text by text is asked once.
    inputs = Inputs(inputs.query[:1], inputs.key[:1], inputs.value[:1])
    given: list[Tensor] = []
    made: list[Tensor] = []
    with ExitStack() as hooks:
        for path, watch in ((held.query_path, _input_into(given)), (held.output_path, _output_into(made))):
            layer = _layer(module, path)
            if layer is not None:
                hooks.callback(layer.register_forward_hook(watch).remove)
        answers = [tried.asker.ask(inputs, tried.axes).output for _ in range(2)]
    if not _same_numbers(*answers):
        return
    if given and not any(_same_numbers(given[0], rows) for rows in (inputs.query, inputs.key, inputs.value)):
        raise UnsupportedError(
            f"{name} changes its rows before {held.query_path} projects them, as a norm or added positions "
            "do; check examines attention alone: pass a module that is given the rows as they are projected"
        )
    if made and not _same_numbers(made[-1], answers[-1]):
        raise UnsupportedError(
            f"{name} changes what {held.output_path} makes of its heads, as a residual or a norm does; check "
            "examines attention alone: pass the part that ends with this projection"
        )


def _layer(module: Any, path: str | None) -> nn.Module | None:
    """Return the layer that stands at a path; None where a bare matrix does."""
    if not isinstance(module, nn.Module) or not path:
        return None
    try:
        return module.get_submodule(path)
    except AttributeError:
        return None


def _input_into(seen: list[Tensor]) -> Callable[..., None]:
    def watch(layer: nn.Module, given: tuple[Any, ...], made: Any) -> None:
        seen.extend(each for each in given[:1] if isinstance(each, Tensor))

    return watch


def _output_into(seen: list[Tensor]) -> Callable[..., None]:
    def watch(layer: nn.Module, given: tuple[Any, ...], made: Any) -> None:
        seen.extend(each for each in (made,) if isinstance(each, Tensor))

    return watch


def _same_numbers(one: Tensor, other: Tensor) -> bool:
    sorted_numbers = [torch.nan_to_num(each.flatten()).sort().values for each in (one, other)]
    return torch.equal(*sorted_numbers)
