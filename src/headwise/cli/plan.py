"""The command `headwise plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from headwise.cli.options import DebugOption, JsonOption, console, write_json
from headwise.verbs.plan import plan
from headwise.verbs.plan.compute import BYTES_PER_ELEMENT
from headwise.verbs.plan.render_json import to_json
from headwise.verbs.plan.render_text import print_plan

_DTYPES = ", ".join(BYTES_PER_ELEMENT)


def plan_command(
    *,
    num_heads: Annotated[int, typer.Option(help="Query heads.")],
    d_model: Annotated[
        int | None, typer.Option(help="Width of the model; num_heads x head_dim if left out.")
    ] = None,
    num_kv_heads: Annotated[
        int | None,
        typer.Option(help="Heads of key and value: fewer is GQA, 1 is MQA; num_heads if left out."),
    ] = None,
    head_dim: Annotated[
        int | None, typer.Option(help="Width of one head; d_model / num_heads if left out.")
    ] = None,
    value_head_dim: Annotated[
        int | None, typer.Option(help="Width of one value; head_dim if left out.")
    ] = None,
    layers: Annotated[int, typer.Option(help="Attention layers.")] = 1,
    context: Annotated[int, typer.Option(help="Tokens of each sequence.")] = 2048,
    batch: Annotated[int, typer.Option(help="Sequences.")] = 1,
    dtype: Annotated[str, typer.Option(help=f"Element type of the KV cache: {_DTYPES}.")] = "bfloat16",
    bias: Annotated[bool, typer.Option("--bias", help="The four projections have biases.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Say what an attention layout costs.

    Parameters, query-key products, FLOPs and KV cache bytes, the arithmetic beside each number, and the same
    attention with other numbers of KV heads.
    """
    found = plan(
        num_heads=num_heads,
        d_model=d_model,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        layers=layers,
        context=context,
        batch=batch,
        dtype=dtype,
        bias=bias,
    )
    if as_json:
        write_json(to_json(found))
    else:
        print_plan(found, console())
