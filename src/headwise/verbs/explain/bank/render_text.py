"""The example `bank` told in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.explain.bank.result import BankExplanation, Routing, ScalePoint, Spread
from headwise.verbs.explain.matrices import Labelled, four_decimals, print_side_by_side

THREE = "{:.3f}"


def print_bank(found: BankExplanation, console: Console) -> None:
    """Print the example to `console`."""
    first, second = found.wanted
    console.print(Text('One head or two: "The bank raised rates"', style="bold"))
    console.print(
        Text(
            f'For "{found.query_token}" two other tokens matter at once: "{first}" (what it did) and '
            f'"{second}" (to what). Each token\'s row has its role, which queries and keys are made '
            f"of, and its content, which is passed on. Contents are drawn with seed "
            f"{found.seed}; every number below is computed."
        )
    )
    _heading("1. What each token has to tell", console)
    columns = [f"c{column}" for column in range(found.contents.shape[1])]
    print_side_by_side(found.tokens, [Labelled("contents", found.contents, columns)], console)
    _tell_weights(found, console)
    _tell_arrivals(found, columns, console)
    _tell_shares(found, console)
    _tell_scaling(found, console)


def _tell_weights(found: BankExplanation, console: Console) -> None:
    one, two = found.one.heads[0], found.two.heads
    _heading(f'2. What "{found.query_token}" looks at', console)
    console.print(
        Text(
            f"A token that is asked for scores {found.strength:g} after scaling, the others 0. One head "
            f"(width {one.head_dim}) has one row of weights, and asks for both; two heads (width "
            f"{two[0].head_dim} each, the same size together) ask for one each."
        )
    )
    console.print()
    names = ["one head", *(f"head {place} of two" for place in range(len(two)))]
    heads = [one, *two]
    print_side_by_side(
        names,
        [
            Labelled("scaled", np.stack([head.scaled for head in heads]), found.tokens),
            Labelled("weights", np.stack([head.weights for head in heads]), found.tokens),
        ],
        console,
    )
    console.print()
    console.print(
        Text(
            f"Weights sum to 1, so that one head gives at most half to the weaker of two wishes: here "
            f"{four_decimals(one.weights.max())} each. Two heads give "
            f"{four_decimals(two[0].weights.max())} to either."
        )
    )


def _tell_arrivals(found: BankExplanation, columns: Sequence[str], console: Console) -> None:
    first, second = found.wanted
    _heading(f'3. What arrives at "{found.query_token}" in this sentence', console)
    console.print(
        Text(
            f'Wanted are the contents of "{first}" and of "{second}", each in a place of its own. Beside '
            "them what the best output projection W_O makes of the heads' outputs."
        )
    )
    console.print()
    wanted = found.contents[[found.tokens.index(token) for token in found.wanted]]
    arrived = {"wanted": wanted, "from one head": found.one.delivered, "from two heads": found.two.delivered}
    print_side_by_side(
        found.wanted, [Labelled(name, matrix, columns) for name, matrix in arrived.items()], console
    )
    console.print()
    console.print(
        Text(
            "One head hands over the two contents mixed, and says almost the same of both. No W_O can part "
            f'what was added up before it: with the contents of "{first}" and "{second}" exchanged, equal '
            "weights give the same sum."
        )
    )


def _tell_shares(found: BankExplanation, console: Console) -> None:
    _heading("4. How much of each wish gets through", console)
    console.print(
        Text(
            "The share of a token's content that can be told from the heads' outputs: by formula, and "
            f"measured on {found.sentences:,} drawn sentences with W_O fitted on {found.sentences:,} others."
        )
    )
    console.print()
    console.print(_table(["", *found.wanted, "all tokens"], _share_rows(found)))
    console.print()
    console.print(
        Text(
            "Over all tokens the shares add up to the number of heads: one head tells one token's worth, "
            "however wide it is and whatever it asks for. Asking for one more strongly takes from the other:"
        )
    )
    console.print()
    rows = (
        [
            f"{1 - mix.second:.2f} : {mix.second:.2f}",
            *(THREE.format(mix.weights[found.tokens.index(token)]) for token in found.wanted),
            *(THREE.format(share) for share in mix.exact),
            THREE.format(mix.exact.mean()),
        ]
        for mix in found.mixes
    )
    header = ["one head asks", *(f"weight {token}" for token in found.wanted)]
    console.print(_table([*header, *(f"told of {token}" for token in found.wanted), "mean"], rows))


def _share_rows(found: BankExplanation) -> Iterator[list[str]]:
    places = [found.tokens.index(token) for token in found.wanted]
    for name, routing in (("one head", found.one), ("two heads", found.two)):
        yield _shares(f"{name}, formula", routing, routing.exact, places)
        yield _shares(f"{name}, measured", routing, routing.measured, places)


def _shares(name: str, routing: Routing, shares: np.ndarray, places: Sequence[int]) -> list[str]:
    return [name, *(THREE.format(shares[place]) for place in places), THREE.format(shares.sum())]


def _tell_scaling(found: BankExplanation, console: Console) -> None:
    _heading("5. Why scores are divided by sqrt(head_dim)", console)
    console.print(
        Text(
            f"Queries and keys drawn from a standard normal, {found.draws} queries with {found.keys} keys "
            "each. A score is a sum of head_dim products, so that it spreads as sqrt(head_dim). The entropy "
            f"of equal weights is {np.log(found.keys):.3f} nats, of one weight 0. The gradient is the norm "
            "of the derivatives of the weights by what goes into the softmax. Median, percentiles 10 and 90."
        )
    )
    console.print()
    for name, plain, scaled in (
        ("entropy in nats", "entropy", "entropy_scaled"),
        ("gradient norm", "gradient", "gradient_scaled"),
    ):
        rows = (
            [
                str(point.head_dim),
                f"{point.deviation:.2f}",
                _spread(getattr(point, plain)),
                _spread(getattr(point, scaled)),
            ]
            for point in found.scaling
        )
        console.print(_table(["head_dim", "spread of scores", f"{name}, undivided", "divided"], rows))
        console.print()
    narrow, wide = found.scaling[0], found.scaling[-1]
    console.print(Text(_conclusion(narrow, wide)))


def _conclusion(narrow: ScalePoint, wide: ScalePoint) -> str:
    return (
        f"From head_dim {narrow.head_dim} to {wide.head_dim} the median entropy goes from "
        f"{narrow.entropy.median:.3f} to {wide.entropy.median:.3f} undivided, and from "
        f"{narrow.entropy_scaled.median:.3f} to {wide.entropy_scaled.median:.3f} divided; the gradient from "
        f"{narrow.gradient.median:.3f} to {wide.gradient.median:.2g} undivided, and from "
        f"{narrow.gradient_scaled.median:.3f} to {wide.gradient_scaled.median:.3f} divided. Undivided, a "
        "wide head looks at one token only, and almost no gradient is left to teach it another."
    )


def _spread(spread: Spread) -> str:
    return f"{spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})"


def _table(header: Sequence[str], rows: Iterator[list[str]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(header):
        table.add_column(Text(name, style="dim"), justify="right" if place else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _heading(heading: str, console: Console) -> None:
    console.print()
    console.print(Text(heading, style="bold"))
