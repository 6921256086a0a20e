"""LoRA in plain torch: a trained GPT learns another kind of text by small matrices beside two projections.

    python examples/lora.py [--steps 150] [--seed 0]

The GPT of gpt.py first learns Python's help pages. Then its weights are frozen, and adapters beside `q_proj`
and `v_proj` learn source code. At the end they are added to the weights they stand beside, so that nothing is
left to be computed in addition. It works because the projections of `hw.MultiHeadAttention` are modules that
are called: they can be replaced.

Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1.
"""

import argparse
import inspect

import torch
from gpt import GPT, NUMBERS, TEXT, encode, held_out_loss, train
from torch import Tensor, nn

import headwise as hw

CODE = "".join(character for character in inspect.getsource(argparse) if character in NUMBERS)


class LoRA(nn.Module):
    """A frozen linear layer and a learned matrix of a low rank beside it."""

    def __init__(self, linear: nn.Linear, *, rank: int) -> None:
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)  # nothing is added yet

    def forward(self, given: Tensor) -> Tensor:
        """Return what the linear layer makes of `given`, and what was learned on top of it."""
        frozen: Tensor = self.linear(given)
        learned: Tensor = self.up(self.down(given))
        return frozen + learned

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return the linear layer, its weights now with what was learned."""
        self.linear.weight += self.up.weight @ self.down.weight
        return self.linear


def adapt(model: nn.Module, *, names: tuple[str, ...] = ("q_proj", "v_proj"), rank: int = 4) -> None:
    """Freeze the model and put adapters beside the projections of these names in every attention."""
    model.requires_grad_(False)
    for layer in list(model.modules()):
        if isinstance(layer, hw.MultiHeadAttention):
            for name in names:
                setattr(layer, name, LoRA(getattr(layer, name), rank=rank))


def merge(model: nn.Module) -> None:
    """Replace every adapted projection by a linear layer that computes the same."""
    for owner in list(model.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, LoRA):
                setattr(owner, name, child.merged())


def main() -> None:
    """Train, adapt, merge, and print what came of it."""
    parser = argparse.ArgumentParser(description="Adapt a small GPT to source code by LoRA.")
    parser.add_argument("--steps", type=int, default=150, help="steps of training, and of adapting (150)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data order (0)")
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    model = GPT()
    train(model, encode(TEXT), steps=asked.steps, seed=asked.seed)
    learned, held_out = encode(CODE).tensor_split([len(CODE) * 9 // 10])
    before = held_out_loss(model, held_out)

    adapt(model)
    counts = [(each.numel(), each.requires_grad) for each in model.parameters()]
    total, adapters = sum(count for count, _ in counts), sum(count for count, learns in counts if learns)
    print(f"learning {adapters:,} of {total:,} parameters")
    train(model, learned, steps=asked.steps, seed=asked.seed)
    print(f"held-out loss on source code {before:.3f}, adapted {held_out_loss(model, held_out):.3f}")

    with torch.no_grad():
        adapted = model(held_out[None, :100])
        merge(model)
        difference = (model(held_out[None, :100]) - adapted).abs().max()
    print(f"merged: logits up to {adapted.abs().max():.1f} moved by {difference:.1e} at most")


if __name__ == "__main__":
    main()
