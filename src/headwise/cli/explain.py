"""The command `headwise explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.errors import ArgumentError

SUBJECTS = ("two-heads",)
DEFAULT_TOKENS = ["cat", "sat", "mat"]


def explain_command(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help=f"What to explain: {', '.join(SUBJECTS)}.")
    ],
    *,
    tokens: Annotated[
        list[str] | None,
        typer.Option(
            help="Tokens, separated by commas; may be given several times; cat,sat,mat if left out."
        ),
    ] = None,
    d_model: Annotated[int, typer.Option(help="Width of a token's row, up to 256.")] = 4,
    num_heads: Annotated[int, typer.Option(help="Query heads, up to 64.")] = 2,
    num_kv_heads: Annotated[
        int | None, typer.Option(help="Heads of key and value; num_heads if left out.")
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(help="Width of one head; d_model / num_heads if left out.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random weights.")] = 3,
    causal: Annotated[
        bool, typer.Option("--causal", help="A token sees itself and earlier ones only.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how attention arrives at its numbers.

    `two-heads`: every step of a small example with its shapes and numbers, from the input to the output.
    """
    if subject not in SUBJECTS:
        raise ArgumentError(f"there is nothing named {subject!r} to explain; there is: {', '.join(SUBJECTS)}")
    # Here and not above, for `plan` and `--help` need no NumPy.
    from headwise.verbs.explain import explain_two_heads
    from headwise.verbs.explain.render_json import to_json
    from headwise.verbs.explain.render_text import print_explanation

    found = explain_two_heads(
        tokens=DEFAULT_TOKENS if tokens is None else _split_at_commas(tokens),
        d_model=d_model,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        seed=seed,
        causal=causal,
    )
    if as_json:
        write_json(to_json(found))
    else:
        print_explanation(found, console())


def _split_at_commas(given: list[str]) -> list[str]:
    return [token.strip() for several in given for token in several.split(",")]
