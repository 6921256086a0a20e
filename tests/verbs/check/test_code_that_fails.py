"""User code that cannot be judged: `check` says what it did, in which line, and what it was asked with."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from headwise.errors import ArgumentError, SubjectError
from headwise.verbs.check import check

HEAD = "import math\nimport torch\n\n\ndef attend(query, key, value):\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Any]:
    """A function whose body is given, in a file of the user's, as its line is part of the message."""

    def function(body: str) -> Any:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
        spec = importlib.util.spec_from_file_location("mine", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.attend

    return function


ATTEND = "torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1) @ value"
ONE_KV_HEAD = (
    "key, value = (rows.repeat_interleave(query.shape[1] // rows.shape[1], 1) for rows in (key, value))\n"
)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('rope_theta')", r"raised KeyError: 'rope_theta' at .*mine\.py:6 \(raise KeyError"),
        ("scores = query @ key\nreturn scores", r"raised RuntimeError: .* at .*mine\.py:6 \(scores ="),
        (
            "query.no_such_method()",
            r"raised AttributeError: 'Tensor' object has no attribute 'no_such_method' at .*mine\.py:6",
        ),
        ("raise SystemExit(3)", r"raised SystemExit: 3 at .*mine\.py:6"),
        ("import nothing_here", r"raised ModuleNotFoundError: No module named 'nothing_here'"),
        ("return None", r"attend returned None, no tensor; it was asked with"),
        ("return 'done'", r"attend returned str done, no tensor"),
        ("return query.shape", r"no tensor"),
        (f"{ONE_KV_HEAD}return ({ATTEND}).sum(-1)", r"returned a tensor \[.*the output must have the shape"),
        (f"{ONE_KV_HEAD}return ({ATTEND}).to(torch.int64)", r"torch\.int64; the output must be"),
    ],
    ids=[
        "an exception", "sizes that do not fit", "no such method", "an exit", "no such package", "nothing",
        "words", "a shape", "a sum", "integers",
    ],
)  # fmt: skip
def test_what_a_function_did_is_said(written: Callable[[str], Any], body: str, message: str) -> None:
    with pytest.raises(SubjectError, match=message):
        check(written(body))


def test_message_tells_what_it_was_asked_with(written: Callable[[str], Any]) -> None:
    with pytest.raises(SubjectError, match=r"it was asked with query=float32 \[\d+, \d+, \d+, \d+\], key="):
        check(written("raise ValueError"))


def test_nan_is_an_answer_that_is_wrong(written: Callable[[str], Any]) -> None:
    result = check(
        written("return query * float('nan')"), num_kv_heads=6, num_heads=6, value_head_dim=7, head_dim=7
    )
    assert not result.is_right
    assert result.explanations == ()


def test_an_output_beside_weights_is_found_in_a_tuple(written: Callable[[str], Any]) -> None:
    body = f"{ONE_KV_HEAD}weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1)\n"
    result = check(written(f"{body}return weights @ value, weights, None"))
    assert result.is_right, result


class Half(nn.Module):
    """It fails in its own forward, behind its projections."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads = 3
        self.qkv = nn.Linear(21, 63)
        self.proj = nn.Linear(20, 21)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 3, 7)).permute(2, 0, 3, 1, 4)
        heads: torch.Tensor = torch.softmax(q @ k.mT / 7**0.5, dim=-1) @ v
        return self.proj(heads.transpose(1, 2).flatten(2))


def test_a_module_that_fails_names_its_line() -> None:
    with pytest.raises((SubjectError, ArgumentError), match=r"Half"):
        check(Half())


@pytest.mark.parametrize("target", [3, "attention", None, torch.ones(2)], ids=repr)
def test_what_cannot_be_called_is_refused(target: Any) -> None:
    with pytest.raises(ArgumentError, match="which cannot be called; pass a function, a module"):
        check(target)
