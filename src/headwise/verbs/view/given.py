"""What a model is given: a text, an image, and for the decoder of an encoder-decoder a text of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.given_text import check_text
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.quiet import quiet_libraries
from headwise.models.short_cause import short_cause
from headwise.models.tokens import Token, max_positions, read_text, readable_tokens
from headwise.verbs.terminal import several
from headwise.verbs.view.image import Grid, patch_grid, read_image
from headwise.verbs.view.result import Part

GENERATED_TOKENS = 32
"""As many tokens an encoder-decoder writes where no text is given for its decoder."""
USUAL_GRID = (14, 14)
"""What an image is taken to become where the model names no patches, to judge what can be kept of it."""
WRITING_PARTS: tuple[Part, ...] = ("decoder", "cross")
"""The parts of an encoder-decoder in which the tokens of the decoder look."""


@dataclass(frozen=True)
class Given:
    """What a model is given and what it says of itself.

    - inputs: keywords of the model's forward, a batch of one
    - text: what is read, or where an image is, the name of its file
    - tokens: of the text; None for an image, whose places are known after the model has run
    - grid: rows and columns of an image's patches, where the model names them
    - decoder_tokens: what the decoder of an encoder-decoder is given, else None
    """

    inputs: dict[str, Tensor]
    text: str
    tokens: tuple[Token, ...] | None
    grid: Grid | None = None
    decoder_tokens: tuple[Token, ...] | None = None

    @property
    def size(self) -> str:
        """How much it is, for a line of progress."""
        return "an image" if self.tokens is None else several(len(self.tokens), "token")

    @property
    def probe(self) -> dict[str, Tensor] | None:
        """What to prove the recording on: an image and a text for it; None for what attach makes itself."""
        return self.inputs if self.tokens is None and self.decoder_tokens is not None else None

    def lengths(self, part: Part | None) -> tuple[int, int]:
        """Return how many places look and how many are looked at; of an image about how many."""
        rows, columns = self.grid or USUAL_GRID
        read = rows * columns if self.tokens is None else len(self.tokens)
        written = len(self.decoder_tokens or ())
        asking = written if part in WRITING_PARTS else read
        return asking, written if part == "decoder" else read

    def check_rows(self, rows: Sequence[int], part: Part | None) -> None:
        """Refuse rows that do not exist, as far as it is known before the model has run.

        Raises:
            ArgumentError: one does not exist, or is there twice.

        """
        # An image's places are known only afterwards.
        if self.tokens is not None or part in WRITING_PARTS:
            Collect(rows=rows).rows_of(self.lengths(part)[0])


def tower_for(opened: OpenedModel, *, image: bool) -> OpenedModel:
    """Return the tower that reads an image, or the one that reads text, of a model with one for each.

    Any other model is returned as it is.
    """
    vision, text = (getattr(opened.model, name, None) for name in ("vision_model", "text_model"))
    if not isinstance(vision, PreTrainedModel) or not isinstance(text, PreTrainedModel):
        return opened
    return replace(opened, model=vision if image else text)


def read_given(
    opened: OpenedModel,
    *,
    text: str | None,
    image: Path | None,
    decoder_text: str | None,
    notify: Callable[[str], None],
) -> Given:
    """Turn what the user gave into the model's inputs.

    Raises:
        ArgumentError: something the model needs is missing, cannot be read by it, or is too long.
        ModelError: the tokenizer or image processor failed, or does not belong to the model.
        UnsupportedError: the model reads neither text nor images.

    """
    _check_fits(opened, text=text, image=image, decoder_text=decoder_text)
    if image is not None:
        pixels = read_image(opened, image)
        given = Given({"pixel_values": pixels}, str(image), None, patch_grid(opened.model, pixels))
    else:
        ids, tokens = read_text(opened, text or "")
        batch = torch.tensor([list(ids)])
        given = Given({"input_ids": batch, "attention_mask": torch.ones_like(batch)}, text or "", tokens)
    if not opened.model.config.is_encoder_decoder:
        return given
    return _with_decoder_text(opened, given, decoder_text, notify)


def _check_fits(
    opened: OpenedModel, *, text: str | None, image: Path | None, decoder_text: str | None
) -> None:
    name, main = opened.name, opened.model.main_input_name
    if main not in {"input_ids", "pixel_values"}:
        raise UnsupportedError(
            f"{name} reads {main}, and view shows models that read text or an image; use attach() to record "
            "it from Python"
        )
    if main == "pixel_values":
        if text is not None:
            raise ArgumentError(
                f"{name} reads an image, not a text; give one with --image FILE in place of the text"
            )
        if image is None:
            raise ArgumentError(f"{name} reads an image and none was given; give one with --image FILE")
    else:
        if image is not None:
            raise ArgumentError(f"image={image} was given, and {name} reads text; leave the image out")
        if text is None:
            raise ArgumentError(f"{name} reads text and none was given; give one")
    if decoder_text is not None and not opened.model.config.is_encoder_decoder:
        raise ArgumentError(
            f"a text for the decoder was given, and {name} is no encoder-decoder; leave it out"
        )


def _with_decoder_text(
    opened: OpenedModel, given: Given, text: str | None, notify: Callable[[str], None]
) -> Given:
    tokenizer = opened.tokenizer
    if tokenizer is None:
        raise UnsupportedError(
            f"{opened.name} has no tokenizer, so that what its decoder reads has no names; copy its "
            "tokenizer.json to where the model lies"
        )
    if text is None:
        notify(f"{opened.name} writes up to {several(GENERATED_TOKENS, 'token')}")
        ids = _written(opened, given)
    else:
        ids = [_start(opened), *_target_ids(opened, tokenizer, text)]
    limit = max_positions(opened)
    if limit is not None and len(ids) > limit:
        raise ArgumentError(
            f"the text for the decoder has {len(ids)} tokens and {opened.name} has positions for {limit}; "
            "use a shorter one"
        )
    return replace(
        given,
        inputs={**given.inputs, "decoder_input_ids": torch.tensor([ids])},
        decoder_tokens=readable_tokens(tokenizer, ids),
    )


def _written(opened: OpenedModel, given: Given) -> list[int]:
    """Return what the model writes greedily, from its start token to before the end of the text.

    Raises:
        ModelError: it cannot.

    """
    limit = max_positions(opened) or GENERATED_TOKENS + 1
    try:
        with quiet_libraries(), torch.inference_mode():
            # generate has no types for what it may return; without return_dict it is a tensor.
            written: Tensor = opened.model.generate(  # type: ignore[operator]
                **given.inputs,
                max_new_tokens=min(GENERATED_TOKENS, limit - 1),
                do_sample=False,
                num_beams=1,
                return_dict_in_generate=False,
            )
    except Exception as error:
        raise ModelError(
            f"{opened.name} could not write a text of its own ({short_cause(error)}); give its decoder a text"
        ) from error
    ids: list[int] = written[0].tolist()
    return _without_end(ids, opened.model.generation_config.eos_token_id)


def _without_end(ids: list[int], ends: int | Sequence[int] | None) -> list[int]:
    """Leave out the end of a text, which a model writes and does not read."""
    numbers = {ends} if isinstance(ends, int) else set(ends or ())
    # Some families start with their end token.
    return ids[:-1] if len(ids) > 1 and ids[-1] in numbers else ids


def _start(opened: OpenedModel) -> int:
    config, generation = opened.model.config, opened.model.generation_config
    candidates = (
        getattr(generation, "decoder_start_token_id", None),
        getattr(config, "decoder_start_token_id", None),
        getattr(generation, "bos_token_id", None),
    )
    found = next((number for number in candidates if isinstance(number, int)), None)
    if found is None:
        raise ModelError(
            f"{opened.name} does not say what its decoder starts with: its config has no "
            "decoder_start_token_id; add it there"
        )
    return found


def _target_ids(opened: OpenedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of a text that the model is to write, as in training: without the end."""
    try:
        check_text(text)
    except ArgumentError as error:
        raise ArgumentError(f"for the decoder: {error}") from error
    try:
        with quiet_libraries():
            # As a target: some families spell what they write otherwise than what they read.
            encoded = tokenizer(text_target=text, padding=False, truncation=False, verbose=False)
    except Exception as error:
        raise ModelError(f"the tokenizer failed on the text for the decoder: {short_cause(error)}") from error
    ids = _without_end(encoded["input_ids"], tokenizer.eos_token_id)
    vocabulary = opened.model.config.get_text_config(decoder=True).vocab_size
    if not ids or max(ids) >= vocabulary:
        raise ModelError(
            f"the tokenizer of {opened.name} makes token {max(ids, default='none')} of the text for the "
            f"decoder, and the model knows {vocabulary} tokens; take tokenizer and weights from the same "
            "place"
        )
    return ids
