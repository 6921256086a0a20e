"""Fetching a model of the Hugging Face hub into that library's own cache, as plain files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import huggingface_hub

from headwise.errors import ModelError
from headwise.models.opening.cache_folder import Notify
from headwise.models.opening.model_folder import INDEX, WEIGHTS
from headwise.models.opening.source import PICKLE_SUFFIXES
from headwise.models.quiet import quiet_libraries
from headwise.models.short_cause import short_cause

_ANSWER_SECONDS = 8
_DESCRIBING = {".jinja", ".json", ".model", ".txt"}


def hub_folder(repository: str, *, offline: bool, notify: Notify) -> Path:
    """Return a folder with the config, tokenizer and `.safetensors` of a hub model.

    Args:
        repository: the hub id, `org/name`.
        offline: take what an earlier download left, and ask nobody.
        notify: told before a download.

    Raises:
        ModelError: the hub does not answer, has no such model, or has only pickles of it.

    """
    with quiet_libraries():
        if not offline:
            names, commit = _list_files(repository)
            return _download(repository, names, commit, notify)
        try:
            return Path(huggingface_hub.snapshot_download(repository, local_files_only=True))
        except Exception as error:
            raise ModelError(
                f"{repository} was not downloaded before, and downloading is switched off (offline)"
            ) from error


def _list_files(repository: str) -> tuple[list[str], str | None]:
    """Ask the hub once, without the retries of a download, so that a missing network shows at once."""
    try:
        found = huggingface_hub.HfApi().model_info(repository, timeout=_ANSWER_SECONDS)
    except Exception as error:
        raise ModelError(
            f"{repository} is no file, folder or catalogue name here, and the hub gave no model of that id "
            f"({short_cause(error)}); check the spelling and the network; in Python, "
            "open_model(..., offline=True) takes an earlier download"
        ) from error
    return [file.rfilename for file in found.siblings or []], found.sha


def _download(repository: str, names: list[str], commit: str | None, notify: Notify) -> Path:
    wanted = wanted_files(repository, names)
    notify(f"fetching {repository} from the hub (kept for the next time)")
    try:
        return Path(huggingface_hub.snapshot_download(repository, revision=commit, allow_patterns=wanted))
    except Exception as error:
        raise ModelError(f"{repository} could not be downloaded: {short_cause(error)}; try again") from error


def wanted_files(repository: str, names: list[str]) -> list[str]:
    """Choose from a repository's files the ones that make a model folder, never a pickle.

    Raises:
        ModelError: the repository has no `.safetensors`.

    """
    top = [name for name in names if len(PurePosixPath(name).parts) == 1]
    weights = [name for name in top if name.endswith(".safetensors")]
    if not weights:
        kinds = {PurePosixPath(name).suffix for name in names}
        had = "only pickle checkpoints" if kinds & PICKLE_SUFFIXES else "no .safetensors"
        if ".gguf" in kinds:
            had = "GGUF files; download one and pass its path"
        raise ModelError(f"{repository} holds {had}; headwise opens models with .safetensors")
    if WEIGHTS in weights:
        weights = [WEIGHTS]
    elif INDEX in names:
        weights = [name for name in weights if name.startswith("model-")]
    return weights + [name for name in top if PurePosixPath(name).suffix in _DESCRIBING]
