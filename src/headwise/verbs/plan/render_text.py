"""A plan for the terminal: each number with its arithmetic, then other numbers of KV heads side by side."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headwise.verbs.plan.compute import DEFAULTS
from headwise.verbs.plan.result import Figure, Flops, Plan, Settings
from headwise.verbs.terminal import binary_size, decimal_size

_KINDS = {
    "MHA": "Multi-head attention (MHA)",
    "GQA": "Grouped-query attention (GQA)",
    "MQA": "Multi-query attention (MQA)",
}
_DERIVED = {
    "d_model": "num_heads x head_dim",
    "num_kv_heads": "num_heads",
    "head_dim": "d_model / num_heads",
    "value_head_dim": "head_dim",
}
_FOOTNOTE = (
    "Numbers are for all layers and the whole batch unless a row says otherwise. A multiply-add is two "
    "FLOPs; softmax, biases and rotary positions are not counted. FLOP/B is what scores and weighted sum of "
    "a decode step do with each cached byte they read: where a device could do more per byte, memory sets "
    "the speed."
)
_NAME_CELLS = len("weighted sum")
_ABOUT_CELLS = len("9.99 MiB")
_GAP = 2


def print_plan(plan: Plan, console: Console) -> None:
    """Print `plan` to `console`."""
    console.print(_title(plan))
    console.print()
    console.print(_settings(plan))
    for heading, rows, about in _sections(plan):
        _print_heading(heading, console)
        console.print(_figures(rows, about, _number_cells(plan), console.width))
    _print_heading("The same attention with another number of KV heads", console)
    console.print(_variants(plan))
    console.print()
    console.print(_FOOTNOTE, style="dim")


def _sections(plan: Plan) -> list[tuple[str, dict[str, Figure], Callable[[int], str]]]:
    weights, products, cache = plan.parameters, plan.query_key_products, plan.kv_cache
    projections = {"W_Q": weights.query, "W_K": weights.key, "W_V": weights.value, "W_O": weights.output}
    several = {"all layers": weights.total} if plan.settings.layers > 1 else {}
    both = {"every pair": products.dense, "causal": products.causal}
    bytes_held = {"one token": cache.bytes_per_token, "all tokens": cache.total}
    return [
        ("Parameters", {**projections, "one layer": weights.one_layer, **several}, decimal_size),
        ("Query-key products: the multiplications of Q K^T", both, decimal_size),
        ("FLOPs to read the context, every query against every key", _rows(plan.prefill_dense), decimal_size),
        (
            "FLOPs to read it under a causal mask, visible pairs only",
            _rows(plan.prefill_causal),
            decimal_size,
        ),
        ("FLOPs of a decode step: one new token against the context", _rows(plan.decode_step), decimal_size),
        ("KV cache bytes", bytes_held, binary_size),
    ]


def _rows(flops: Flops) -> dict[str, Figure]:
    return {
        "projections": flops.projections,
        "scores": flops.scores,
        "weighted sum": flops.weighted_sum,
        "total": flops.total,
    }


def _title(plan: Plan) -> Text:
    layout = plan.layout
    title = Text(_KINDS[plan.kind], style="bold")
    heads = "1 query head" if layout.num_heads == 1 else f"{layout.num_heads:,} query heads"
    readers = (
        "each with a KV head of its own" if layout.group_size == 1 else f"{layout.group_size:,} to a KV head"
    )
    return title.append(f": {heads} of {layout.head_dim:,}, {readers}", style="not bold")


def _settings(plan: Plan) -> Table:
    settings, layout = plan.settings, plan.layout
    sizes = {"d_model": settings.d_model, **asdict(layout)}
    left = [(name, f"{size:,}", _derivation(name, settings)) for name, size in sizes.items()]
    shown = {name: f"{getattr(settings, name):,}" for name in ("layers", "context", "batch")}
    shown |= {
        "dtype": f"{settings.dtype} ({settings.bytes_per_element} B)",
        "bias": "yes" if settings.bias else "no",
    }
    right = [(name, value, _default_mark(name, settings)) for name, value in shown.items()]
    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    for row in zip(left, right, strict=True):
        cells = [cell for triple in row for cell in triple]
        table.add_row(
            *(Text(cell, style="dim" if place % 3 == 2 else "") for place, cell in enumerate(cells))
        )
    return table


def _derivation(name: str, settings: Settings) -> str:
    return f"= {_DERIVED[name]}" if name in settings.derived else ""


def _default_mark(name: str, settings: Settings) -> str:
    return "default" if getattr(settings, name) == DEFAULTS[name] else ""


def _figures(rows: dict[str, Figure], about: Callable[[int], str], number_cells: int, width: int) -> Table:
    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    table.add_column(width=_NAME_CELLS)
    table.add_column(width=number_cells, justify="right")
    table.add_column(width=_ABOUT_CELLS, justify="right")
    table.add_column()
    left = width - _NAME_CELLS - number_cells - _ABOUT_CELLS - 3 * _GAP
    for name, figure in rows.items():
        value = int(figure.value)
        rounded = about(value) if value >= 1000 else ""
        table.add_row(name, f"{value:,}", rounded, Text(_wrapped(figure.arithmetic, left), style="dim"))
    return table


def _number_cells(plan: Plan) -> int:
    """Return the width of the widest number, so that the columns of all sections stand in line."""
    return max(len(f"{int(figure.value):,}") for _, rows, _ in _sections(plan) for figure in rows.values())


def _wrapped(arithmetic: str, width: int) -> str:
    """Return `arithmetic` in lines that break before an operator, never between a number and its name."""
    glued = re.sub(r" (?![x+/] )", "\N{NO-BREAK SPACE}", arithmetic)
    lines = textwrap.wrap(glued, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def _variants(plan: Plan) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for heading in ("KV heads", "kind", "parameters", "bytes a token", "KV cache", "of MHA", "FLOP/B", ""):
        table.add_column(heading, justify="left" if heading in {"kind", ""} else "right", no_wrap=True)
    for variant in plan.variants:
        table.add_row(
            f"{variant.num_kv_heads:,}",
            variant.kind,
            decimal_size(variant.parameters),
            binary_size(variant.kv_bytes_per_token),
            binary_size(variant.kv_bytes),
            f"{100 * variant.kv_share:.3g}%",
            f"{variant.decode_flop_per_byte:g}",
            "this one" if variant.is_planned else "",
            style="bold" if variant.is_planned else "",
        )
    return table


def _print_heading(heading: str, console: Console) -> None:
    console.print()
    console.print(heading, style="bold")
