"""Modules as people write them: the same attention, with its weights kept in many ways."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS, KV_HEADS, HEAD_DIM, D_MODEL = 6, 2, 5, 23


def heads(rows: Tensor, count: int) -> Tensor:
    return rows.unflatten(-1, (count, -1)).transpose(1, 2)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Heads to joined heads, with fewer KV heads than heads if need be."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    return functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class Named(nn.Module):
    """Four linear layers under any names."""

    def __init__(self, names: tuple[str, str, str, str | None], *, kv_heads: int = KV_HEADS) -> None:
        super().__init__()
        self.num_heads, self.names, self.kv_heads = HEADS, names, kv_heads
        widths = (HEADS * HEAD_DIM, kv_heads * HEAD_DIM, kv_heads * HEAD_DIM)
        for name, width in zip(names, widths, strict=False):
            self.add_module(name, nn.Linear(D_MODEL, width))
        if names[3] is not None:
            self.add_module(names[3], nn.Linear(HEADS * HEAD_DIM, D_MODEL))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (getattr(self, name)(x) for name in self.names[:3])
        mixed = attend(heads(query, HEADS), heads(key, self.kv_heads), heads(value, self.kv_heads))
        return mixed if self.names[3] is None else getattr(self, self.names[3])(mixed)


class Fused(nn.Module):
    """One map for all three, its rows in blocks or head by head."""

    def __init__(self, name: str, output: str, *, per_head: bool, kv_heads: int = KV_HEADS) -> None:
        super().__init__()
        self.n_head, self.names, self.per_head, self.kv_heads = HEADS, (name, output), per_head, kv_heads
        self.add_module(name, nn.Linear(D_MODEL, (HEADS + 2 * kv_heads) * HEAD_DIM))
        self.add_module(output, nn.Linear(HEADS * HEAD_DIM, D_MODEL))

    def forward(self, hidden_states: Tensor) -> Tensor:
        fused = getattr(self, self.names[0])(hidden_states)
        if self.per_head:
            group = HEADS // self.kv_heads
            by_head = fused.unflatten(-1, (self.kv_heads, group + 2, HEAD_DIM))
            query, key, value = (
                by_head[..., :-2, :].flatten(-3),
                by_head[..., -2, :].flatten(-2),
                by_head[..., -1, :],
            )
            value = value.flatten(-2)
        else:
            width = self.kv_heads * HEAD_DIM
            query, key, value = fused.split([HEADS * HEAD_DIM, width, width], dim=-1)
        mixed = attend(heads(query, HEADS), heads(key, self.kv_heads), heads(value, self.kv_heads))
        return getattr(self, self.names[1])(mixed)


class KeyAndValueFused(nn.Module):
    """A query map, and one for key and value, as in Perceivers; the output in a Sequential with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_q = nn.Linear(D_MODEL, HEADS * HEAD_DIM, bias=False)
        self.to_kv = nn.Linear(17, 2 * HEADS * HEAD_DIM, bias=False)
        self.to_out = nn.Sequential(nn.Linear(HEADS * HEAD_DIM, D_MODEL), nn.Dropout(0.5))

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        key, value = self.to_kv(context).chunk(2, dim=-1)
        return self.to_out(attend(heads(self.to_q(x), HEADS), heads(key, HEADS), heads(value, HEADS)))


class Bare(nn.Module):
    """Matrices without layers around them; `linear` says which order of axes."""

    def __init__(self, *, linear: bool, d_model: int = D_MODEL) -> None:
        super().__init__()
        self.n_heads, self.linear, joined = HEADS, linear, HEADS * HEAD_DIM

        def drawn(taken: int, given: int) -> nn.Parameter:
            return nn.Parameter((torch.randn(given, taken) if linear else torch.randn(taken, given)) / 5)

        self.W_q, self.W_k, self.W_v = (drawn(d_model, joined) for _ in range(3))
        self.W_o = drawn(joined, d_model)
        self.b_q, self.b_o = nn.Parameter(torch.randn(joined)), nn.Parameter(torch.randn(d_model))

    def forward(self, x: Tensor) -> Tensor:
        def mapped(rows: Tensor, weight: Tensor) -> Tensor:
            return functional.linear(rows, weight) if self.linear else rows @ weight

        query = mapped(x, self.W_q) + self.b_q
        mixed = attend(*(heads(each, HEADS) for each in (query, mapped(x, self.W_k), mapped(x, self.W_v))))
        return mapped(mixed, self.W_o) + self.b_o


class ByHead(nn.Module):
    """Weights with an axis of heads, as in TransformerLens: W_Q [heads, d_model, head_dim]."""

    def __init__(self) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (
            nn.Parameter(torch.randn(HEADS, D_MODEL, HEAD_DIM) / 5) for _ in range(3)
        )
        self.W_O = nn.Parameter(torch.randn(HEADS, HEAD_DIM, D_MODEL) / 5)
        self.b_Q = nn.Parameter(torch.randn(HEADS, HEAD_DIM))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            torch.einsum("bsd,hde->bhse", x, weight) for weight in (self.W_Q, self.W_K, self.W_V)
        )
        mixed = attend(query + self.b_Q[:, None], key, value).unflatten(-1, (HEADS, -1))
        return torch.einsum("bshe,hed->bsd", mixed, self.W_O)


class InAList(nn.Module):
    """Four layers in a list that has no names for them."""

    def __init__(self) -> None:
        super().__init__()
        self.h = HEADS
        self.linears = nn.ModuleList(nn.Linear(30, 30) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        given = zip(self.linears, (query, key, value), strict=False)
        return self.linears[-1](attend(*(heads(layer(each), HEADS) for layer, each in given)))


class HeadsOfTheirOwn(nn.Module):
    """A list of layers for each of query, key and value: one a head."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (
            nn.ModuleList(nn.Linear(D_MODEL, HEAD_DIM) for _ in range(HEADS)) for _ in range(3)
        )
        self.proj = nn.Linear(HEADS * HEAD_DIM, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            torch.stack([layer(x) for layer in layers], dim=1)
            for layers in (self.query, self.key, self.value)
        )
        return self.proj(attend(query, key, value))


class OutputsOfTheirOwn(HeadsOfTheirOwn):
    """Each head has an output layer, and what they make is added up."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.ModuleList(nn.Linear(HEAD_DIM, D_MODEL) for _ in range(HEADS))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            torch.stack([layer(x) for layer in layers], dim=1)
            for layers in (self.query, self.key, self.value)
        )
        mixed = attend(query, key, value).chunk(HEADS, dim=-1)
        return torch.stack([layer(head) for layer, head in zip(self.proj, mixed, strict=True)]).sum(0)


class Map(nn.Module):
    """A linear layer of somebody's own making, `[in, out]`."""

    def __init__(self, taken: int, given: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(taken, given) / 5), nn.Parameter(torch.randn(given))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class OfTheirOwnMaking(nn.Module):
    """Layers of somebody's own making under the usual names."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv, self.proj = Map(D_MODEL, 3 * HEADS * HEAD_DIM), Map(HEADS * HEAD_DIM, D_MODEL)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(attend(*(heads(each, HEADS) for each in self.qkv(x).chunk(3, dim=-1))))


class OneByOne(nn.Module):
    """Convolutions of one pixel, which are linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = HEADS
        self.qkv = nn.Conv1d(D_MODEL, 3 * HEADS * HEAD_DIM, 1)
        self.proj_out = nn.Conv1d(HEADS * HEAD_DIM, D_MODEL, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x.mT).mT.chunk(3, dim=-1)
        mixed = attend(heads(query, HEADS), heads(key, HEADS), heads(value, HEADS))
        return self.proj_out(mixed.mT).mT


NAMES = (
    ("q_proj", "k_proj", "v_proj", "o_proj"),
    ("query", "key", "value", "dense"),
    ("W_query", "W_key", "W_value", "out_proj"),
    ("wq", "wk", "wv", "wo"),
    ("to_queries", "to_keys", "to_values", "unify_heads"),
    ("toqueries", "tokeys", "tovalues", "unifyheads"),
    ("linear_q", "linear_k", "linear_v", "linear_out"),
    ("queryProj", "keyProj", "valueProj", "outProj"),
    ("fc_q", "fc_k", "fc_v", "fc_o"),
    ("q_lin", "k_lin", "v_lin", "out_lin"),
    ("w_qs", "w_ks", "w_vs", "fc"),
    ("query_projection", "key_projection", "value_projection", "out_projection"),
)
FUSED_NAMES = (
    ("qkv", "proj"),
    ("c_attn", "c_proj"),
    ("Wqkv", "out_proj"),
    ("query_key_value", "dense"),
    ("to_qkv", "to_out"),
    ("in_proj", "out_proj"),
    ("qkv_proj", "o_proj"),
)
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "bare, x @ w": lambda: Bare(linear=False),
    "bare, linear": lambda: Bare(linear=True),
    "bare and square, x @ w": lambda: Bare(linear=False, d_model=HEADS * HEAD_DIM),
    "bare and square, linear": lambda: Bare(linear=True, d_model=HEADS * HEAD_DIM),
    "key and value fused": KeyAndValueFused,
    "by head": ByHead,
    "in a list": InAList,
    "heads of their own": HeadsOfTheirOwn,
    "outputs of their own": OutputsOfTheirOwn,
    "of their own making": OfTheirOwnMaking,
    "one by one": OneByOne,
}
