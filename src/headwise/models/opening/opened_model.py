"""Opening a model from whatever the user named."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headwise.errors import ModelError
from headwise.models.opening.cache_folder import Notify
from headwise.models.opening.catalogue import CATALOGUE, catalogue_folder
from headwise.models.opening.gguf_folder import gguf_folder
from headwise.models.opening.hub import hub_folder
from headwise.models.opening.model_folder import load_folder
from headwise.models.opening.source import Source, SourceKind, find_source

_log = logging.getLogger("headwise")


@dataclass(frozen=True)
class OpenedModel:
    """A model with its tokenizer, and where they came from.

    Args:
        name: what the user named.
        model: in eval mode, float32, on the CPU.
        tokenizer: None only for a model that reads no text.
        folder: the folder it was read from, after any download and conversion.
        source: `catalogue`, `folder`, `gguf` or `hub`.

    """

    name: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase | None
    folder: Path
    source: SourceKind


def open_model(source: str | Path, *, offline: bool = False, notify: Notify | None = None) -> OpenedModel:
    """Open a model without ever running code that comes with it.

    A catalogue model is downloaded, or made, the first time; a GGUF file is converted the first time, in a
    child process with limits. Both are kept in the cache folder (`HEADWISE_CACHE`, else `headwise` in the
    user's cache). A decoder or encoder-decoder comes with its language model head, an encoder without.

    Args:
        source: a name of the catalogue, a folder with config.json and `.safetensors`, a `.safetensors` or
            `.gguf` file, or a hub id `org/name`.
        offline: download nothing.
        notify: called with one line before each step that takes long; by default the line is logged as a
            warning, which Python prints on the standard error.

    Returns:
        The opened model.

    Raises:
        ArgumentError: `source` is empty or of another type.
        ModelError: the model cannot be found, downloaded, read or trusted.
        UnsupportedError: the model is sound, but of a kind that cannot be opened faithfully.

    Example:
        >>> opened = open_model("minilm-l6")
        >>> opened.model.config.num_hidden_layers
        6

    """
    found = find_source(source)
    folder = _folder(found, offline=offline, notify=notify or _log.warning)
    model, tokenizer = load_folder(folder, weights=found.weights)
    if tokenizer is None and model.main_input_name == "input_ids":
        raise ModelError(
            f"{folder} has no tokenizer; copy the model's tokenizer.json and tokenizer_config.json there"
        )
    return OpenedModel(found.name, model, tokenizer, folder, found.kind)


def _folder(found: Source, *, offline: bool, notify: Notify) -> Path:
    if found.kind == "catalogue":
        return catalogue_folder(CATALOGUE[found.name], offline=offline, notify=notify)
    if found.path is None:
        return hub_folder(found.name, offline=offline, notify=notify)
    return gguf_folder(found.path, notify=notify) if found.kind == "gguf" else found.path
