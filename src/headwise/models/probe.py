"""The proof on a small input: a model under headwise's attention gives what it gives under `eager`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headwise.errors import ArgumentError, MismatchError, UnsupportedError

Inputs = dict[str, Any]

TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-4, torch.float16: 0.02, torch.bfloat16: 0.1}
"""Allowed difference, by the dtype of the output, in units of its largest entry or 1, whichever is more.

In float64 too it is eager that sets it: most families take their softmax in float32 whatever the dtype.
"""

TEXT_LENGTH, DECODER_LENGTH, ROWS = 13, 7, 3
LEFT_PADDING, RIGHT_PADDING = 3, 2
AUDIO_SAMPLES = 4000

FAILURES = (ValueError, TypeError, RuntimeError, IndexError, KeyError, AttributeError)
"""What models raise when their inputs do not fit."""


def probes(model: PreTrainedModel) -> Iterator[Inputs]:
    """Yield inputs that such a model may take, the most telling first: small, and padded on either side.

    Eager attention in float64 gives NaN for a row that sees no key, so there is one without left padding too.
    """
    main, accepted = model.main_input_name, inspect.signature(model.forward).parameters
    if main == "input_ids":
        for left in (LEFT_PADDING, 0):
            text = _text(model, accepted, left)
            yield text
            if "pixel_values" in accepted:
                yield {**text, **_image(model.config)}
    elif main == "pixel_values":
        yield _image(model.config)
    elif main == "input_features":
        for left in (LEFT_PADDING, 0):
            yield {**_spectrogram(model.config), **_decoder_text(model, accepted, left)}
    elif main == "input_values":
        yield {"input_values": _noise(ROWS, AUDIO_SAMPLES)}


def reference_outputs(
    model: PreTrainedModel, given: Mapping[str, Any] | None
) -> tuple[Inputs, dict[str, Tensor]]:
    """Return the probe and what the model makes of it, as its attention is set now.

    Args:
        model: the model, in eval mode.
        given: the user's own probe, or None to build one.

    Raises:
        ArgumentError: the user's probe does not run.
        UnsupportedError: no probe that was built runs, or the result is not finite.

    """
    if given is not None:
        outputs = run_given(model, given, "probe")
        _refuse_non_finite(model, outputs)
        return dict(given), outputs
    failure: Exception | None = None
    for inputs in probes(model):
        try:
            outputs = run(model, inputs)
            _refuse_non_finite(model, outputs)
        except (*FAILURES, UnsupportedError) as error:
            failure = failure or error
        else:
            return inputs, outputs
    reason = failure if failure is not None else f"its main input is {model.main_input_name!r}"
    raise UnsupportedError(
        f"no probe could be built for {type(model).__name__} ({reason}); pass probe={{...}}, a small "
        "batch of "
        "its own inputs"
    ) from failure


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


def run(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
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
    named = outputs.items() if isinstance(outputs, Mapping) else enumerate(_as_tuple(outputs))
    return {
        str(name): found.detach()
        for name, found in named
        if isinstance(found, Tensor) and found.is_floating_point()
    }


def largest_difference(
    family: str, inputs: Mapping[str, Any], reference: Mapping[str, Tensor], attached: Mapping[str, Tensor]
) -> float:
    """Return the largest difference of any output entry that does not belong to a padding token.

    Raises:
        MismatchError: it is more than `TOLERANCES` allow.

    """
    largest = 0.0
    for name, expected in reference.items():
        found = attached[name]
        real = _real_rows(inputs, name, expected)
        difference = (found.double() - expected.double()).abs()[real]
        worst = float(difference.max()) if difference.numel() else 0.0
        allowed = TOLERANCES.get(expected.dtype, 1e-4) * max(1.0, float(expected[real].abs().max()))
        if not worst <= allowed:
            raise MismatchError(
                f"{family} gives other numbers under headwise's attention than under eager: {name} differs "
                f"by {worst:.3g}, allowed is {allowed:.3g}; its heads would be shown wrongly, so it "
                "is refused"
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


def _refuse_non_finite(model: PreTrainedModel, outputs: Mapping[str, Tensor]) -> None:
    if not outputs or not all(bool(tensor.isfinite().all()) for tensor in outputs.values()):
        what = "NaN or inf" if outputs else "no float tensor"
        raise UnsupportedError(
            f"{type(model).__name__} gives {what} for the probe under eager attention, so nothing can "
            "be proven"
        )


def _real_rows(inputs: Mapping[str, Any], name: str, output: Tensor) -> Tensor:
    """Return which entries of an output `[batch, seq_len, ...]` belong to no padding token."""
    of_encoder = name.startswith("encoder")
    for mask_name in ("attention_mask",) if of_encoder else ("decoder_attention_mask", "attention_mask"):
        mask = inputs.get(mask_name)
        if isinstance(mask, Tensor) and mask.dim() == 2 and output.shape[:2] == mask.shape:
            return mask.bool().to(output.device)
    return torch.ones(output.shape[:2], dtype=torch.bool, device=output.device)


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _text(model: PreTrainedModel, accepted: Mapping[str, Any], left: int) -> Inputs:
    ids = _ids(model.config, TEXT_LENGTH)
    inputs: Inputs = {"input_ids": ids}
    if "attention_mask" in accepted:
        mask = _padding(ids, left)
        inputs |= {"input_ids": ids.masked_fill(mask == 0, _pad_token(model.config)), "attention_mask": mask}
    return {**inputs, **_decoder_text(model, accepted, left)}


def _decoder_text(model: PreTrainedModel, accepted: Mapping[str, Any], left: int) -> Inputs:
    if not model.config.is_encoder_decoder:
        return {}
    ids = _ids(model.config, DECODER_LENGTH)
    inputs: Inputs = {"decoder_input_ids": ids}
    if "decoder_attention_mask" in accepted:
        inputs["decoder_attention_mask"] = _padding(ids, left)
    return inputs


def _padding(ids: Tensor, left: int) -> Tensor:
    """Return a mask whose first row is full, the second padded on the left, the third on the right."""
    mask = torch.ones_like(ids)
    mask[1, : min(left, ids.shape[1] - 1)] = 0
    mask[2, ids.shape[1] - min(RIGHT_PADDING, ids.shape[1] - 1) :] = 0
    return mask


def _ids(config: PreTrainedConfig, length: int) -> Tensor:
    text = config.get_text_config()
    longest = getattr(text, "max_position_embeddings", None) or length
    special = _special_tokens(config)
    plain = torch.tensor([token for token in range(min(text.vocab_size, 1000)) if token not in special])
    count = ROWS * min(length, longest)
    # A stride that is prime to most vocabulary sizes: neighbours differ, and rows differ from each other.
    return plain[(torch.arange(count) * 37 + 11) % len(plain)].reshape(ROWS, -1)


def _special_tokens(config: PreTrainedConfig) -> set[int]:
    found: set[int] = set()
    for name, given in config.to_dict().items():
        if name.endswith(("_token_id", "_token_index")):
            found |= {
                token for token in (given if isinstance(given, list) else [given]) if isinstance(token, int)
            }
    return found


def _pad_token(config: PreTrainedConfig) -> int:
    given = getattr(config, "pad_token_id", None)
    return given if isinstance(given, int) and 0 <= given < config.get_text_config().vocab_size else 0


def _image(config: PreTrainedConfig) -> Inputs:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 64
    height, width = (size, size) if isinstance(size, int) else tuple(size)[:2]
    return {"pixel_values": _noise(ROWS, getattr(vision, "num_channels", 3), height, width)}


def _spectrogram(config: PreTrainedConfig) -> Inputs:
    frames = 2 * getattr(config, "max_source_positions", 50)
    return {"input_features": _noise(ROWS, getattr(config, "num_mel_bins", 80), frames)}


def _noise(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(math.prod(shape), generator=generator).reshape(shape)
