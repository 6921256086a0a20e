"""What a model is given to run on: a text, random tokens, or noise."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headwise.errors import ArgumentError
from headwise.models.attachment.probe_inputs import probes
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.tokens import max_positions, read_text

SAMPLE_TEXT = "The bank raised rates because inflation was rising"
RANDOM_TOKENS = 23


@dataclass(frozen=True)
class Given:
    """Keywords of the model's forward, and the text they stand for, None where they stand for none."""

    inputs: Mapping[str, Any]
    text: str | None

    @property
    def num_tokens(self) -> int:
        """How many tokens it is; 0 of an image or a sound."""
        ids = self.inputs.get("input_ids")
        return 0 if ids is None else int(ids.shape[1])


def candidates(opened: OpenedModel, *, text: str | None, seed: int) -> Iterator[Given]:
    """Yield what the model may run on, the likeliest first.

    Raises:
        ArgumentError: a text was given that the model cannot read.

    """
    model = opened.model
    if text is not None and (opened.tokenizer is None or model.main_input_name != "input_ids"):
        why = (
            "is a model in memory that comes without a tokenizer: give what open_model returns"
            if model.main_input_name == "input_ids"
            else f"reads {model.main_input_name} and no text: leave the text out"
        )
        raise ArgumentError(f"text={text[:40]!r} was given, and {opened.name} {why}")
    accepted = inspect.signature(model.forward).parameters
    if model.main_input_name == "input_ids" and hasattr(model.config.get_text_config(), "vocab_size"):
        read, ids = _ids(opened, text, seed)
        inputs: dict[str, Any] = {"input_ids": ids}
        if "attention_mask" in accepted:
            inputs["attention_mask"] = torch.ones_like(ids)
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = _decoder_ids(model, ids, seed)
        yield Given(inputs, read)
        for probe in probes(model, left_padding=0):
            more = {name: given[:1] for name, given in probe.items() if name not in inputs}
            if more:
                yield Given({**inputs, **more}, read)
    if text is None:
        for probe in probes(model, left_padding=0):
            yield Given(probe, None)


def _ids(opened: OpenedModel, text: str | None, seed: int) -> tuple[str | None, Tensor]:
    if opened.tokenizer is not None:
        try:
            ids, _ = read_text(opened, SAMPLE_TEXT if text is None else text)
        except ArgumentError:
            if text is not None:
                raise
            # A vocabulary may have no word of the sample, and a model too few positions for it.
        else:
            return text or SAMPLE_TEXT, torch.tensor([list(ids)])
    limit = max_positions(opened) or RANDOM_TOKENS
    vocabulary = opened.model.config.get_text_config().vocab_size
    return None, _random(vocabulary, min(limit, RANDOM_TOKENS), seed)


def _decoder_ids(model: PreTrainedModel, ids: Tensor, seed: int) -> Tensor:
    """Return the text once more behind the token that a decoder starts with, or random tokens behind it."""
    vocabulary = model.config.get_text_config(decoder=True).vocab_size
    start = getattr(model.config, "decoder_start_token_id", None)
    first = torch.tensor([[start if isinstance(start, int) else 0]])
    rest = ids[:, :-1] if int(ids.max()) < vocabulary else _random(vocabulary, ids.shape[1] - 1, seed)
    # One fewer than the encoder reads, so that a mask turned round would not fit.
    return torch.cat([first, rest[:, : max(1, rest.shape[1] - 1)]], dim=1)


def _random(vocabulary: int, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (1, count), generator=generator)
