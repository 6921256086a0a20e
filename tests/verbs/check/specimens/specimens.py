"""The specimens by name: each style, with sizes that its author chose."""

from __future__ import annotations

from headwise.rope import Rope

from .injecting import Specimen

SPECIMENS = {
    # Functions of heads.
    "written_out": Specimen("written_out", lambda code: code.attention),
    "jax_port": Specimen("jax_port", lambda code: code.dot_product_attention, {"axes": "bqhd"}),
    "flash_like": Specimen("flash_like", lambda code: code.flash_attention, {"axes": "bqhd"}),
    # Functions of rows.
    "full_width": Specimen("full_width", lambda code: code.multi_head_attention),
    "from_weights": Specimen("from_weights", lambda code: code.mha),
    # Modules with one fused projection.
    "small_gpt": Specimen("small_gpt", lambda code: code.CausalSelfAttention(21, 3)),
    "small_gpt_flash": Specimen(
        "small_gpt", lambda code: code.CausalSelfAttention(21, 3, dropout=0.2, flash=True)
    ),
    "small_gpt_window": Specimen(
        "small_gpt", lambda code: code.CausalSelfAttention(21, 3, window=4), {"window": 4}
    ),
    "gpt2_port": Specimen("gpt2_port", lambda code: code.Attention(35, 5)),
    "vision": Specimen("vision", lambda code: code.Attention(33, num_heads=3)),
    "neox_like": Specimen(
        "neox_like", lambda code: code.FusedRotaryAttention(30, 3), {"rope": Rope(pairing="interleaved")}
    ),
    "alibi": Specimen("alibi", lambda code: code.AlibiAttention(35, 5), {"arguments": {"alibi": "bias"}}),
    "wrapped": Specimen("wrapped", lambda code: code.AttentionLayer(35, 5)),
    # Modules with separate linears.
    "annotated": Specimen(
        "annotated", lambda code: code.MultiHeadedAttention(33, 3), {"mask_means": "attend"}
    ),
    "bert_like": Specimen("bert_like", lambda code: code.BertSelfAttention(35, 5), {"mask_means": "add"}),
    "llama_like": Specimen("llama_like", lambda code: code.LlamaAttention(60, 6, 2, 10), {"rope": Rope()}),
    "grouped_complex": Specimen(
        "grouped_complex", lambda code: code.Attention(60, 6, 2), {"rope": Rope(pairing="interleaved")}
    ),
    "head_by_head": Specimen("head_by_head", lambda code: code.MultiHeadAttention(21, 3, 7)),
    "relative_bias": Specimen("relative_bias", lambda code: code.T5Attention(33, 7, 3), {"scale": 1.0}),
    "sliding": Specimen(
        "sliding",
        lambda code: code.SlidingAttention(31, 6, 2, 7, window=4, softcap=2.0),
        {"window": 4, "softcap": 2.0},
    ),
}
