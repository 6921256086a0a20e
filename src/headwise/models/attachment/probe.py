"""The proof on a small input: a model under headwise's attention gives what it gives under `eager`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwise.errors import ArgumentError, MismatchError, UnsupportedError
from headwise.models.attachment.probe_inputs import Inputs, probes

Outputs = dict[str, Tensor]

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
"""Allowed difference, by the dtype of the output, in units of its largest entry or 1, whichever is more.

In float64 too it is eager that sets it: most families take their softmax in float32 whatever the dtype.
"""

FAILURES = (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError)
"""What models raise when their inputs do not fit."""


@dataclass(frozen=True)
class Expected:
    """Inputs of a model and the outputs that it must give for them."""

    inputs: Inputs
    outputs: Outputs


def expectations(model: PreTrainedModel, given: Mapping[str, Any] | None) -> tuple[Expected, ...]:
    """Return probes, and what the model makes of them with its attention as it is set now.

    The telling probe is padded on the left as well. There a causal row may see no key: eager takes the mean
    of all keys for it (NaN in float64), we 0, so only outputs of tokens that are no padding can be compared.
    What a model pools, it may pool from such a row; that is compared on a probe without left padding.

    Args:
        model: the model, in eval mode.
        given: the user's own probe, or None to build them.

    Raises:
        ArgumentError: the user's probe does not run, or is all padding.
        UnsupportedError: no probe that was built runs and gives finite numbers.

    """
    if given is not None:
        outputs = run_given(model, given, "probe")
        _refuse_non_finite(model, outputs)
        expected = Expected(dict(given), outputs)
        if not any(output[_compared(expected, name)].numel() for name, output in outputs.items()):
            raise ArgumentError("probe holds padding only; give at least one token to compare")
        return (expected,)
    telling = _first_that_runs(model, probes(model))
    by_token = _by_token(telling) if isinstance(telling, Expected) else None
    if isinstance(telling, Expected) and by_token is telling:
        return (telling,)
    plain = _first_that_runs(model, probes(model, left_padding=0))
    found = tuple(each for each in (by_token, plain) if isinstance(each, Expected) and each.outputs)
    if found:
        return found
    reason = telling if isinstance(telling, Exception) else plain
    raise UnsupportedError(
        f"no probe could be built for {type(model).__name__} ({reason}); pass probe={{...}}, a small "
        "batch of its own inputs"
    )


def run_given(model: PreTrainedModel, inputs: Mapping[str, Any], what: str) -> dict[str, Tensor]:
    """Return what `run` returns for inputs that the user gave as the argument `what`.

    Raises:
        ArgumentError: the model does not take them.

    """
    if not isinstance(inputs, Mapping):
        raise ArgumentError(
            f"{what} is a {type(inputs).__name__}; give inputs of the model by keyword, "
            'such as tokenizer(text, return_tensors="pt")'
        )
    try:
        return run(model, inputs)
    except FAILURES as error:
        raise ArgumentError(
            f"{what} with {', '.join(sorted(inputs)) or 'nothing in it'} does not run through "
            f"{type(model).__name__}: {error}"
        ) from error


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> Outputs:
    """Return the float tensors of one forward, always from the same random state, which is put back after."""
    accepted = inspect.signature(model.forward).parameters
    placed = {
        name: given.to(model.device) if isinstance(given, Tensor) else given for name, given in inputs.items()
    }
    if "use_cache" in accepted:
        placed["use_cache"] = False
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), torch.no_grad():
        torch.manual_seed(0)
        outputs = model(**placed)
    return dict(_float_tensors("", outputs))


def largest_difference(family: str, expected: Expected, outputs: Outputs) -> float:
    """Return the largest difference of any output entry that does not belong to a padding token.

    Raises:
        MismatchError: it is more than `TOLERANCES` allow.

    """
    largest = 0.0
    for name, wanted in expected.outputs.items():
        rows = _compared(expected, name)
        if not wanted[rows].numel():
            continue
        worst = float((outputs[name].double() - wanted.double())[rows].abs().max())
        allowed = TOLERANCES[wanted.dtype] * max(1.0, float(wanted[rows].abs().max()))
        if not worst <= allowed:
            raise MismatchError(
                f"{family} gives other numbers under headwise's attention than under eager: {name} differs "
                f"by {worst:.3g}, allowed is {allowed:.3g}; its heads would be shown wrongly"
            )
        largest = max(largest, worst)
    return largest


@contextmanager
def in_eval_mode(model: PreTrainedModel) -> Iterator[None]:
    """Put every module in eval mode, and each one back into the mode it had."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


def _first_that_runs(model: PreTrainedModel, candidates: Iterable[Inputs]) -> Expected | Exception:
    failure: Exception = UnsupportedError(f"headwise cannot make its main input, {model.main_input_name}")
    for tried, inputs in enumerate(candidates):
        try:
            outputs = run(model, inputs)
            _refuse_non_finite(model, outputs)
        except (*FAILURES, UnsupportedError) as error:
            failure = failure if tried else error
        else:
            return Expected(inputs, outputs)
    return failure


def _refuse_non_finite(model: PreTrainedModel, outputs: Outputs) -> None:
    if not outputs or not all(bool(tensor.isfinite().all()) for tensor in outputs.values()):
        what = "NaN or inf (look for them in its weights)" if outputs else "no float tensor"
        raise UnsupportedError(
            f"{type(model).__name__} gives {what} for the probe under eager attention, so nothing can "
            "be proven"
        )


def _by_token(expected: Expected) -> Expected:
    """Return only the outputs whose padding can be left out; all of them where nothing is padded."""
    if not any(name.endswith("attention_mask") for name in expected.inputs):
        return expected
    kept = {
        name: output
        for name, output in expected.outputs.items()
        if _real_rows(expected.inputs, name, output) is not None
    }
    return expected if len(kept) == len(expected.outputs) else Expected(expected.inputs, kept)


def _compared(expected: Expected, name: str) -> Tensor | slice:
    """Return which rows of an output are compared: all that are no padding."""
    real = _real_rows(expected.inputs, name, expected.outputs[name])
    return slice(None) if real is None else real


def _real_rows(inputs: Inputs, name: str, output: Tensor) -> Tensor | None:
    """Return which rows of an output `[batch, seq_len, ...]` are no padding; None for any other output."""
    of_encoder = name.startswith("encoder")
    for mask_name in ("attention_mask",) if of_encoder else ("decoder_attention_mask", "attention_mask"):
        mask = inputs.get(mask_name)
        if isinstance(mask, Tensor) and mask.dim() == 2 and output.shape[:2] == mask.shape:
            return mask.bool().to(output.device)
    return None


def _float_tensors(path: str, outputs: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the float tensors of a model's output by name, those of nested outputs too."""
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point():
            yield path, outputs.detach()
    elif isinstance(outputs, (Mapping, tuple)):
        named = outputs.items() if isinstance(outputs, Mapping) else enumerate(outputs)
        for name, found in named:
            if str(name).endswith("attentions"):
                continue  # only eager gives maps unless they are collected
            yield from _float_tensors(f"{path}.{name}".lstrip("."), found)
