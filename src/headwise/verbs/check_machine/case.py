"""One question of the conformance set: sizes, mask and all that is handed over, told as Python source.

What the tests of a machine print must be what they ran. So a case holds no tensors but the source that makes
them, and a backend adds the source that calls it: the whole is one line, which is executed as it is printed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Align = Literal["lower_right", "upper_left"]
Wants = Literal["output", "logsumexp", "gradients"]

# Statements that every line begins with; the seed is any number, but the same on every machine.
SEEDED = ("import torch", "torch.manual_seed(3)")


@dataclass(frozen=True)
class Case:
    """One attention call. Its line knows `q`, `k`, `v`; `mask`, `bias`, `sinks`, `up` where it has them.

    - causal, window (a causal one, the query's own key included), right_padded and left_padded (real keys of
      each batch element), documents (lengths): masks that a backend may have words of its own for
    - visible: source of any other boolean mask, True where attention may go
    - bias: source of a float mask, or of what is added to the scores; bias_is_learned: it has a gradient
    - tensors: source of `q, k, v` where it is not normally distributed numbers
    - then: statements that come after `q, k, v` are made
    - self_attention: key and value are the query itself
    - poisoned: what stands in hidden places is not finite
    - infinite: visible places hold infinity
    - compiled: whether it is asked of backends that need seconds to compile for each
    """

    group: str
    name: str
    batch: int = 2
    num_heads: int = 4
    num_kv_heads: int = 4
    seq_len: int = 11
    kv_len: int = 11
    head_dim: int = 16
    value_head_dim: int = 16
    dtype: str = "float32"
    causal: bool = False
    window: int | None = None
    right_padded: tuple[int, ...] | None = None
    left_padded: tuple[int, ...] | None = None
    documents: tuple[int, ...] | None = None
    visible: str | None = None
    bias: str | None = None
    bias_is_learned: bool = False
    softcap: float | None = None
    sinks: bool = False
    tensors: str | None = None
    then: tuple[str, ...] = ()
    wants: Wants = "output"
    self_attention: bool = False
    poisoned: bool = False
    infinite: bool = False
    compiled: bool = False

    @property
    def is_structured(self) -> bool:
        """Whether a part of its mask can be said without a tensor."""
        parts = (self.window, self.right_padded, self.left_padded, self.documents)
        return self.causal or any(part is not None for part in parts)

    @property
    def has_mask(self) -> bool:
        """Whether it has a boolean mask of any kind."""
        return self.is_structured or self.visible is not None

    @property
    def is_only_causal(self) -> bool:
        """Whether its mask is causal and nothing else, so that a flag can say it."""
        return self.causal and self.bias is None and "&" not in self.whole_mask()

    @property
    def is_grouped(self) -> bool:
        """Whether query heads share KV heads."""
        return self.num_heads != self.num_kv_heads

    @property
    def full_shape(self) -> str:
        """The shape of its scores, as source."""
        return f"{self.batch}, {self.num_heads}, {self.seq_len}, {self.kv_len}"

    def without_padding(self) -> Case:
        """Return the case with every key of every batch element real."""
        return replace(self, right_padded=None, left_padded=None)

    def setup(self) -> Iterator[str]:
        """Yield the statements that make its tensors; structured masks are the backend's to say."""
        yield from SEEDED
        yield f"q, k, v = {self.tensors or self._random()}"
        if self.self_attention:
            yield "k = v = q"
        if self.dtype != "float32":
            yield f"q, k, v = (x.to(torch.{self.dtype}) for x in (q, k, v))"
        yield from self.then
        if self.visible is not None:
            yield f"mask = {self.visible}"
        if self.bias is not None:
            yield f"bias = ({self.bias}).to(q.dtype)"
        if self.sinks:
            yield f"sinks = torch.randn({self.num_heads})"
        if self.wants == "gradients":
            shape = (self.batch, self.num_heads, self.seq_len, self.value_head_dim)
            yield f"up = torch.randn{shape}.to(q.dtype)"
            yield f"[x.requires_grad_() for x in ({', '.join(self.differentiated)})]"

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The tensors whose gradients are wanted."""
        return ("q", "k", "v", "bias") if self.bias_is_learned else ("q", "k", "v")

    def whole_mask(self, align: Align = "lower_right") -> str:
        """Return its mask, structured parts and tensor together, as source of one boolean tensor."""
        parts = list(self._structured(self.kv_len - self.seq_len if align == "lower_right" else 0))
        if self.visible is not None:
            parts.append("mask")
        return " & ".join(parts)

    def _structured(self, offset: int) -> Iterator[str]:
        ones, keys = (
            f"torch.ones({self.seq_len}, {self.kv_len}, dtype=torch.bool)",
            f"torch.arange({self.kv_len})",
        )
        if self.causal:
            yield f"{ones}.tril({offset})"
        if self.window is not None:
            yield f"{ones}.tril({offset}).triu({offset - self.window + 1})"
        if self.right_padded is not None:
            yield f"({keys} < torch.tensor({[*self.right_padded]})[:, None, None, None])"
        if self.left_padded is not None:
            first = [self.kv_len - real for real in self.left_padded]
            yield f"({keys} >= torch.tensor({first})[:, None, None, None])"
        if self.documents is not None:
            numbers = [number for number, length in enumerate(self.documents) for _ in range(length)]
            yield f"(torch.tensor({numbers})[:, None] == torch.tensor({numbers}))"

    def _random(self) -> str:
        """Return normally distributed numbers, the queries times 3: flat weights would hide a wrong mask."""
        query = (self.batch, self.num_heads, self.seq_len, self.head_dim)
        key = (self.batch, self.num_kv_heads, self.kv_len, self.head_dim)
        value = (self.batch, self.num_kv_heads, self.kv_len, self.value_head_dim)
        return f"3 * torch.randn{query}, torch.randn{key}, torch.randn{value}"
