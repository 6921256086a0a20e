"""The command `headwise explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.explain_request import OPTIONS_OF, check_options, check_subject
from headwise.cli.options import DebugOption, JsonOption, console, write_json

DEFAULT_TOKENS = ["cat", "sat", "mat"]


def explain_command(
    context: typer.Context,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help=f"What to explain: {', '.join(OPTIONS_OF)}.")
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
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 3,
    causal: Annotated[
        bool, typer.Option("--causal", help="A token sees itself and earlier ones only.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how attention arrives at its numbers.

    `two-heads`: every step of a small example with its shapes and numbers, from the input to the output.

    `bank`: what one head can fetch for "bank" in "The bank raised rates", and what two can; and why scores
    are divided by sqrt(head_dim).
    """
    check_subject(subject)
    check_options(subject, context)
    if subject == "bank":
        _explain_bank(seed, as_json=as_json)
        return
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


def _explain_bank(seed: int, *, as_json: bool) -> None:
    # NumPy again.
    from headwise.verbs.explain.bank import explain_bank
    from headwise.verbs.explain.bank.render_json import to_json
    from headwise.verbs.explain.bank.render_text import print_bank

    found = explain_bank(seed=seed)
    if as_json:
        write_json(to_json(found))
    else:
        print_bank(found, console())


def _split_at_commas(given: list[str]) -> list[str]:
    return [token.strip() for several in given for token in several.split(",")]
