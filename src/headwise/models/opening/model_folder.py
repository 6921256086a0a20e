"""Opening a folder with config.json, `.safetensors` and a tokenizer.

The weights are read here and handed to transformers as tensors, mapped from the file: transformers gets no
folder to search, so it can find no pickle, adapter or checkpoint of another kind beside them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from transformers import (
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headwise.errors import HeadwiseError, ModelError
from headwise.models.opening.config_file import read_config, read_json, refuse_own_code
from headwise.models.opening.model_class import choose_model_class
from headwise.models.opening.safetensors_header import check_safetensors
from headwise.models.opening.source import PICKLE_SUFFIXES, refuse_pickle
from headwise.models.quiet import quiet_libraries
from headwise.models.short_cause import short_cause

# A pooler, or an embedding that the file holds once and the model twice, is no cause for alarm.
_SMALL = 10_000_000

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
_TOKENIZER_FILES = {
    "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json",
}  # fmt: skip


def load_folder(
    folder: Path, *, weights: Path | None = None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase | None]:
    """Open the model and the tokenizer of a folder; the model is in eval mode, in float32, on the CPU.

    Args:
        folder: a folder with config.json.
        weights: the `.safetensors` file to take, where the folder's own choice is not meant.

    Returns:
        The model, and its tokenizer; None for a model that reads no text.

    Raises:
        ModelError: something is missing, damaged, or asks for code to be run.
        UnsupportedError: transformers has no model of this kind.

    """
    _check_is_model(folder)
    files = _weight_files(folder, weights)
    for file in files:
        check_safetensors(file)
    try:
        with quiet_libraries():
            config = read_config(folder)
            return _load_model(folder, files, config), _load_tokenizer(folder, config)
    except (HeadwiseError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # The tokenizers library panics with an error that derives from BaseException.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{folder} cannot be opened: {short_cause(error)}") from error


def _check_is_model(folder: Path) -> None:
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise ModelError(f"the folder {folder} cannot be read: {error.strerror}") from error
    if not names:
        raise ModelError(f"the folder {folder} is empty; pass one with config.json and .safetensors files")
    suffixes = {Path(name).suffix.lower() for name in names}
    if ".safetensors" not in suffixes and suffixes & PICKLE_SUFFIXES:
        raise refuse_pickle(
            folder / next(name for name in names if Path(name).suffix.lower() in PICKLE_SUFFIXES)
        )
    if "config.json" not in names:
        gguf = [name for name in names if name.lower().endswith(".gguf")]
        mend = (
            f"pass the file {folder / gguf[0]}"
            if gguf
            else "pass a folder saved by transformers' save_pretrained"
        )
        raise ModelError(f"the folder {folder} has no config.json; {mend}")
    if "adapter_config.json" in names:
        raise ModelError(
            f"the folder {folder} holds an adapter (adapter_config.json), not a whole model; merge it into "
            "its base model and save that"
        )


def _weight_files(folder: Path, weights: Path | None) -> list[Path]:
    """Return the files that hold the weights, all of them inside the folder."""
    there = sorted(folder.glob("*.safetensors"))
    if not there:
        raise ModelError(f"the folder {folder} has no weights: no .safetensors file lies in it")
    indexed = _indexed_files(folder) if (folder / INDEX).is_file() else []
    if weights is not None and weights.name not in {file.name for file in indexed}:
        return [weights]
    if weights is None and (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if indexed:
        return indexed
    if len(there) > 1:
        raise ModelError(
            f"the folder {folder} has {len(there)} .safetensors files and neither {WEIGHTS} nor {INDEX}; "
            f"pass the one that is meant, such as {there[0]}"
        )
    return there


def _indexed_files(folder: Path) -> list[Path]:
    path = folder / INDEX
    places = read_json(path).get("weight_map")
    names = (
        set(places.values()) if isinstance(places, dict) and all(map(_is_text, places.values())) else set()
    )
    if not names:
        raise ModelError(f"{path} has no weight_map from tensor names to files")
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelError(
                f"{path} points to {name[:200]!r}; it may only point to .safetensors files beside it"
            )
        if not (folder / name).is_file():
            raise ModelError(f"{path} points to {name}, which is not there; get it again")
    return [folder / name for name in sorted(names)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _load_model(folder: Path, files: list[Path], config: PreTrainedConfig) -> PreTrainedModel:
    state: dict[str, torch.Tensor] = {}
    for file in files:
        state |= safetensors.torch.load_file(file)
    model_class = choose_model_class(config)
    _check_size(folder, model_class, config, sum(weight.numel() for weight in state.values()))
    # With output_loading_info it returns two values, which its annotation does not say.
    loaded: Any = model_class.from_pretrained(
        None, config=config, state_dict=state, dtype=torch.float32, output_loading_info=True
    )
    model: PreTrainedModel
    model, loading = loaded
    learned = {name for name, _ in model.named_parameters()}
    # A pooler reads the last layer's output, after all attention; checkpoints often come without one.
    missing = sorted(name for name in set(loading["missing_keys"]) & learned if "pooler" not in name)
    if missing:
        raise ModelError(
            f"the weights of {folder} do not fit its config: {len(missing)} of {len(learned)} are not there, "
            f"the first is {missing[0]}; take weights and config from the same place"
        )
    model.config.name_or_path = str(folder)
    if model.can_generate() and (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_dict(read_json(folder / "generation_config.json"))
    return model.eval()


def _check_size(
    folder: Path, model_class: type[PreTrainedModel], config: PreTrainedConfig, held: int
) -> None:
    """Refuse a config of far more weights than there are, before memory is taken for the missing ones."""
    try:
        with torch.device("meta"):
            described = sum(weight.numel() for weight in model_class(config).parameters())
    except Exception:
        # A few models cannot be built without memory this way; from_pretrained, which can, is left to judge.
        return
    if described > 2 * held + _SMALL:
        raise ModelError(
            f"the config of {folder} describes {described} weights and the .safetensors hold {held}; "
            "take weights and config from the same place"
        )


def _load_tokenizer(folder: Path, config: PreTrainedConfig) -> PreTrainedTokenizerBase | None:
    if not any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return None
    described = folder / "tokenizer_config.json"
    if described.is_file():
        refuse_own_code(described, read_json(described))
    return AutoTokenizer.from_pretrained(
        folder, config=config, local_files_only=True, trust_remote_code=False
    )
