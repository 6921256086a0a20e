"""What an eager model gives whose heads are changed by hooks on the projection, and inputs for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

HEAD_DIM = 8
IDS = torch.arange(3, 16)[None]
PADDED = {
    "input_ids": torch.stack([torch.arange(3, 16), torch.arange(40, 53)]),
    "attention_mask": torch.tensor([[1] * 13, [0] * 4 + [1] * 9]),
}
OTHER = {"input_ids": torch.arange(60, 90)[None]}


@contextmanager
def edited(model: nn.Module, layer: int, edit: Callable[[Tensor], Tensor]) -> Iterator[nn.Module]:
    """The eager model, with `edit` applied to `[batch, seq_len, heads, head_dim]` before the projection."""

    def before_projection(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        heads = args[0].clone().unflatten(-1, (-1, HEAD_DIM))
        return (edit(heads).flatten(-2),)

    model.set_attn_implementation("eager")
    hook = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(before_projection)
    try:
        yield model
    finally:
        hook.remove()


def head_outputs(model: nn.Module, layer: int, **inputs: Tensor) -> Tensor:
    """What the eager model's heads of a layer give, `[batch, seq_len, num_heads, head_dim]`."""
    found = []
    with edited(model, layer, lambda heads: found.append(heads) or heads), torch.no_grad():
        model(**inputs)
    return found[0]


def replacing(head: int, value: Tensor | float) -> Callable[[Tensor], Tensor]:
    def edit(heads: Tensor) -> Tensor:
        heads[:, :, head] = value
        return heads

    return edit


def logits(model: nn.Module, **inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return model(**(inputs or {"input_ids": IDS})).logits


def real(outputs: Tensor, inputs: dict[str, Tensor] = PADDED) -> Tensor:
    return outputs[inputs["attention_mask"].bool()]
