"""What `explain bank` finds: frozen, every array read-only."""

from __future__ import annotations

from dataclasses import dataclass

from headwise.verbs.explain.result import Matrix, freeze_matrices


@dataclass(frozen=True, eq=False)
class BankHead:
    """One head that looks from the query's token.

    - wishes: the tokens that it asks for
    - query `[head_dim]`, key `[tokens, head_dim]`, scaled and weights `[tokens]`
    - output `[content_width]`: the contents of the tokens, mixed by the weights
    """

    wishes: tuple[str, ...]
    head_dim: int
    query: Matrix
    key: Matrix
    scaled: Matrix
    weights: Matrix
    output: Matrix

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True, eq=False)
class Routing:
    """What some heads bring to the query's token.

    - delivered `[wishes, content_width]`: what the best output projection makes of this sentence
    - measured `[tokens]`: share of each token's content, over drawn sentences, that the heads' outputs tell
      by the best output projection, fitted on other sentences
    - exact `[tokens]`: the same share by formula; it adds up to the number of heads that differ
    """

    heads: tuple[BankHead, ...]
    delivered: Matrix
    measured: Matrix
    exact: Matrix

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True, eq=False)
class Mix:
    """One head that asks for the two wishes in another proportion.

    - second: how strongly it asks for the second wish; the first is asked for with 1 - `second`
    - weights `[tokens]`
    - exact `[wishes]`: share of each wish's content that its output tells
    """

    second: float
    weights: Matrix
    exact: Matrix

    def __post_init__(self) -> None:
        freeze_matrices(self)


@dataclass(frozen=True)
class Spread:
    """A measure over many draws: its tenth, fiftieth and ninetieth percentile."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class ScalePoint:
    """Softmax over drawn scores at one width of the head.

    - deviation: standard deviation of the scores `query . key`, undivided
    - entropy, entropy_scaled: of the softmax of the scores, and of the scores / sqrt(head_dim); nats
    - gradient, gradient_scaled: Frobenius norm of the derivatives of its weights by what goes into it
    """

    head_dim: int
    deviation: float
    entropy: Spread
    entropy_scaled: Spread
    gradient: Spread
    gradient_scaled: Spread


@dataclass(frozen=True, eq=False)
class BankExplanation:
    """The whole example.

    - contents `[tokens, content_width]`: what each token has to tell in this sentence
    - wanted: the two tokens whose content the query's token asks for
    - strength: the scaled score of a token that is asked for; others score 0
    - sentences: how many were drawn to fit the output projections, and as many again to measure
    - mixes: one head at several proportions of the two wishes
    - scaling: ascending by head_dim, over `draws` queries and `keys` keys each
    """

    tokens: tuple[str, ...]
    query_token: str
    wanted: tuple[str, str]
    seed: int
    strength: float
    sentences: int
    contents: Matrix
    one: Routing
    two: Routing
    mixes: tuple[Mix, ...]
    draws: int
    keys: int
    scaling: tuple[ScalePoint, ...]

    def __post_init__(self) -> None:
        freeze_matrices(self)
