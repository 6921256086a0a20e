"""What a probe asks of the attention under examination, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

# A result is read and shown without torch, which takes seconds to load.
if TYPE_CHECKING:
    import torch


class Form(Enum):
    """What the attention under examination is given.

    - HEADS: query, key and value already split into heads, `[batch, num_heads, seq_len, head_dim]`
    - WIDTH: query, key and value of full width, `[batch, seq_len, num_heads * head_dim]`, which it splits
    - PROJECTED: the token rows, `[batch, seq_len, d_model]`; it owns, or is given, the projections
    """

    HEADS = "heads"
    WIDTH = "width"
    PROJECTED = "projected"


class Role(Enum):
    """What an argument of the attention under examination means, whatever its name there."""

    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    MASK = "mask"  # boolean or float, over queries and keys
    PADDING = "padding"  # boolean, over keys, [batch, kv_len]
    BIAS = "bias"  # float, added to the scores
    CAUSAL = "causal"  # a flag
    WINDOW = "window"
    SOFTCAP = "softcap"
    SCALE = "scale"
    DROPOUT = "dropout"
    NUM_HEADS = "num_heads"
    NUM_KV_HEADS = "num_kv_heads"
    NEED_WEIGHTS = "need_weights"
    CACHE = "cache"  # what an earlier call returned beside its output


@dataclass(frozen=True)
class Sizes:
    """The sizes of heads; those of the tokens are the probe's."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    d_model: int


@dataclass(frozen=True, eq=False)
class Projection:
    """One linear map, `rows @ weight.T + bias`: weight `[out, in]`, bias `[out]` or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class Projections:
    """The maps of a PROJECTED attention; `output` is None where it holds none.

    Query, key and value hold one head after the other. Where they are one fused map, `fused` says how it was
    taken apart: `"blocks"` (all of query, then of key, then of value) or `"per head"` (each head's three
    together). It is None where they are separate.
    """

    query: Projection
    key: Projection
    value: Projection
    output: Projection | None
    fused: str | None = None


@dataclass(frozen=True, eq=False)
class Inputs:
    """One question: tensors with the axes that `Form` names, and what else is handed over, by role."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    options: Mapping[Role, Any] = field(default_factory=dict)
    training: bool = False  # the mode a module is put into


class Answer(NamedTuple):
    """What came back, in the axes of `Form`.

    - output `[batch, num_heads, seq_len, value_head_dim]` or `[batch, seq_len, width]`
    - weights, logsumexp: where it returns them; `cache`: whatever else it returned, handed over as it is
    - changed: which of its inputs it wrote into, by role or name; what was asked is kept safe from that
    - warnings: what it warned of meanwhile, each with its file and line
    """

    output: torch.Tensor
    weights: torch.Tensor | None = None
    logsumexp: torch.Tensor | None = None
    cache: Any = None
    changed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Subject(Protocol):
    """The attention under examination: a function or a module, ready to be asked.

    - takes: what it can be given. Without KEY it is handed `query` alone, for all three; without VALUE,
      `query` and `key`, which is then value too
    - axes: the order of axes it states of itself, as a `batch_first` attribute does; None if it states none
    - is_module: whether it has a training and an evaluation mode
    - lengths_may_differ: whether it can be given more keys than queries

    The numbers of heads are handed over by the subject itself, from `sizes`; any other option only if the
    probe has it.
    """

    @property
    def name(self) -> str: ...  # noqa: D102 - see above

    @property
    def form(self) -> Form: ...  # noqa: D102 - see above

    @property
    def sizes(self) -> Sizes: ...  # noqa: D102 - see above

    @property
    def takes(self) -> frozenset[Role]: ...  # noqa: D102 - see above

    @property
    def axes(self) -> str | None: ...  # noqa: D102 - see above

    @property
    def is_module(self) -> bool: ...  # noqa: D102 - see above

    @property
    def lengths_may_differ(self) -> bool: ...  # noqa: D102 - see above

    def projections(self) -> tuple[Projections, ...]:
        """Every way the weights can be read, likeliest first; empty unless PROJECTED."""

    def answer(self, inputs: Inputs, *, axes: str) -> Answer:
        """Ask once. `axes` is the order in which the subject is handed tensors.

        `"bhqd"` or `"bqhd"` for HEADS; `"bqd"` or `"qbd"` for the others. The answer is turned back. NaN is
        an answer too: some probes ask for it.

        Raises:
            SubjectError: it raised, or returned no tensor, another shape or integers.

        """
