"""The child process that reads a GGUF file: `python -m headwise.models.opening.gguf_convert FILE FOLDER`.

It limits itself, checks the header with the bounded reader, and only then lets transformers read the file.
What transformers gets wrong in converting is mended here, and the written folder is loaded again and held
against what was read before the parent gets to see it.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwise.errors import HeadwiseError, ModelError, UnsupportedError
from headwise.models.opening.gguf_folder import REFUSED, time_allowed
from headwise.models.opening.gguf_header import GgufHeader, read_gguf_header
from headwise.models.short_cause import short_cause

# transformers and torch are imported inside functions, after the header has been found sound: they take two
# seconds and a gigabyte of address space.
if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# From sys/prctl.h.
_PR_SET_PDEATHSIG = 1
_HEADER_SECONDS = 30
_HEADER_BYTES = 1 << 30
_WORKING_BYTES = 4 << 30


def main(arguments: list[str]) -> int:
    """Convert; return the exit status, and on a refusal tell the parent why in one line of JSON."""
    source, folder = (Path(argument) for argument in arguments)
    # Libraries print; the standard output carries the answer alone.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        _end_with_parent()
        _limit(source.stat().st_size)
        header = read_gguf_header(source)
        _convert(source, folder, header)
    except HeadwiseError as error:
        refused = error
    except Exception as error:
        # Whatever the reader trips over is the file's fault, and is told shortly.
        refused = ModelError(f"{source} cannot be converted: {short_cause(error)}")
    else:
        return 0
    json.dump({"kind": type(refused).__name__, "message": str(refused)}, answer)
    answer.close()
    return REFUSED


def _end_with_parent() -> None:
    """Have Linux end this process when its parent is killed: nobody would take what it goes on to write."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit(size: int) -> None:
    """Bound this process for reading the header, and for good in processor time."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The hard limit is a little later: at it the system kills without saying why.
    resource.setrlimit(resource.RLIMIT_CPU, (_HEADER_SECONDS, time_allowed(size) + 5))
    # The file is mapped, which counts as address space.
    _limit_memory(_HEADER_BYTES + size)


def _limit_memory(more: int) -> None:
    """Allow `more` bytes of address space beyond what is in use now, where the system can tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except OSError:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))


def _check_size(source: Path, header: GgufHeader) -> None:
    """Refuse a file that describes more than it holds, or more than this machine can hold."""
    layers = header.values.get(f"{header.architecture}.block_count", 0)
    if not isinstance(layers, int) or layers > len(header.tensors):
        raise ModelError(f"{source} says it has {layers!r} layers, and holds {len(header.tensors)} tensors")
    needed = 8 * header.num_elements
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise ModelError(
            f"{source} holds {header.num_elements} weights; converting them to float32 takes about "
            f"{needed / 1e9:.0f} GB of memory and this machine has {there / 1e9:.0f} GB; use a smaller model"
        )


def _convert(source: Path, folder: Path, header: GgufHeader) -> None:
    _check_size(source, header)
    seconds = time_allowed(source.stat().st_size)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    import torch
    import transformers

    torch.set_grad_enabled(False)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    # Weights, a float32 copy in reading, another in the model, another in writing and in reading back.
    _limit_memory(_WORKING_BYTES + 2 * source.stat().st_size + 20 * header.num_elements)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        # A folder of its own: nothing that lies beside the user's file is looked at.
        Path(place, "model.gguf").symlink_to(source)
        tokenizer = _load_tokenizer(place, source, header)
        model = _load_model(place, source)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    _prove(source, folder, model, tokenizer)


def _load_model(place: str, source: Path) -> PreTrainedModel:
    import torch
    from transformers import AutoConfig

    from headwise.models.opening.model_class import choose_model_class

    config = AutoConfig.from_pretrained(place, gguf_file="model.gguf")
    # With output_loading_info it returns two values, which its annotation does not say.
    loaded: Any = choose_model_class(config).from_pretrained(
        place,
        config=config,
        gguf_file="model.gguf",
        dtype=torch.float32,
        output_loading_info=True,
        **_plain_weights(),
    )
    model, loading = loaded
    if loading["missing_keys"]:
        missing = sorted(loading["missing_keys"])
        raise ModelError(
            f"{source} lacks {len(missing)} of the model's weights, first {missing[0]}; get a whole file"
        )
    packed = [name for name, weight in model.named_parameters() if weight.dtype != torch.float32]
    if packed:
        raise UnsupportedError(
            f"{source}: transformers keeps {packed[0]} packed; open the model as a folder of safetensors"
        )
    return model


def _plain_weights() -> dict[str, Any]:
    """Ask for plain weights, where the installed transformers could also keep them packed."""
    try:
        from transformers.utils.quantization_config import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def _load_tokenizer(place: str, source: Path, header: GgufHeader) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    from headwise.models.opening.gguf_tokenizer import byte_level_tokenizer

    if header.values.get("tokenizer.ggml.model") == "gpt2":
        return byte_level_tokenizer(source, header)
    return AutoTokenizer.from_pretrained(place, gguf_file="model.gguf", trust_remote_code=False)


def _prove(source: Path, folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Open the folder as the parent will, and hold tokens and outputs against what was read from the file."""
    import torch

    from headwise.models.opening.model_folder import load_folder

    again, reloaded = load_folder(folder)
    text = "In 2023,  34 cafés\n\tsold “naïve” 猫🙂 to x_1=[7];"
    tokens = tokenizer(text)["input_ids"]
    if reloaded is None or reloaded(text)["input_ids"] != tokens:
        raise ModelError(
            f"{source}: the converted tokenizer gives other tokens than the one read from the file"
        )
    ids = torch.tensor([tokens])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})}
    if not torch.equal(model(**inputs)[0], again(**inputs)[0]):
        raise ModelError(f"{source}: the converted model gives other outputs than the one read from the file")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
