"""What a person reads first of a view: the model, what of it is shown, and the tokens."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from headwise.models.tokens import Token
from headwise.verbs.terminal import printable, several
from headwise.verbs.view.result import Part, View

SHOWN_TOKENS = 400
SHOWN_UNSEEN = 3
DIRECTIONS: dict[Part, str] = {
    "encoder": "the encoder's self-attention",
    "decoder": "the decoder's self-attention, causal",
    "cross": "cross attention, from decoder to encoder",
}


def facts_lines(view: View) -> Text:
    """Return the model's sizes, its cache, and what of it is not recorded."""
    facts = view.facts
    usual = "causal" if facts.causal else "bidirectional"
    direction = usual if view.part is None else DIRECTIONS[view.part]
    kv_heads = f", {several(facts.num_kv_heads, 'KV head')}" if facts.num_kv_heads != facts.num_heads else ""
    line = Text()
    line.append(printable(facts.name), style="bold")
    line.append(f"  {_layers(view)} x {_heads(view)} of {facts.head_dim}{kv_heads}, {direction}\n")
    cache = f"{facts.kv_bytes_per_token:,} bytes of KV cache per token in 16 bits"
    line.append(cache if facts.kv_bytes_per_token else "no KV cache")
    if view.unseen:
        line.append(f"\n{_unseen(view)}")
    return line


def tokens_lines(view: View, width: int) -> Text:
    """Return what the model read and, of cross attention, what looks at it."""
    if view.key_tokens is None:
        return _read(view, view.tokens, "", width)
    lines = _read(view, view.key_tokens, "looked at: ", width)
    lines.append("\n")
    return lines.append_text(_token_lines(view.tokens, "looking: ", width))


def with_spaces_shown(text: str) -> str:
    """Return a token with its spaces visible."""
    return printable(text).replace(" ", "·")


def _layers(view: View) -> str:
    recorded = len(view.layers)
    if not recorded or recorded == view.facts.layers:
        return several(view.facts.layers, "layer")
    numbers = ", ".join(str(maps.layer) for maps in view.layers)
    return f"{recorded} of {several(view.facts.layers, 'layer')} ({numbers})"


def _heads(view: View) -> str:
    counts = {maps.num_heads for maps in view.layers}
    if len(counts) > 1:
        return f"{min(counts)} to {several(max(counts), 'head')}"
    return several(view.facts.num_heads, "head")


def _unseen(view: View) -> str:
    named = [f"{printable(module.name)} ({printable(module.reason)})" for module in view.unseen]
    more = len(named) - SHOWN_UNSEEN
    listed = ", ".join(named[:SHOWN_UNSEEN]) + (f" and {more} more" if more > 0 else "")
    return f"{several(len(named), 'module')} not recorded: {listed}"


def _read(view: View, tokens: tuple[Token, ...], role: str, width: int) -> Text:
    if view.image_grid is None:
        return _token_lines(tokens, role, width)
    rows, columns = view.image_grid
    extra = len(tokens) - rows * columns
    behind = f" behind {several(extra, 'token')} of the model's own" if extra else ""
    return Text(f"{role}{printable(view.text)} as {rows} x {columns} patches{behind}", style="dim")


def _token_lines(tokens: tuple[Token, ...], role: str, width: int) -> Text:
    """Return the tokens side by side, between thin bars, spaces made visible; lines break at the bars."""
    lines = Text(f"{role}{several(len(tokens), 'token')}  ", style="dim")
    used = lines.cell_len
    shown = tokens[:SHOWN_TOKENS]
    for piece in _pieces(shown):
        if used and used + piece.cell_len > width:
            lines.append("\n")
            used = 0
        lines.append_text(piece)
        used += piece.cell_len
    if len(tokens) > SHOWN_TOKENS:
        lines.append(f" … and {len(tokens) - SHOWN_TOKENS:,} more")
    return lines


def _pieces(tokens: tuple[Token, ...]) -> Iterable[Text]:
    for number, token in enumerate(tokens, start=1):
        piece = Text(with_spaces_shown(token.text), style="not dim" if token.kind == "text" else "italic")
        piece.append("│" if number < len(tokens) else "", style="dim")
        yield piece
