"""The attention function and the mask function that transformers calls, and what they refuse.

Both are registered under one neutral name: transformers looks masks up under the name of the attention
function, and a function without a mask function loses the padding without a word. A name with "sdpa",
"flash", "flex" or "/" in it would be taken for one of transformers' own.
"""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headwise import masks
from headwise.errors import UnsupportedError
from headwise.evidence import Evidence
from headwise.models.attachment.keywords import refuse_unknown
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.mask_reading import MaskReading

NAME = "headwise"


class Listener(Protocol):
    """Whoever answers for the layers of one model."""

    def answer(self, module: nn.Module, call: LayerCall) -> tuple[Tensor, Evidence[Tensor] | None]:
        """Return the output of every head, and the evidence of the call where the layer is watched."""
        ...

    def watches(self, module: nn.Module) -> bool:
        """Return whether evidence of this layer is collected."""
        ...

    def asks_for_attentions(self, module: nn.Module) -> bool:
        """Return whether the forward in progress has to give the attentions of this layer."""
        ...

    def read_mask(self, mask: Tensor, sizes: tuple[int, ...]) -> MaskReading:
        """Return what a mask says on a problem of these sizes: those of `masks.Sizes`, in order."""
        ...


LISTENERS: weakref.WeakKeyDictionary[nn.Module, weakref.ref[Listener]] = weakref.WeakKeyDictionary()
"""Who answers for each module. Weak on both sides: an attachment that is forgotten keeps no model alive."""


def attention_function(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | Evidence[Tensor] | None]:
    """Return `[batch, seq_len, num_heads, value_head_dim]`, and what the model takes for attention weights.

    They are the weights where they are collected; else, where `output_attentions` asks a watched layer for
    them, the evidence of this call, its rows and keys numbered as in the call; else None.
    """
    listener = _listener_of(module)
    # Some families keep this keyword from their layers and still wait for what the layers return.
    asked = bool(options.pop("output_attentions", None)) or listener.asks_for_attentions(module)
    refuse_unknown(module, {**options, "output_attentions": asked}, listener.watches)
    if query.shape[0] != key.shape[0]:
        # Learned queries come with a batch of one, as in the resamplers of vision models.
        batch = max(query.shape[0], key.shape[0])
        query, key, value = (tensor.expand(batch, -1, -1, -1) for tensor in (query, key, value))
    if attention_mask is None:
        mask: Tensor | masks.Mask | None = _claimed_mask(module, query.shape[2], is_causal, sliding_window)
        bias = position_bias
    else:
        _refuse_odd_mask(module, attention_mask)
        mask, added = listener.read_mask(attention_mask, (*query.shape[:3], key.shape[2]))
        bias = _sum(added, position_bias)
    call = LayerCall(
        query=query,
        key=key,
        value=value,
        mask=mask,
        bias=bias,
        scale=scaling,
        softcap=softcap,
        sinks=s_aux,
        dropout=dropout if module.training else 0.0,
    )
    output, evidence = listener.answer(module, call)
    second: Tensor | Evidence[Tensor] | None = None if evidence is None else evidence.weights
    by_config = getattr(getattr(module, "config", None), "output_attentions", False)
    if second is None and (asked or by_config):  # unasked, a family may cut into what it takes for a tensor
        second = evidence
    return output.transpose(1, 2).contiguous(), second


def mask_function(*args: Any, **kwargs: Any) -> Tensor | None:
    """Return transformers' boolean mask, True means may attend; never None, so that nothing is guessed."""
    # A tensor that is made in inference mode would not say whether it was changed since it was read.
    with torch.inference_mode(False):
        return sdpa_mask(
            *args, **{**kwargs, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
        )


def register() -> None:
    """Make both functions known to transformers, never one without the other."""
    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)


def unregister() -> None:
    """Undo `register`."""
    # transformers offers no public way to take a registered name back.
    AttentionInterface._global_mapping.pop(NAME, None)
    AttentionMaskInterface._global_mapping.pop(NAME, None)


def _listener_of(module: nn.Module) -> Listener:
    reference = LISTENERS.get(module)
    listener = None if reference is None else reference()
    if listener is None:
        raise UnsupportedError(
            f"{type(module).__name__} runs headwise's attention but belongs to no attached model: it "
            "was put in or copied while attached, or shares its config object with an attached model; "
            "detach first, or give it a config of its own"
        )
    return listener


def _claimed_mask(
    module: nn.Module, seq_len: int, is_causal: bool | None, sliding_window: int | None
) -> masks.Mask | None:
    """Return what a layer that hands over no mask says of itself.

    This is the interface's contract: such a layer trusts the function with causal order and window. Where
    its own eager attention does otherwise, the probe finds the difference.
    """
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    if sliding_window is not None:
        return masks.Window(left=sliding_window - 1, right=0 if causal else sliding_window - 1)
    return masks.Causal() if causal and seq_len > 1 else None


def _refuse_odd_mask(module: nn.Module, attention_mask: Tensor) -> None:
    kind = attention_mask.dtype
    if attention_mask.dim() != 4 or not (kind == torch.bool or kind.is_floating_point):
        raise UnsupportedError(
            f"{type(module).__name__} passes a mask of shape {tuple(attention_mask.shape)} and dtype "
            f"{str(kind).removeprefix('torch.')}; headwise reads rank 4 (batch, head, seq, kv), "
            "boolean (True means may attend) or float (added to the scores)"
        )


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second
