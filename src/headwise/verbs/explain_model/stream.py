"""The residual stream at one position: what blocks read and wrote, and what the final norm made of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from headwise.models.attachment import AttachedLayer
from headwise.verbs.explain.result import Matrix
from headwise.verbs.explain_model.one_head import doubles


@dataclass
class Stream:
    """Rows of one position, `[d_model]` each, by the path of the module.

    - read, written: of each block; children: of a block's parts that are not its attention, by block
    - norms: what norms outside the blocks read and wrote
    - unembedded: what the unembedding read and wrote
    """

    blocks: list[str]
    read: dict[str, Matrix] = field(default_factory=dict)
    written: dict[str, Matrix] = field(default_factory=dict)
    children: dict[str, dict[str, Matrix]] = field(default_factory=dict)
    norms: dict[str, tuple[Matrix, Matrix]] = field(default_factory=dict)
    unembedded: tuple[Matrix, Matrix] | None = None


@contextmanager
def watching_stream(
    model: PreTrainedModel, layers: tuple[AttachedLayer, ...], position: int
) -> Iterator[Stream]:
    """Write down the residual stream at `position` while the model runs."""
    stream = Stream([block_of(model, layer) for layer in layers])
    unembedding = model.get_output_embeddings()

    def on_block(name: str) -> Any:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            given = args[0] if args else kwargs.get("hidden_states")
            _put(stream.read, name, given, position)
            _put(stream.written, name, output, position)

        return hook

    def on_child(block: str, name: str) -> Any:
        return lambda module, args, output: _put(
            stream.children.setdefault(block, {}), name, output, position
        )

    def on_norm(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            before, after = (row_of(each, position) for each in (args[0] if args else None, output))
            if before is not None and after is not None:
                stream.norms[name] = before, after

        return hook

    def on_unembedding(module: nn.Module, args: Any, output: Any) -> None:
        before, after = (row_of(each, position) for each in (args[0] if args else None, output))
        if before is not None and after is not None:
            stream.unembedded = before, after

    with ExitStack() as cleanup:
        for block, layer in zip(stream.blocks, layers, strict=True):
            module = model.get_submodule(block)
            cleanup.callback(module.register_forward_hook(on_block(block), with_kwargs=True).remove)
            for name, child in module.named_children():
                path = f"{block}.{name}"
                if not f"{layer.name}.".startswith(f"{path}.") and not _is_norm(child):
                    cleanup.callback(child.register_forward_hook(on_child(block, path)).remove)
        for name, module in model.named_modules():
            inside = any(f"{name}.".startswith(f"{block}.") for block in stream.blocks)
            if _is_norm(module) and not inside:
                cleanup.callback(module.register_forward_hook(on_norm(name)).remove)
        if unembedding is not None:
            cleanup.callback(unembedding.register_forward_hook(on_unembedding).remove)
        yield stream


def block_of(model: nn.Module, layer: AttachedLayer) -> str:
    """Return the path of the block that a layer is in: its ancestor that stands in a list of modules."""
    parts = layer.name.split(".")
    for length in range(len(parts), 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: length - 1])), nn.ModuleList):
            return ".".join(parts[:length])
    return layer.name


def row_of(given: Any, position: int) -> Matrix | None:
    """Return the row of a position from `[1, seq_len, width]`, or the only row; None from anything else."""
    tensor = given[0] if isinstance(given, tuple) and given else given
    if not torch.is_tensor(tensor) or tensor.dim() not in {2, 3}:
        return None
    rows = tensor.reshape(-1, tensor.shape[-1])
    return (
        doubles(rows[0 if len(rows) == 1 else position]) if position < len(rows) or len(rows) == 1 else None
    )


def _put(rows: dict[str, Matrix], name: str, given: Any, position: int) -> None:
    row = row_of(given, position)
    if row is not None:
        rows[name] = row


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower()
