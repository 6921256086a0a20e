"""Tiny model folders, and GGUF files of them, for the tests of opening models."""

import shutil
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from .gguf_writer import ARRAY, F32, I32, STRING, U32, array, pair, write_gguf

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def save(model: PreTrainedModel, folder: Path, *, tokenizer_from: Path | None) -> Path:
    """Save a model, with a copy of another folder's tokenizer."""
    model.save_pretrained(folder)
    if tokenizer_from is not None:
        for name in TOKENIZER_FILES:
            if (tokenizer_from / name).exists():
                shutil.copy(tokenizer_from / name, folder)
    return folder


def tiny_llama(**changes) -> LlamaForCausalLM:
    torch.manual_seed(11)
    settings = {
        "vocab_size": 307, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 67,
        "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
        "tie_word_embeddings": True,
    }  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(**settings | changes)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * 0.3 + (weight.ndim == 1))
    return model


def byte_letters() -> list[str]:
    """GPT-2's letter for each byte, written out again: printable ones themselves, the rest from U+0100 on."""
    letters, spare = [], 0x100
    for byte in range(256):
        if byte in range(0x21, 0x7F) or byte in range(0xA1, 0xAD) or byte >= 0xAE:
            letters.append(chr(byte))
        else:
            letters.append(chr(spare))
            spare += 1
    return letters


def llama_pairs(model: LlamaForCausalLM, *, pre: str = "smollm") -> list[bytes]:
    config = model.config
    spaces = ["ĠĠ", "ĠĠĠ", "in", "the", "Ġin", "Ġthe"]
    merges = ["Ġ Ġ", "ĠĠ Ġ", "i n", "t h", "th e", "Ġ in", "Ġ the"]
    tokens = ["<unk>", "<s>", "</s>", *byte_letters(), *spaces, "th"]
    tokens += [f"<extra{place}>" for place in range(config.vocab_size - len(tokens))]
    kinds = [3, 3, 3] + [1] * (len(tokens) - 3)
    named = {
        "general.architecture": (STRING, "llama"),
        "general.name": (STRING, "tiny"),
        "llama.block_count": (U32, config.num_hidden_layers),
        "llama.context_length": (U32, config.max_position_embeddings),
        "llama.embedding_length": (U32, config.hidden_size),
        "llama.feed_forward_length": (U32, config.intermediate_size),
        "llama.attention.head_count": (U32, config.num_attention_heads),
        "llama.attention.head_count_kv": (U32, config.num_key_value_heads),
        "llama.attention.layer_norm_rms_epsilon": (F32, config.rms_norm_eps),
        "llama.rope.dimension_count": (U32, config.head_dim),
        "llama.rope.freq_base": (F32, 10000.0),
        "llama.vocab_size": (U32, config.vocab_size),
        "tokenizer.ggml.model": (STRING, "gpt2"),
        "tokenizer.ggml.pre": (STRING, pre),
        "tokenizer.ggml.bos_token_id": (U32, 1),
        "tokenizer.ggml.eos_token_id": (U32, 2),
        "tokenizer.ggml.padding_token_id": (U32, 2),
        "tokenizer.ggml.tokens": (ARRAY, (STRING, tokens)),
        "tokenizer.ggml.token_type": (ARRAY, (I32, kinds)),
        "tokenizer.ggml.merges": (ARRAY, (STRING, merges)),
    }
    return [
        array(key, *value) if kind == ARRAY else pair(key, kind, value)
        for key, (kind, value) in named.items()
    ]


def llama_weights(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """Name and order the weights as a GGUF file has them: query and key rows interleaved for its rotary."""
    config = model.config
    weights = {
        "token_embd.weight": model.model.embed_tokens.weight,
        "output_norm.weight": model.model.norm.weight,
    }
    for number, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        weights |= {
            f"blk.{number}.attn_q.weight": interleaved(attention.q_proj.weight, config.num_attention_heads),
            f"blk.{number}.attn_k.weight": interleaved(attention.k_proj.weight, config.num_key_value_heads),
            f"blk.{number}.attn_v.weight": attention.v_proj.weight,
            f"blk.{number}.attn_output.weight": attention.o_proj.weight,
            f"blk.{number}.ffn_gate.weight": mlp.gate_proj.weight,
            f"blk.{number}.ffn_up.weight": mlp.up_proj.weight,
            f"blk.{number}.ffn_down.weight": mlp.down_proj.weight,
            f"blk.{number}.attn_norm.weight": layer.input_layernorm.weight,
            f"blk.{number}.ffn_norm.weight": layer.post_attention_layernorm.weight,
        }
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def interleaved(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    # [heads * head_dim, d_model] -> [heads, 2 halves, head_dim / 2, d_model], halves moved inside.
    halves = weight.reshape(num_heads, 2, -1, weight.shape[-1])
    return halves.transpose(1, 2).reshape(weight.shape)


def tiny_gguf(path: Path, model: LlamaForCausalLM | None = None, *, pre: str = "smollm") -> Path:
    model = tiny_llama() if model is None else model
    return write_gguf(path, llama_pairs(model, pre=pre), llama_weights(model))
