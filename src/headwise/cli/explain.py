"""The command `headwise explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from headwise.cli import explain_options as given
from headwise.cli.explain_request import MODEL, check_asked, check_options, check_subject
from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.cli.page_path import checked_page_path
from headwise.cli.view import progress
from headwise.models.given_text import check_text
from headwise.verbs.terminal import printable

DEFAULT_TOKENS = ["cat", "sat", "mat"]


def explain_command(
    context: typer.Context,
    subject: given.SubjectArgument,
    *,
    tokens: given.TokensOption = None,
    d_model: given.DModelOption = 4,
    num_heads: given.NumHeadsOption = 2,
    num_kv_heads: given.NumKvHeadsOption = None,
    head_dim: given.HeadDimOption = None,
    seed: given.SeedOption = 3,
    causal: given.CausalOption = False,
    text: given.TextOption = None,
    layer: given.LayerOption = None,
    head: given.HeadOption = None,
    query: given.QueryOption = None,
    out: given.OutOption = None,
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
    elif kind == "bank":
        _explain_bank(seed, as_json=as_json)
    else:
        _explain_two_heads(
            out,
            as_json=as_json,
            tokens=DEFAULT_TOKENS if tokens is None else _split_at_commas(tokens),
            d_model=d_model,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            seed=seed,
            causal=causal,
        )


def _explain_two_heads(out: Path | None, *, as_json: bool, **asked: Any) -> None:
    # Here and not above, for `plan` and `--help` need no NumPy.
    from headwise.verbs.explain import explain_two_heads
    from headwise.verbs.explain.render_json import to_json
    from headwise.verbs.explain.render_text import print_explanation

    found = explain_two_heads(**asked)
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


def _split_at_commas(tokens: list[str]) -> list[str]:
    return [token.strip() for several in tokens for token in several.split(",")]
