"""A GPT of about a hundred lines that learns to write like Python's own help pages.

    python examples/gpt.py [--steps 300] [--num-kv-heads 2] [--window 32] [--seed 0]

It reads and writes single characters. The text, `pydoc_data.topics`, comes with every Python. Half a minute
is enough for words and the layout of a page; what it says means nothing yet.
"""

import argparse
from collections import Counter
from math import log
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

import headwise as hw

TEXT = "".join(topics.values())
CHARACTERS = sorted(set(TEXT))
NUMBERS = {character: number for number, character in enumerate(CHARACTERS)}
D_MODEL, NUM_HEADS, LAYERS = 96, 4, 3
CONTEXT, BATCH = 128, 8

Cache = hw.KVCache | hw.RollingKVCache


class Block(nn.Module):
    """One layer: tokens take from those before them what they need, then each is worked on alone."""

    def __init__(self, *, num_kv_heads: int, window: int | None) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(D_MODEL), nn.RMSNorm(D_MODEL)
        # With rotary positions a score depends on how far apart two tokens are, not on where they stand: what
        # is learned in one place holds in all, and there is no table of positions that a text could outgrow.
        self.attention = hw.MultiHeadAttention(
            D_MODEL, NUM_HEADS, num_kv_heads=num_kv_heads, rope=hw.Rope(), window=window
        )
        self.mlp = nn.Sequential(nn.Linear(D_MODEL, 4 * D_MODEL), nn.GELU(), nn.Linear(4 * D_MODEL, D_MODEL))

    def forward(self, hidden: Tensor, cache: Cache | None = None) -> Tensor:
        """Return `hidden`, `[batch, seq_len, D_MODEL]`, and what this layer adds to it."""
        hidden = hidden + self.attention(self.attention_norm(hidden), mask=hw.Causal(), cache=cache)
        thought: Tensor = self.mlp(self.mlp_norm(hidden))
        return hidden + thought


class GPT(nn.Module):
    """Layers between an embedding of characters and the logits of the next one.

    Args:
        num_kv_heads: key and value heads that the query heads share (GQA), and that a cache has to keep.
        window: how many keys a token sees in each layer, its own included; None for all before it.

    """

    def __init__(self, *, num_kv_heads: int = NUM_HEADS, window: int | None = None) -> None:
        super().__init__()
        self.window = window
        self.embedding = nn.Embedding(len(CHARACTERS), D_MODEL)
        self.blocks = nn.ModuleList(Block(num_kv_heads=num_kv_heads, window=window) for _ in range(LAYERS))
        self.norm = nn.RMSNorm(D_MODEL)
        self.head = nn.Linear(D_MODEL, len(CHARACTERS))

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None) -> Tensor:
        """Return the logits of the character after each of `tokens`, `[batch, seq_len, characters]`."""
        hidden = self.embedding(tokens)
        for layer, block in enumerate(self.blocks):
            hidden = block(hidden, caches[layer] if caches else None)
        logits: Tensor = self.head(self.norm(hidden))
        return logits

    def new_caches(self) -> list[Cache]:
        """Return an empty cache for each layer; with a window, one that forgets what is out of sight."""
        if self.window is None:
            return [hw.KVCache() for _ in range(LAYERS)]
        return [hw.RollingKVCache(window=self.window) for _ in range(LAYERS)]


def encode(text: str) -> Tensor:
    """Return the number of each character, `[len(text)]`."""
    return torch.tensor([NUMBERS[character] for character in text])


def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
    """Return the mean loss, in nats a character, of all of `pieces` `[batch, length]` but the first ones."""
    return functional.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def train(model: nn.Module, tokens: Tensor, *, steps: int, seed: int) -> list[float]:
    """Train what needs a gradient on random pieces of `tokens`, and return the loss of each step."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=3e-3)
    losses = []
    for _ in range(steps):
        starts = torch.randint(len(tokens) - CONTEXT, (BATCH, 1), generator=generator)
        loss = loss_of(model, tokens[starts + torch.arange(CONTEXT + 1)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if len(losses) % 50 == 0:
            print(f"step {len(losses)}: loss {sum(losses[-50:]) / 50:.3f}, the mean of 50", flush=True)
    return losses


@torch.no_grad()
def held_out_loss(model: nn.Module, tokens: Tensor) -> float:
    """Return the loss over all of `tokens`, cut into pieces."""
    return loss_of(model, tokens[: len(tokens) // CONTEXT * CONTEXT].view(-1, CONTEXT)).item()


@torch.no_grad()
def sample(model: GPT, prompt: str, *, length: int, seed: int) -> str:
    """Return `prompt` and `length` characters after it, each computed once: the caches hold the others."""
    generator = torch.Generator().manual_seed(seed)
    caches, written, new = model.new_caches(), prompt, encode(prompt)[None]
    for _ in range(length):
        likely = functional.softmax(model(new, caches)[:, -1] / 0.7, dim=-1)  # below 1: less daring
        new = torch.multinomial(likely, 1, generator=generator)
        written += CHARACTERS[int(new)]
    return written


def unigram_entropy(tokens: Tensor) -> float:
    """Return the least loss with which characters can be guessed by their frequencies alone."""
    counts = Counter(tokens.tolist()).values()
    return -sum(count / len(tokens) * log(count / len(tokens)) for count in counts)


def main() -> None:
    """Train, and print what was learned."""
    parser = argparse.ArgumentParser(description="Train a small GPT on Python's help pages.")
    parser.add_argument("--steps", type=int, default=300, help="steps of training (300)")
    parser.add_argument("--num-kv-heads", type=int, default=NUM_HEADS, help="1, 2 or 4 (4)")
    parser.add_argument("--window", type=int, help="keys that a token sees in each layer (all before it)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, data order and sampling (0)")
    asked = parser.parse_args()
    torch.manual_seed(asked.seed)
    tokens = encode(TEXT)
    learned, held_out = tokens.tensor_split([len(tokens) * 9 // 10])
    model = GPT(num_kv_heads=asked.num_kv_heads, window=asked.window)
    print(model.blocks[0].attention)
    train(model, learned, steps=asked.steps, seed=asked.seed)
    found, blind = held_out_loss(model, held_out), unigram_entropy(held_out)
    print(f"held-out loss {found:.3f}, by frequencies alone {blind:.3f} (unigram entropy), nats a character")
    print(sample(model, "The ", length=400, seed=asked.seed))


if __name__ == "__main__":
    main()
