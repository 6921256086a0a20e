"""Small models with made-up weights, as `open_model` gives them: encoder-decoders, vision models, hybrids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from headwise.models.opening.opened_model import OpenedModel

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "the", "cat", "sat", "on", "a", "mat", "le", "chat", "dort", "bien")
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(WORDS)}
MARIAN = {
    **TOKENS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "max_position_embeddings": 41,
    "decoder_start_token_id": 0, "forced_eos_token_id": None,
}  # fmt: skip
T5 = {
    **TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
VISION = {**SIZES, "image_size": 24, "patch_size": 8}
HYBRID = {
    **SIZES, **TOKENS, "num_hidden_layers": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 4, "mamba_dt_rank": 4,
    "use_mamba_kernels": False,
}  # fmt: skip


def word_tokenizer(*, ends: bool) -> PreTrainedTokenizerFast:
    """A tokenizer of whole words; `ends` says whether it puts `</s>` after a text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: PLC0415

    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.decoder = decoders.WordPiece(prefix="@@")
    if ends:
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", WORDS.index("</s>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",  # noqa: S106
        bos_token="<s>",  # noqa: S106
        eos_token="</s>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
    )


def small_model(kind: str, settings: dict[str, Any]) -> PreTrainedModel:
    """A model of that class, with weights so large that every row of attention has a shape of its own."""
    make = getattr(transformers, kind)
    torch.manual_seed(3)
    model: PreTrainedModel = make(make.config_class(**settings))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 0.2)
    return model.eval()


def opened(model: PreTrainedModel, folder: Path, tokenizer: PreTrainedTokenizerFast | None) -> OpenedModel:
    return OpenedModel(f"small-{model.config.model_type}", model, tokenizer, folder, "folder")


def describe_images(folder: Path, side: int = 24) -> None:
    """Write what says how an image becomes numbers."""
    described = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": side, "width": side},
        "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }  # fmt: skip
    (folder / "preprocessor_config.json").write_text(json.dumps(described))


def write_image(path: Path, *, width: int = 31, height: int = 29) -> Path:
    """Write an image whose every pixel differs from its neighbours."""
    image = Image.new("RGB", (width, height))
    image.putdata([(place * 7 % 256, place * 13 % 256, place * 29 % 256) for place in range(width * height)])
    image.save(path)
    return path


def eager(found: OpenedModel, **inputs: torch.Tensor) -> Any:
    """The model's own outputs and weights under its eager attention."""
    before = found.model.config._attn_implementation
    found.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            return found.model(**inputs, output_attentions=True)
    finally:
        found.model.set_attn_implementation(before)
