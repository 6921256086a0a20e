"""What `check MODEL` finds, frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from headwise.models.attachment import Unseen

Matrix = Literal["query", "key", "value", "output"]
MATRICES: tuple[Matrix, ...] = ("query", "key", "value", "output")
WRITTEN: Mapping[Matrix, str] = MappingProxyType(
    {"query": "W_Q", "key": "W_K", "value": "W_V", "output": "W_O"}
)
"""What the matrices are called where people read of them."""

Kind = Literal[
    "attention-differs",
    "non-finite-input",
    "non-finite-weights",
    "kv-heads-tiled",
    "duplicate-layers",
    "duplicate-heads",
    "shared-weights",
    "duplicate-kv-heads",
    "dead-output",
    "dead-value",
    "dead-query",
    "dead-key",
    "silent-head",
    "kv-heads-repeated",
    "tied-layers",
]
"""What can be found; the last two are no faults and stand among the remarks."""


@dataclass(frozen=True)
class HeadPlace:
    """One head: the number of its layer, the path of the layer's module, and its own number."""

    layer: int
    name: str
    head: int


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    - layer, layer_name: where; None where it lies outside the attention layers
    - heads: the query heads it is about; kv_heads: the KV heads
    - matrices: the projections it is about
    - numbers: what was measured, by name
    - words: one sentence; mend: what to do, empty where there is nothing to say
    """

    kind: Kind
    layer: int | None
    layer_name: str | None
    words: str
    heads: tuple[HeadPlace, ...] = ()
    kv_heads: tuple[HeadPlace, ...] = ()
    matrices: tuple[Matrix, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    mend: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", MappingProxyType(dict(self.numbers)))


@dataclass(frozen=True)
class LayerCheck:
    """One attention layer.

    - error: largest difference of its attention's output from the definition in float64, on the very query,
      key, value, mask, bias, softcap, sinks and scale that it was given; allowed: by the tolerance rule
    - largest: largest value of the output; rows: how many query rows were compared
    - is_finite: whether query, key and value were; a layer that is given NaN cannot be judged
    - projections: path of the linear layer that makes each matrix, where it was found
    - not_found: why others were not, None where all were
    """

    layer: int
    name: str
    kind: Literal["self", "cross"]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    error: float
    allowed: float
    largest: float
    rows: int
    is_finite: bool
    projections: Mapping[Matrix, str]
    not_found: str | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "projections", MappingProxyType(dict(self.projections)))

    @property
    def is_right(self) -> bool:
        """Whether its attention is that of the definition."""
        return self.is_finite and self.error <= self.allowed


@dataclass(frozen=True)
class ModelCheck:
    """Whether a model's attention is right, and what is odd about its heads.

    - implementation: the attention functions it ran with, as it was loaded: `sdpa`, `eager` ...
    - text: what it read, None for random tokens or noise; num_tokens: how many places it read
    - layers: in the order in which they ran; unseen: modules that mix tokens and could not be examined
    - findings: what is wrong; remarks: what is worth knowing and no fault
    """

    model: str
    family: str
    implementation: str
    dtype: str
    text: str | None
    num_tokens: int
    seed: int
    layers: tuple[LayerCheck, ...]
    findings: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    unseen: tuple[Unseen, ...]

    @property
    def is_right(self) -> bool:
        """Whether nothing was found wrong."""
        return not self.findings
