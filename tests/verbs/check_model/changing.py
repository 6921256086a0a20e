"""Changing single heads of a model in memory, by the names that its family gives its projections."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from rich.console import Console
from torch import nn

from headwise.verbs.check_model import ModelCheck
from headwise.verbs.check_model.render_text import print_model_check


@contextmanager
def put_back(*modules: nn.Module) -> Iterator[None]:
    """Put the weights of modules back as they were, for models that several tests share."""
    before = [(parameter, parameter.detach().clone()) for each in modules for parameter in each.parameters()]
    try:
        with torch.no_grad():
            yield
    finally:
        with torch.no_grad():
            for parameter, numbers in before:
                parameter.copy_(numbers)


def rows(linear: nn.Linear, head: int, width: int) -> torch.Tensor:
    """The rows of a projection of query, key or value that are one head's."""
    return linear.weight[head * width : (head + 1) * width]


def columns(linear: nn.Linear, head: int, width: int) -> torch.Tensor:
    """The slice of an output projection that is one head's."""
    return linear.weight[:, head * width : (head + 1) * width]


def copy_head(linear: nn.Linear, source: int, target: int, width: int) -> None:
    """Copy one head of a projection of query, key or value onto another, bias and all."""
    rows(linear, target, width).copy_(rows(linear, source, width).clone())
    if linear.bias is not None:
        begin = target * width
        linear.bias[begin : begin + width] = linear.bias[source * width : (source + 1) * width].clone()


def told(found: ModelCheck, width: int = 110) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, markup=False, highlight=False, emoji=False)
    print_model_check(found, console)
    return stream.getvalue()


def said(found: ModelCheck) -> list[tuple[str, int | None, tuple[int, ...], tuple[str, ...]]]:
    """Kind, layer, heads and matrices of every finding."""
    return [
        (each.kind, each.layer, tuple(place.head for place in each.heads), each.matrices)
        for each in found.findings
    ]
