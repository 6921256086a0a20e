"""What `headwise check` can be given, by the form of the command that takes it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Alignment = Literal["lower_right", "upper_left"]
Axes = Literal["bhqd", "bqhd", "bqd", "qbd"]
MaskMeans = Literal["attend", "ignore", "add"]
Pairing = Literal["half_split", "interleaved"]

TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE.py:NAME | MODEL]",
        help="A function, class or module in a Python file; or a model: a catalogue name, a folder, a file "
        "or a hub id.",
        show_default=False,
    ),
]
MachineOption = Annotated[
    bool, typer.Option("--machine", help="Every attention backend on this machine, and nothing else.")
]
TextOption = Annotated[
    str | None, typer.Option(help="Of a model: what it reads, in quotes; a sample if left out.")
]

NumHeadsOption = Annotated[int | None, typer.Option(help="Of a file: query heads.")]
NumKvHeadsOption = Annotated[int | None, typer.Option(help="Of a file: heads of key and value.")]
HeadDimOption = Annotated[int | None, typer.Option(help="Of a file: width of a head of query and key.")]
ValueHeadDimOption = Annotated[int | None, typer.Option(help="Of a file: width of a head of value.")]
DModelOption = Annotated[int | None, typer.Option(help="Of a file: width of a token's row.")]
CausalOption = Annotated[
    bool | None,
    typer.Option(
        "--causal/--no-causal",
        help="Of a file: a token is to see itself and earlier ones only, or all; either if left out.",
        show_default=False,
    ),
]
CausalAlignOption = Annotated[
    Alignment | None,
    typer.Option(
        help="Of a file: causal, and which corner of the scores its mask ends in where lengths differ."
    ),
]
WindowOption = Annotated[int | None, typer.Option(help="Of a file: keys a token is to see, itself included.")]
SoftcapOption = Annotated[float | None, typer.Option(help="Of a file: bound of the soft-capped scores.")]
ScaleOption = Annotated[
    float | None, typer.Option(help="Of a file: what multiplies query . key, if not 1 / sqrt(head_dim).")
]
RopeOption = Annotated[
    Pairing | None,
    typer.Option(help="Of a file: it applies rotary positions itself, turning these elements together."),
]
RopeBaseOption = Annotated[
    float | None, typer.Option(help="Of a file, with --rope: the base of its angles, 10000 if left out.")
]
AxesOption = Annotated[
    Axes | None,
    typer.Option(help="Of a file: order of its tensors' axes; b batch, h heads, q tokens, d width."),
]
MaskMeansOption = Annotated[
    MaskMeans | None,
    typer.Option(help="Of a file: what True in its mask says, or that a float mask is added to the scores."),
]
ArgumentOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="THEIRS=ROLE",
        help="Of a file: what an argument of it means, as in attn_bias=mask, or its value, as in "
        "layer_index=0; may be given several times.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(help="Of the random inputs of a file, and of the tokens of a model without a tokenizer."),
]
TimeLimitOption = Annotated[
    float, typer.Option(metavar="SECONDS", help="Of a file: how long it may run, checking included.")
]
