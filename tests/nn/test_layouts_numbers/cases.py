"""One small attention layer of every framework and family, with what it gives for an input.

The modules are the families' own, built from their configs with random weights, and run in their eager way.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.cohere import modeling_cohere as cohere
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.gpt2 import modeling_gpt2 as gpt2
from transformers.models.gpt_neox import modeling_gpt_neox as gpt_neox
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.phi3 import modeling_phi3 as phi3

from headwise.masks import Causal
from headwise.rope import Rope

BATCH, SEQ_LEN, KV_LEN = 2, 7, 11
HIDDEN = torch.full((SEQ_LEN, SEQ_LEN), torch.finfo(torch.float32).min).triu(1)[None, None]


@dataclass(frozen=True)
class Case:
    layout: str
    state: dict[str, Any]
    heads: dict[str, int]
    inputs: tuple[Tensor, Tensor, Tensor]
    output: Tensor
    options: dict[str, Any] = field(default_factory=dict)
    module: nn.Module | None = None

    @property
    def rotary_dim(self) -> int | None:
        rope = self.options.get("rope")
        return None if rope is None else rope.rotary_dim


def drawn(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():  # every bias too: one that is 0 could be forgotten unseen
        nn.init.normal_(parameter, std=0.4)
    return module.eval()


def torch_case(*, bias: bool = True, **widths: int) -> Case:
    module = drawn(nn.MultiheadAttention(12, 3, bias=bias, batch_first=True, **widths))
    query = torch.randn(BATCH, SEQ_LEN, 12)
    key = torch.randn(BATCH, KV_LEN, widths.get("kdim", 12))
    value = torch.randn(BATCH, KV_LEN, widths.get("vdim", 12))
    output = module(query, key, value, need_weights=False)[0]
    return Case("torch", module.state_dict(), {"num_heads": 3}, (query, key, value), output, module=module)


def transformers_case(
    layout: str, module: nn.Module, width: int, heads: dict[str, int], *, options: dict[str, Any], **call: Any
) -> Case:
    given = torch.randn(BATCH, SEQ_LEN, width)
    output = drawn(module)(given, attention_mask=HIDDEN, **call)[0]
    options = {"mask": Causal(), **options}
    return Case(layout, module.state_dict(), heads, (given, given, given), output, options, module)


def positions(rotary: nn.Module) -> tuple[Tensor, Tensor]:
    return rotary(torch.zeros(1, SEQ_LEN, 1), torch.arange(SEQ_LEN)[None])


def gpt2_case() -> Case:
    config = gpt2.GPT2Config(n_embd=15, n_head=3, attn_implementation="eager")
    return transformers_case(
        "gpt2", gpt2.GPT2Attention(config, layer_idx=0), 15, {"num_heads": 3}, options={}
    )


def gpt_neox_case() -> Case:
    config = gpt_neox.GPTNeoXConfig(
        hidden_size=24,
        num_attention_heads=3,
        attn_implementation="eager",
        rope_parameters={"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
    )
    module = gpt_neox.GPTNeoXAttention(config, layer_idx=0)
    turning = {"rope": Rope(base=100.0, rotary_dim=4)}
    embeddings = positions(gpt_neox.GPTNeoXRotaryEmbedding(config))
    return transformers_case(
        "gpt_neox", module, 24, {"num_heads": 3}, options=turning, position_embeddings=embeddings
    )


def bloom_case() -> Case:
    config = bloom.BloomConfig(hidden_size=15, n_head=3, attn_implementation="eager", hidden_dropout=0.0)
    alibi = bloom.build_alibi_tensor(torch.ones(BATCH, SEQ_LEN), 3, torch.float32)
    shown = {"bias": alibi.view(BATCH, 3, 1, SEQ_LEN)}
    return transformers_case(
        "bloom",
        bloom.BloomAttention(config, layer_idx=0),
        15,
        {"num_heads": 3},
        options=shown,
        alibi=alibi,
        residual=torch.zeros(BATCH, SEQ_LEN, 15),
    )


def falcon_case(
    layout: str, *, num_kv_heads: int, alibi: bool = False, bias: bool = False, **flags: bool
) -> Case:
    config = falcon.FalconConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_kv_heads=num_kv_heads,
        alibi=alibi,
        bias=bias,
        attn_implementation="eager",
        **flags,
    )
    heads = {"num_heads": 6, "num_kv_heads": num_kv_heads}
    slopes = falcon.build_alibi_tensor(torch.ones(BATCH, SEQ_LEN), 6, torch.float32) if alibi else None
    embeddings = positions(falcon.FalconRotaryEmbedding(config))
    # Falcon adds ALiBi before it scales the scores.
    options = (
        {"rope": Rope(rotary_dim=4)}
        if slopes is None
        else {"bias": slopes.view(BATCH, 6, 1, SEQ_LEN) * 4**-0.5}
    )
    module = falcon.FalconAttention(config, layer_idx=0)
    return transformers_case(
        layout, module, 24, heads, options=options, alibi=slopes, position_embeddings=embeddings
    )


def split_case(layout: str, family: Any, name: str, *, num_kv_heads: int, head_dim: int, **more: Any) -> Case:
    """Return Llama or Phi-3: 18 wide, 6 heads of a width of their own."""
    config = getattr(family, f"{name}Config")(
        hidden_size=18,
        num_attention_heads=6,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        attn_implementation="eager",
        **more,
    )
    module = getattr(family, f"{name}Attention")(config, layer_idx=0)
    embeddings = positions(getattr(family, f"{name}RotaryEmbedding")(config))
    heads = {"num_heads": 6, "num_kv_heads": num_kv_heads}
    turning = {"rope": Rope(base=100.0)}
    return transformers_case(layout, module, 18, heads, options=turning, position_embeddings=embeddings)


def llama_meta_case() -> Case:
    """Return a layer with Meta's rotary order: Cohere's, which is Llama's with neighbouring pairs."""
    config = cohere.CohereConfig(
        hidden_size=24,
        num_attention_heads=6,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        attn_implementation="eager",
    )
    embeddings = positions(cohere.CohereRotaryEmbedding(config))
    found = transformers_case(
        "llama_meta",
        cohere.CohereAttention(config, layer_idx=0),
        24,
        {"num_heads": 6, "num_kv_heads": 2},
        options={"rope": Rope(base=100.0, rotary_dim=4)},
        position_embeddings=embeddings,
    )
    state = {f"w{name[0]}.weight": weight for name, weight in found.state.items()}
    return Case("llama_meta", state, found.heads, found.inputs, found.output, found.options)


def gptj_case() -> Case:
    config = gptj.GPTJConfig(n_embd=24, n_head=3, rotary_dim=4, attn_implementation="eager", resid_pdrop=0.0)
    # GPT-J's own tables: sine before cosine, at the base 10,000 that it fixes.
    embeddings = gptj.create_sinusoidal_positions(SEQ_LEN, 4)[None].chunk(2, dim=-1)
    return transformers_case(
        "gptj",
        gptj.GPTJAttention(config, layer_idx=0),
        24,
        {"num_heads": 3},
        options={"rope": Rope(rotary_dim=4)},
        position_embeddings=embeddings,
    )


def stored_case(layout: str, name: str, *, causal: bool, **heads: int) -> Case:
    """Return what Keras or Flax gave, from the file that `make.py` wrote."""
    with np.load(Path(__file__).parent / f"{name}.npz") as stored:
        arrays = dict(stored)
    inputs = tuple(torch.tensor(arrays.pop(f"inputs/{part}")) for part in ("query", "key", "value"))
    output = torch.tensor(arrays.pop("output"))
    return Case(layout, arrays, heads, inputs, output, {"mask": Causal()} if causal else {})


CASES: dict[str, Callable[[], Case]] = {
    "torch packed": torch_case,
    "torch without bias": lambda: torch_case(bias=False),
    "torch with kdim and vdim": lambda: torch_case(kdim=10, vdim=7),
    "GPT-2": gpt2_case,
    "GPT-NeoX": gpt_neox_case,
    "BLOOM": bloom_case,
    "Falcon RW": lambda: falcon_case(
        "falcon", num_kv_heads=6, alibi=True, bias=True, multi_query=False, new_decoder_architecture=False
    ),
    "Falcon 7B": lambda: falcon_case(
        "falcon_multi_query", num_kv_heads=1, multi_query=True, new_decoder_architecture=False
    ),
    "Falcon 40B": lambda: falcon_case(
        "falcon_new_decoder", num_kv_heads=2, bias=True, multi_query=True, new_decoder_architecture=True
    ),
    "Phi-3": lambda: split_case("phi3", phi3, "Phi3", num_kv_heads=2, head_dim=4, pad_token_id=0),
    "Llama": lambda: split_case("llama", llama, "Llama", num_kv_heads=2, head_dim=8, attention_bias=True),
    "Llama MQA": lambda: split_case("llama", llama, "Llama", num_kv_heads=1, head_dim=4),
    "Llama of Meta": llama_meta_case,
    "GPT-J": gptj_case,
    "Keras cross": lambda: stored_case("keras", "keras_cross", causal=False, num_heads=3),
    "Keras grouped": lambda: stored_case("keras", "keras_grouped", causal=True, num_heads=6, num_kv_heads=2),
    "Flax linen": lambda: stored_case("flax", "flax_linen", causal=False, num_heads=3),
    "Flax nnx grouped": lambda: stored_case(
        "flax", "flax_nnx_grouped", causal=True, num_heads=6, num_kv_heads=2
    ),
}
