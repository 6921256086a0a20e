"""The attention function called by itself: a listener and a layer for it, tensors, and what it must give."""

import weakref

import torch
from torch import Tensor, nn

from headwise import masks
from headwise.evidence import Collect
from headwise.models.attachment import interface
from headwise.models.attachment.mask_reading import read

BATCH, HEADS, KV_HEADS, SEQ_LEN, KV_LEN, HEAD_DIM = 2, 6, 3, 5, 7, 11


class Answering:
    """A listener that only computes, with evidence or without."""

    def __init__(self, collect: Collect | None = None) -> None:
        self.collect = collect
        self.evidence = None

    def answer(self, module, call):
        if self.collect is None:
            return call.attend(None), None
        output, self.evidence = call.observe(None, self.collect)
        return output, self.evidence

    def read_mask(self, mask, sizes):
        return read(mask, masks.Sizes(*sizes))

    def watches(self, module) -> bool:
        return self.collect is not None

    def asks_for_attentions(self, module) -> bool:
        return False


class SomeAttention(nn.Module):
    """Stands for a layer of a family."""

    def __init__(self, is_causal: bool = False) -> None:
        super().__init__()
        self.is_causal = is_causal
        self.eval()


def tensors(seq_len: int = SEQ_LEN, kv_len: int = KV_LEN) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(11)
    shapes = ((HEADS, seq_len), (KV_HEADS, kv_len), (KV_HEADS, kv_len))
    query, key, value = (torch.randn(BATCH, heads, length, HEAD_DIM) for heads, length in shapes)
    return query, key, value


def call(module: nn.Module, *given: Tensor | None, listener: Answering | None = None, **keywords) -> Tensor:
    """The function's output, `[batch, seq_len, num_heads, head_dim]`."""
    listener = listener or Answering()
    interface.LISTENERS[module] = weakref.ref(listener)
    try:
        return interface.attention_function(module, *given, **keywords)[0]
    finally:
        del interface.LISTENERS[module]


def naive(
    query: Tensor, key: Tensor, value: Tensor, added: Tensor | float, scale: float | None = None
) -> Tensor:
    key, value = (each.repeat_interleave(HEADS // KV_HEADS, dim=1) for each in (key, value))
    scores = query @ key.mT * (scale or HEAD_DIM**-0.5) + added
    return (scores.softmax(-1) @ value).transpose(1, 2)


def hidden_as(visible: Tensor, number: float) -> Tensor:
    return torch.zeros(visible.shape).masked_fill(~visible, number)


def some_visible() -> Tensor:
    torch.manual_seed(12)
    visible = torch.randn(BATCH, 1, SEQ_LEN, KV_LEN) > 0
    visible[..., 0] = True
    return visible
