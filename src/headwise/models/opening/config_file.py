"""Reading `config.json` so that it describes a model and can choose no code.

A config may name attention, expert and kernel implementations, some of which are fetched from a hub and run
(CVE-2026-4372 did so past trust_remote_code=False). Those fields are dropped before transformers sees them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headwise.errors import ModelError
from headwise.models.short_cause import short_cause

MAX_JSON_BYTES = 25_000_000
MAX_LAYERS = 10_000

# Machinery of transformers that a config must not reach: which files, kernels, fusions or devices are used.
_DROPPED = {
    "compile_config",
    "custom_generate",
    "distributed_config",
    "fusion_config",
    "kernel_config",
    "name_or_path",
    "transformers_weights",
    "use_kernels",
    "use_pretrained_backbone",
}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that must hold an object.

    Raises:
        ModelError: the file cannot be read, is too large, or holds something else.

    """
    try:
        size = path.stat().st_size
        if size > MAX_JSON_BYTES:
            raise ModelError(f"{path} has {size} bytes, and at most {MAX_JSON_BYTES} are read")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds a JSON {type(content).__name__}, and must hold an object")
    return content


def read_config(folder: Path) -> PreTrainedConfig:
    """Return the model's config, without anything in it that chooses code.

    Raises:
        ModelError: the config asks for code of its own or packed weights, or is none that transformers knows.

    """
    path = folder / "config.json"
    content = read_json(path)
    refuse_own_code(path, content)
    content = _without_machinery(content)
    model_type = content.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise ModelError(
            f"{path} has model_type={model_type!r}, which transformers {transformers.__version__} does not "
            "know; update transformers, or check that this is a model's config"
        )
    try:
        config = CONFIG_MAPPING[model_type].from_dict(content)
    except Exception as error:
        raise ModelError(f"{path} is no config that transformers accepts: {short_cause(error)}") from error
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    if isinstance(layers, int) and layers > MAX_LAYERS:
        raise ModelError(f"{path} describes {layers} layers, and at most {MAX_LAYERS} are built")
    return config


def refuse_own_code(path: Path, content: dict[str, Any]) -> None:
    """Refuse a config that names Python files to run, or weights packed in a way that needs other code."""
    for part in _objects(content):
        if part.get("auto_map"):
            raise ModelError(
                f"{path} asks to run Python code that comes with the model (auto_map); headwise never runs "
                "any. Use a model that transformers itself implements"
            )
        if part.get("quantization_config") or part.get("compression_config"):
            packed = part.get("quantization_config") or part.get("compression_config")
            method = packed.get("quant_method") if isinstance(packed, dict) else packed
            raise ModelError(
                f"{path} describes packed weights (quant_method={method!r}); headwise opens plain weights. "
                "Take the model as it was before packing, or a GGUF file of it"
            )


def _objects(content: Any) -> list[dict[str, Any]]:
    """Return every JSON object inside a value, itself included."""
    found, waiting = [], [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.append(value)
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return found


def _without_machinery(content: dict[str, Any]) -> dict[str, Any]:
    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items() if not _is_machinery(key)}
        if isinstance(value, list):
            return [clean(item) for item in value]
        return value

    cleaned: dict[str, Any] = clean(content)
    return cleaned


def _is_machinery(key: str) -> bool:
    return key.startswith("_") or key.endswith("_implementation") or key in _DROPPED
