"""Reading and writing by the name of a layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from headwise.counts import checked_size, either
from headwise.errors import ArgumentError
from headwise.nn.layouts.layout import Layout
from headwise.nn.layouts.reading import Given, read
from headwise.nn.layouts.table import LAYOUTS
from headwise.nn.layouts.weights import HeadWeights
from headwise.nn.layouts.writing import write


def read_weights(
    state: Mapping[str, Any],
    layout: str,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    rotary_dim: int | None = None,
) -> HeadWeights:
    """Return the weights of one attention layer head by head, from the state of a framework or model family.

    Shapes tell head_dim, value_head_dim and num_kv_heads; only num_heads cannot be seen in them.

    Args:
        state: name to tensor or array of one attention layer, as its own `state_dict()` has it. For Keras
            `query/kernel` and so on, as in a variable's path; for Flax
            `flatten_dict(params, sep="/")` of `flax.traverse_util`.
        layout: a name in `LAYOUTS`.
        num_heads: query heads.
        num_kv_heads: held against what the shapes say, if given.
        rotary_dim: leading elements of a head that rotary positions turn, for layouts that keep rotary pairs
            as neighbours; head_dim by default.

    Raises:
        ArgumentError: there is no such layout, a parameter is missing, unknown or there twice (fused and
            apart), or a shape does not fit.

    Example:
        A layer of GPT-2 becomes one of headwise:

        >>> import torch
        >>> from headwise.nn.layouts import read_weights, write_weights
        >>> state = {
        ...     "c_attn.weight": torch.randn(12, 36), "c_attn.bias": torch.randn(36),
        ...     "c_proj.weight": torch.randn(12, 12), "c_proj.bias": torch.randn(12),
        ... }
        >>> weights = read_weights(state, "gpt2", num_heads=3)
        >>> weights.query.shape
        torch.Size([3, 4, 12])
        >>> from headwise import MultiHeadAttention
        >>> layer = MultiHeadAttention(12, 3)
        >>> layer.load_state_dict(write_weights(weights, "headwise"))
        <All keys matched successfully>

    """
    check_state("state", state)
    chosen = _layout(layout)
    roles = {name: role for role, name in chosen.names.items()}
    unknown = sorted(set(state) - set(roles) - set(chosen.skipped))
    if unknown:
        raise ArgumentError(
            f"layout {layout!r} has no {either(unknown)}; it has {', '.join(chosen.names.values())}. Give "
            "the state of the attention layer alone, without a prefix"
        )
    tensors = {roles[name]: as_tensor(name, given) for name, given in state.items() if name in roles}
    return read(
        chosen,
        Given(tensors, chosen.names),
        num_heads=checked_size("num_heads", num_heads),
        num_kv_heads=num_kv_heads,
        rotary_dim=rotary_dim,
    )


def write_weights(weights: HeadWeights, layout: str, *, rotary_dim: int | None = None) -> dict[str, Tensor]:
    """Return the state of a module of another framework or model family; the inverse of `read_weights`.

    Args:
        weights: what `read_weights` returned.
        layout: a name in `LAYOUTS`.
        rotary_dim: as in `read_weights`.

    Returns:
        Name to tensor, each contiguous and in memory of its own.

    Raises:
        ArgumentError: there is no such layout, or its modules cannot hold these weights; the message has the
            numbers and the exact way round, if there is one.

    Example:
        >>> import torch
        >>> from headwise.nn.layouts import HeadWeights, write_weights
        >>> query, out = torch.randn(4, 3, 12), torch.randn(4, 3, 12)
        >>> grouped = HeadWeights(query=query, key=query[:2], value=query[2:], out=out)
        >>> {name: tuple(given.shape) for name, given in write_weights(grouped, "falcon_new_decoder").items()}
        {'query_key_value.weight': (24, 12), 'dense.weight': (12, 12)}
        >>> write_weights(grouped.with_own_kv_heads(), "torch")["in_proj_weight"].shape
        torch.Size([36, 12])

    """
    return write(_layout(layout), weights, rotary_dim=rotary_dim)


def check_state(name: str, given: Any) -> None:
    """Refuse what holds no tensors by name."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"{name} is a {type(given).__name__}; pass names and tensors, such as module.state_dict() of the "
            "attention layer"
        )


def as_tensor(name: str, given: Any) -> Tensor:
    """Return a tensor of what a framework gives as an array."""
    if isinstance(given, Tensor):
        return given.detach()
    if isinstance(given, Mapping):
        raise ArgumentError(
            f"{name} is a mapping, not an array; join the names by '/', as "
            "flax.traverse_util.flatten_dict(params, sep='/') does"
        )
    try:
        if hasattr(given, "__dlpack__") and not isinstance(given, np.ndarray):
            return from_dlpack(given).clone()
        return torch.tensor(given)
    except (TypeError, ValueError, RuntimeError, BufferError) as problem:
        raise ArgumentError(
            f"{name} is a {type(given).__name__}; pass a tensor or an array of numbers ({problem})"
        ) from None


def _layout(name: str) -> Layout:
    if name not in LAYOUTS:
        raise ArgumentError(f"layout={name!r} is not known; use {either(list(LAYOUTS))}")
    return LAYOUTS[name]
