"""What `headwise explain` can be given, by the subject that takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headwise.cli.explain_request import EXAMPLES

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help=f"{', '.join(EXAMPLES)}, or a model: a catalogue name, a folder, a file or a hub id.",
    ),
]

TokensOption = Annotated[
    list[str] | None,
    typer.Option(help="Tokens, separated by commas; may be given several times; cat,sat,mat if left out."),
]
DModelOption = Annotated[int, typer.Option(help="Width of a token's row, up to 256.")]
NumHeadsOption = Annotated[int, typer.Option(help="Query heads, up to 64.")]
NumKvHeadsOption = Annotated[int | None, typer.Option(help="Heads of key and value; num_heads if left out.")]
HeadDimOption = Annotated[
    int | None, typer.Option(help="Width of one head; d_model / num_heads if left out.")
]
SeedOption = Annotated[int, typer.Option(help="Of the random numbers.")]
CausalOption = Annotated[bool, typer.Option("--causal", help="A token sees itself and earlier ones only.")]
OutOption = Annotated[
    Path | None, typer.Option(help="Of two-heads: a page to write, in which any number can be changed.")
]

TextOption = Annotated[str | None, typer.Option(help="Of a model: what it reads, in quotes.")]
LayerOption = Annotated[int | None, typer.Option(help="Of a model: the layer, from 0.")]
HeadOption = Annotated[int | None, typer.Option(help="Of a model: the query head, from 0.")]
QueryOption = Annotated[
    int | None,
    typer.Option(
        help="Of a model: the token that looks, from 0 or -1 from the end; the last one if left out."
    ),
]
