"""The command `headwise explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.explain_request import EXAMPLES, MODEL, check_asked, check_options, check_subject
from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.cli.page_path import checked_page_path
from headwise.cli.view import progress
from headwise.models.given_text import check_text
from headwise.verbs.terminal import printable

DEFAULT_TOKENS = ["cat", "sat", "mat"]


def explain_command(
    context: typer.Context,
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help=f"{', '.join(EXAMPLES)}, or a model: a catalogue name, a folder, a file or a hub id.",
        ),
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
    text: Annotated[str | None, typer.Option(help="Of a model: what it reads, in quotes.")] = None,
    layer: Annotated[int | None, typer.Option(help="Of a model: the layer, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="Of a model: the query head, from 0.")] = None,
    query: Annotated[
        int | None,
        typer.Option(
            help="Of a model: the token that looks, from 0 or -1 from the end; the last one if left out."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Of two-heads: a page to write, in which any number can be changed."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how attention arrives at its numbers.

    `two-heads`: every step of a small example with its shapes and numbers, from the input to the output; with
    --out also as a page where changing a number computes everything again.

    `bank`: what one head can fetch for "bank" in "The bank raised rates", and what two can; and why scores
    are divided by sqrt(head_dim).

    A model, with --text, --layer and --head: one call traced from the text to the next token, with what each
    head adds to the residual stream and to the logit of the likeliest next token.
    """
    kind = check_subject(subject)
    check_options(kind, context)
    if kind == MODEL:
        check_asked({"text": text, "layer": layer, "head": head})
        _explain_model(subject, text or "", layer or 0, head or 0, query=query, as_json=as_json)
        return
    if kind == "bank":
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
    if out is not None:
        from headwise.verbs.explain.render_page import write_page

        write_page(found, checked_page_path(out, such_as="two-heads.html"))
    if as_json:
        write_json(to_json(found, page=out))
        return
    print_explanation(found, console())
    if out is not None:
        console().print(f"Page: {printable(str(out))}")


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


def _explain_model(model: str, text: str, layer: int, head: int, *, query: int | None, as_json: bool) -> None:
    check_text(text)
    with progress() as notify:
        # torch takes seconds to load, and what is wrong by itself is told at once.
        from headwise.verbs.explain_model import explain_model
        from headwise.verbs.explain_model.render_json import to_json
        from headwise.verbs.explain_model.render_text import print_trace

        found = explain_model(model, text, layer=layer, head=head, query=query, notify=notify)
    if as_json:
        write_json(to_json(found))
    else:
        print_trace(found, console())


def _split_at_commas(given: list[str]) -> list[str]:
    return [token.strip() for several in given for token in several.split(",")]
