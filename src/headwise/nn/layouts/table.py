"""Every layout known, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from headwise.nn.layouts.layout import Layout
from headwise.nn.layouts.limits import Limits
from headwise.nn.layouts.rows import CONCATENATED, GROUPED

_TRANSFORMERS = "github.com/huggingface/transformers, src/transformers/models"
_FILLED = Limits(kv_heads="all", widths="square", inputs="one")


def _parameters(*, weight: str = ".weight", bias: str = ".bias", **modules: str) -> dict[str, str]:
    """Return the name of every weight and bias from the module that holds both, by part."""
    weights = {role: module + weight for role, module in modules.items()}
    return weights | {f"{role}_bias": module + bias for role, module in modules.items()}


_FUSED_NAMES = _parameters(qkv="query_key_value", out="dense")
_APART = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
_OLD_MASKS = ("bias", "masked_bias", "rotary_emb.inv_freq")
_KERNELS = {"query": "query", "key": "key", "value": "value", "weight": "/kernel", "bias": "/bias"}

_EVERY = (
    Layout(
        "headwise",
        "headwise.MultiHeadAttention: four linear layers",
        "headwise.nn.multi_head_attention",
        _parameters(**_APART, out="out_proj"),
    ),
    Layout(
        "torch",
        "torch.nn.MultiheadAttention: in_proj_weight, or three weights where kdim or vdim differ",
        "docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",
        {
            **{role: f"{module}_weight" for role, module in _APART.items()},
            "qkv": "in_proj_weight",
            "qkv_bias": "in_proj_bias",
            "out": "out_proj.weight",
            "out_bias": "out_proj.bias",
        },
        rows=CONCATENATED,
        limits=Limits(kv_heads="all", widths="square"),
    ),
    Layout(
        "gpt2",
        "GPT-2 self-attention: a fused Conv1D, which stores [in, out]",
        f"{_TRANSFORMERS}/gpt2/modeling_gpt2.py",
        _parameters(qkv="c_attn", out="c_proj"),
        rows=CONCATENATED,
        form="transposed",
        limits=_FILLED,
        skipped=_OLD_MASKS,
    ),
    Layout(
        "gpt_neox",
        "GPT-NeoX and Pythia: query, key and value of one head after another",
        f"{_TRANSFORMERS}/gpt_neox/modeling_gpt_neox.py",
        _FUSED_NAMES,
        rows=GROUPED,
        limits=_FILLED,
        skipped=_OLD_MASKS,
    ),
    Layout(
        "bloom",
        "BLOOM: as GPT-NeoX",
        f"{_TRANSFORMERS}/bloom/modeling_bloom.py",
        _FUSED_NAMES,
        rows=GROUPED,
        limits=_FILLED,
    ),
    Layout(
        "falcon",
        "Falcon with multi_query and new_decoder_architecture False (RW-1B): as GPT-NeoX",
        f"{_TRANSFORMERS}/falcon/modeling_falcon.py",
        _FUSED_NAMES,
        rows=GROUPED,
        limits=_FILLED,
    ),
    Layout(
        "falcon_multi_query",
        "Falcon with multi_query (7B): all query heads, then the one key and the one value",
        f"{_TRANSFORMERS}/falcon/modeling_falcon.py",
        _FUSED_NAMES,
        rows=GROUPED,
        limits=Limits(kv_heads="one", widths="square", inputs="one"),
    ),
    Layout(
        "falcon_new_decoder",
        "Falcon with new_decoder_architecture (40B, 180B): a group's query heads, its key, its value",
        f"{_TRANSFORMERS}/falcon/modeling_falcon.py",
        _FUSED_NAMES,
        rows=GROUPED,
        limits=Limits(widths="square", inputs="one"),
    ),
    Layout(
        "phi3",
        "Phi-3 and Phi-4: all query heads, all keys, all values, with GQA",
        f"{_TRANSFORMERS}/phi3/modeling_phi3.py",
        _parameters(qkv="qkv_proj", out="o_proj"),
        rows=CONCATENATED,
        limits=Limits(widths="equal", inputs="one"),
    ),
    Layout(
        "llama",
        "Llama, Mistral, Qwen2 and most others in transformers: four linear layers, rotary pairs as halves",
        f"{_TRANSFORMERS}/llama/modeling_llama.py",
        _parameters(**_APART, out="o_proj"),
        limits=Limits(widths="equal", inputs="one"),
        skipped=("rotary_emb.inv_freq",),
    ),
    Layout(
        "llama_meta",
        "Llama as Meta publishes it: rotary pairs are neighbours",
        "github.com/meta-llama/llama, llama/model.py",
        _parameters(query="wq", key="wk", value="wv", out="wo"),
        interleaved_rotary=True,
        limits=Limits(widths="square", inputs="one"),
    ),
    Layout(
        "gptj",
        "GPT-J: four linear layers, the leading rotary_dim elements of a head in neighbouring pairs",
        f"{_TRANSFORMERS}/gptj/modeling_gptj.py",
        _parameters(**_APART, out="out_proj"),
        interleaved_rotary=True,
        limits=_FILLED,
        skipped=("bias", "masked_bias", "embed_positions"),
    ),
    Layout(
        "keras",
        "keras.layers.MultiHeadAttention and GroupQueryAttention: kernels [in, heads, width]",
        "keras.io/api/layers/attention_layers/multi_head_attention",
        _parameters(**_KERNELS, out="attention_output"),
        form="kernel",
        limits=Limits(output="any"),
    ),
    Layout(
        "flax",
        "flax.linen.MultiHeadDotProductAttention and flax.nnx.MultiHeadAttention, names joined by /",
        "flax.readthedocs.io, flax/nnx/nn/attention.py",
        _parameters(**_KERNELS, out="out"),
        form="kernel",
        limits=Limits(widths="equal", output="any"),
    ),
)

LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.name: layout for layout in _EVERY})
"""Every layout by name."""
