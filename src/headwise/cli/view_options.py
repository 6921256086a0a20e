"""What `headwise view` can be given, by kind: what is read, what stands beside it, and what is looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from headwise.cli.view_request import DEFAULT_TEXT

_MODEL = "A catalogue name, a folder, a .safetensors or .gguf file, or a hub id."

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help=_MODEL)]
TextArgument = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="What the model reads, in quotes.", show_default=f"{DEFAULT_TEXT!r}"),
]
TextFileOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="A UTF-8 file in place of TEXT; - is standard input.")
]
ImageOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What a vision model reads, in place of TEXT.")
]
DecoderTextOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT", help="What the decoder of an encoder-decoder is given; what it writes if left out."
    ),
]

AgainstOption = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Another model to put beside it, on the same text.")
]
AgainstTextOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Another text to put beside it, by the same model.")
]
AgainstTextFileOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The same, from a UTF-8 file.")
]

LayerOption = Annotated[int | None, typer.Option(min=0, help="A layer to look at closely.")]
RowsOption = Annotated[
    str | None,
    typer.Option(
        metavar="I,J,...",
        help="Tokens whose weights are kept exactly in every layer, from 0 or with -1 from the end.",
    ),
]
ScoresOption = Annotated[
    bool,
    typer.Option("--scores", help="Also name the strongest previous-token, induction and other known heads."),
]
Part: TypeAlias = Literal["encoder", "decoder", "cross"]
PartOption = Annotated[
    Part | None, typer.Option(help="Of an encoder-decoder, which attention; cross if left out.")
]

OutOption = Annotated[
    Path | None, typer.Option(help="The page to write; headwise-MODEL.html if left out, none with --json.")
]
