"""Tiny models of many families, each with the verdict that `attach` must give.

A family either equals `eager` or is refused, with words that the refusal must contain. A change in either
direction fails, so that a new release of transformers cannot move a family unnoticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

BYPASS = "does not go through transformers' attention interface"
OUTSIDE = "computes attention outside transformers' attention interface"

TEXT = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**TEXT, "num_key_value_heads": 2, "head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT2 = {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
GPT2_TOKENS = {"bos_token_id": 1, "eos_token_id": 2}
VISION = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "image_size": 24,
    "patch_size": 8,
}
SEQ2SEQ = {
    "vocab_size": 97,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
T5 = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}


@dataclass(frozen=True)
class Family:
    """One model class, how to build it small, and what `attach` must say of it.

    - kind: the transformers class
    - settings: of its config
    - layers: numbers of the attention layers that must be found, in order; empty where the family is refused
    - unseen: how many token mixers must be named as not recorded
    - refused: what the refusal must say, or None where the family must equal eager
    """

    kind: str
    settings: dict[str, Any]
    layers: tuple[int, ...] = (0, 1)
    unseen: int = 0
    refused: str | None = None

    def build(self, **more: Any) -> PreTrainedModel:
        """Return the model in eval mode, with weights so large that every attention row matters."""
        make = getattr(transformers, self.kind)
        config = make.config_class(**{**self.settings, **more})
        torch.manual_seed(3)
        model: PreTrainedModel = make(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim > 1 or name.endswith("sinks"):
                    weight.normal_(0.0, 0.2)
        return model.eval()


DECODERS = (
    Family("LlamaForCausalLM", GROUPED),
    Family("MistralForCausalLM", {**GROUPED, "sliding_window": 5}),
    Family("Qwen2ForCausalLM", GROUPED),
    Family("Qwen3ForCausalLM", GROUPED),
    Family("GemmaForCausalLM", GROUPED),
    Family(
        "Gemma2ForCausalLM",
        {**GROUPED, "sliding_window": 5, "query_pre_attn_scalar": 11, "attn_logit_softcapping": 3.0},
    ),
    Family("Gemma3ForCausalLM", {**GROUPED, "sliding_window": 5}),
    Family("PhiForCausalLM", GROUPED),
    Family("Phi3ForCausalLM", {**GROUPED, "sliding_window": 5}),
    Family("GPT2LMHeadModel", {**GPT2, **GPT2_TOKENS}),
    Family("GPTJForCausalLM", {**GPT2, **GPT2_TOKENS}),
    Family("CodeGenForCausalLM", {**GPT2, **GPT2_TOKENS}),
    Family("GPTNeoXForCausalLM", TEXT),
    Family("OPTForCausalLM", {**TEXT, "ffn_dim": 40, "word_embed_proj_dim": 32}),
    Family("BioGptForCausalLM", TEXT),
    Family("Starcoder2ForCausalLM", {**GROUPED, "sliding_window": 5}),
    Family("StableLmForCausalLM", GROUPED),
    Family("Olmo2ForCausalLM", GROUPED),
    Family("CohereForCausalLM", GROUPED),
    Family("GraniteForCausalLM", GROUPED),
    Family("MixtralForCausalLM", {**GROUPED, "num_local_experts": 3}),
    Family("Qwen3MoeForCausalLM", {**GROUPED, **EXPERTS}),
    Family(
        "Llama4ForCausalLM",
        {
            **GROUPED,
            "num_local_experts": 2,
            "attention_chunk_size": 5,
            "intermediate_size_mlp": 40,
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    Family(
        "GptOssForCausalLM",
        {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
    ),
    Family(
        "DeepseekV3ForCausalLM",
        {
            **TEXT,
            "num_key_value_heads": 4,
            "q_lora_rank": 12,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 4,
            "qk_nope_head_dim": 8,
            "v_head_dim": 10,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "moe_intermediate_size": 16,
            "first_k_dense_replace": 1,
        },
    ),
    # hybrids: only some layers are attention, and those keep their own numbers
    Family(
        "Qwen3NextForCausalLM",
        {
            **GROUPED,
            **EXPERTS,
            "num_hidden_layers": 4,
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
        layers=(3,),
        unseen=3,
    ),
    Family(
        "MiniMaxForCausalLM",
        {
            **GROUPED,
            "num_local_experts": 2,
            "block_size": 4,
            "layer_types": ["linear_attention", "full_attention"],
        },
        layers=(1,),
        unseen=1,
    ),
    Family(
        "JambaForCausalLM",
        {
            **GROUPED,
            "num_hidden_layers": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "num_experts": 2,
            "mamba_d_state": 4,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        layers=(1, 3),
        unseen=2,
    ),
)

ENCODERS = (
    Family("BertModel", TEXT),
    Family("RobertaModel", TEXT),
    Family("ElectraModel", {**TEXT, "embedding_size": 16}),
    Family("AlbertModel", {**TEXT, "embedding_size": 16, "num_hidden_layers": 3}, layers=(0, 1, 2)),
    Family(
        "DistilBertModel",
        {
            "vocab_size": 97,
            "dim": 32,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 40,
            "max_position_embeddings": 64,
        },
    ),
    Family(
        "ModernBertModel",
        {**TEXT, "local_attention": 6, "global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
)

ENCODER_DECODERS = (
    Family("T5ForConditionalGeneration", T5, layers=(0, 1, 0, 0, 1, 1, 2, 2)),
    Family("BartForConditionalGeneration", SEQ2SEQ, layers=(0, 1, 0, 0, 1, 1, 2, 2)),
    Family("MarianMTModel", SEQ2SEQ, layers=(0, 1, 0, 0, 1, 1, 2, 2)),
    Family(
        "WhisperModel",
        {**SEQ2SEQ, "num_mel_bins": 8, "max_source_positions": 13, "max_target_positions": 64},
        layers=(0, 1, 0, 0, 1, 1, 2, 2),
    ),
)

VISUAL = (
    Family("ViTModel", VISION),
    Family("DeiTModel", VISION),
    Family("BeitModel", VISION),
    Family("Dinov2Model", VISION),
    Family("SiglipVisionModel", VISION, unseen=1),
    Family(
        "CLIPModel",
        {"text_config": {**TEXT, "projection_dim": 16}, "vision_config": VISION, "projection_dim": 16},
        layers=(0, 1, 0, 1),
    ),
    Family("SiglipModel", {"text_config": TEXT, "vision_config": VISION}, layers=(0, 1, 0, 1), unseen=1),
)

REFUSED = (
    Family("BloomForCausalLM", {**TEXT, "n_head": 4, "n_layer": 2}, refused=BYPASS),
    Family("FalconForCausalLM", TEXT, refused=BYPASS),
    Family(
        "MptForCausalLM",
        {"vocab_size": 97, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
        refused=BYPASS,
    ),
    Family(
        "GPTNeoForCausalLM",
        {**TEXT, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        refused=BYPASS,
    ),
    Family(
        "DebertaV2Model", {**TEXT, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, refused=BYPASS
    ),
    Family("MPNetModel", TEXT, refused=BYPASS),
    Family("LongformerModel", {**TEXT, "attention_window": [4, 4]}, refused=BYPASS),
    Family(
        "XLNetModel",
        {"vocab_size": 97, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 40},
        refused=BYPASS,
    ),
    Family(
        "ReformerModel",
        {**TEXT, "attention_head_size": 8, "attn_layers": ["local", "local"], "axial_pos_embds": False},
        refused=BYPASS,
    ),
    # accepts a custom attention and never calls it: its classes are chosen once, when it is built
    Family("GitModel", {**TEXT, "vision_config": VISION}, refused=OUTSIDE),
    Family("Data2VecVisionModel", VISION, refused=BYPASS),
    Family(
        "SamModel",
        {
            "vision_config": {
                **VISION,
                "image_size": 32,
                "output_channels": 16,
                "mlp_dim": 40,
                "window_size": 2,
                "global_attn_indexes": [1],
                "num_pos_feats": 8,
            },
            "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8},
            "mask_decoder_config": {
                "hidden_size": 16,
                "mlp_dim": 24,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
            },
        },
        refused=OUTSIDE,
    ),
)

FAMILIES = (*DECODERS, *ENCODERS, *ENCODER_DECODERS, *VISUAL, *REFUSED)


def family(kind: str) -> Family:
    """Return the family of the table with that class name."""
    return next(each for each in FAMILIES if each.kind == kind)
