"""Small inputs for a model that is known only by its config and the signature of its forward."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

Inputs = dict[str, Any]

TEXT_LENGTH, DECODER_LENGTH, ROWS = 13, 7, 3
LEFT_PADDING, RIGHT_PADDING = 3, 2
AUDIO_SAMPLES = 4000


def probes(model: PreTrainedModel, *, left_padding: int = LEFT_PADDING) -> Iterator[Inputs]:
    """Yield inputs that such a model may take, the likeliest first: three rows, one padded on the right.

    Args:
        model: the model to make inputs for.
        left_padding: by how many tokens another row is padded on the left.

    """
    main, accepted = model.main_input_name, inspect.signature(model.forward).parameters
    if main == "input_ids" and hasattr(model.config.get_text_config(), "vocab_size"):
        text = _text(model, accepted, left_padding)
        yield text
        if "pixel_values" in accepted:
            yield {**text, **_image(model.config)}
    elif main == "pixel_values":
        yield _image(model.config)
    elif main == "input_features":
        yield {**_spectrogram(model.config), **_decoder_text(model, accepted, left_padding)}
    elif main == "input_values":
        yield {"input_values": _noise(ROWS, AUDIO_SAMPLES)}


def _text(model: PreTrainedModel, accepted: Mapping[str, Any], left_padding: int) -> Inputs:
    ids = _ids(model.config, TEXT_LENGTH)
    inputs: Inputs = {"input_ids": ids}
    if "attention_mask" in accepted:
        mask = _padding(ids, left_padding)
        inputs |= {"input_ids": ids.masked_fill(mask == 0, _pad_token(model.config)), "attention_mask": mask}
    return {**inputs, **_decoder_text(model, accepted, left_padding)}


def _decoder_text(model: PreTrainedModel, accepted: Mapping[str, Any], left_padding: int) -> Inputs:
    if not model.config.is_encoder_decoder:
        return {}
    ids = _ids(model.config, DECODER_LENGTH)
    inputs: Inputs = {"decoder_input_ids": ids}
    if "decoder_attention_mask" in accepted:
        inputs["decoder_attention_mask"] = _padding(ids, left_padding)
    return inputs


def _padding(ids: Tensor, left_padding: int) -> Tensor:
    """Return a mask whose first row is full, the second padded on the left, the third on the right."""
    mask = torch.ones_like(ids)
    mask[1, : min(left_padding, ids.shape[1] - 1)] = 0
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
