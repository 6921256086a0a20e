"""The files of the toy model's folder, in the form in which transformers reads any model."""

from __future__ import annotations

import json
from typing import Any

import safetensors.numpy

from headwise.models.toy_induction import weights
from headwise.models.toy_induction.vocabulary import FIRST_TOKEN, toy_tokenizer, toy_tokens


def folder_files() -> dict[str, bytes]:
    """Return the content of every file by its name; the same libraries always give the same bytes."""
    vocab_size = len(toy_tokens())
    return {
        "config.json": _json(_config(vocab_size)),
        "model.safetensors": safetensors.numpy.save(
            weights.toy_weights(vocab_size), metadata={"format": "pt"}
        ),
        "tokenizer.json": toy_tokenizer().to_str().encode(),
        "tokenizer_config.json": _json(_tokenizer_config()),
    }


def _config(vocab_size: int) -> dict[str, Any]:
    # SmolLM3 is the family that has rotary positions in some layers and none in others.
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "vocab_size": vocab_size,
        "hidden_size": weights.D_MODEL,
        "intermediate_size": 1,
        "num_hidden_layers": 2,
        "num_attention_heads": weights.HEADS,
        "num_key_value_heads": weights.HEADS,
        "head_dim": weights.HEAD_DIM,
        # 1 means that the layer has rotary positions.
        "no_rope_layers": [1, 0],
        "rope_parameters": {"rope_type": "default", "rope_theta": weights.ROPE_THETA},
        "max_position_embeddings": weights.MAX_POSITIONS,
        "rms_norm_eps": weights.NORM_EPSILON,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": None,
        "pad_token_id": None,
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": FIRST_TOKEN,
        "model_max_length": weights.MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
    }


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
