"""Compile a block with `hw.MultiHeadAttention` as one graph, forward and backward.

    python examples/compile.py [--backend aot_eager]

`fullgraph=True` refuses what could only be compiled in pieces; attention is one operator to torch, so nothing
is refused. The backend `aot_eager` traces both passes and runs their operators as they are: it needs nothing
but torch. With a C++ compiler, `--backend inductor` writes new code for all that stands around the attention.
"""

import argparse
import copy

import torch
from gpt import D_MODEL, Block
from torch import Tensor, nn


def passed(block: nn.Module, given: Tensor) -> list[Tensor]:
    """Return the output of `block` and the gradients of its parameters for a fixed upstream gradient."""
    output: Tensor = block(given)
    upstream = torch.linspace(-1, 1, output.numel()).view_as(output)
    return [output.detach(), *torch.autograd.grad(output, list(block.parameters()), upstream)]


def main() -> None:
    """Compile, run both, and print how far apart they are."""
    parser = argparse.ArgumentParser(description="Compile a block and compare it with itself.")
    parser.add_argument("--backend", default="aot_eager", help="a backend of torch.compile (aot_eager)")
    asked = parser.parse_args()
    torch.manual_seed(0)
    block = Block(num_kv_heads=2, window=32)
    compiled = copy.deepcopy(block)
    compiled.compile(fullgraph=True, backend=asked.backend)
    for seq_len in (128, 97, 61):
        given = torch.randn(2, seq_len, D_MODEL)
        pairs = zip(passed(compiled, given), passed(block, given), strict=True)
        output, *gradients = ((found - exact).abs().max().item() for found, exact in pairs)
        print(f"{seq_len} tokens: output off by {output:.1e}, gradients by {max(gradients):.1e} at most")


if __name__ == "__main__":
    main()
