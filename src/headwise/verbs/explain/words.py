"""The sentences and worked-out sums of the two-head story."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.layout import HeadLayout
from headwise.verbs.explain.matrices import four_decimals
from headwise.verbs.explain.result import Explanation, HeadTrace, Matrix
from headwise.verbs.terminal import several

TERMS_SHOWN = 4
WHAT_HEADS_DO = (
    "Each head looks at the same tokens through its own small W_Q, W_K and W_V: it scores every token "
    "against every other, turns the scores into weights that sum to 1, and mixes values by those weights. "
    "The heads work side by side and know nothing of each other until W_O mixes their outputs."
)
WHAT_PROJECTIONS_ARE = (
    "A query is what a token looks for, a key what it is found by, a value what it passes on."
)
WHAT_SCORES_ARE = (
    "A row is the token that looks, a column the token it looks at. The division keeps scores from growing "
    "with the width of the head, which would push softmax towards all or nothing."
)
WHAT_THE_MASK_DOES = (
    "A token does not see later tokens: their scores count as minus infinity (a dot here, null in --json), "
    "so that softmax gives them a weight of exactly 0."
)
WHAT_WEIGHTS_ARE = "Each row sums to 1: it says how much of each token's value the row's token takes."
_NUMBER_WORDS = ("One head", "Two heads", "Three heads", "Four heads")


def title(explanation: Explanation) -> str:
    """Return "Two heads, step by step"."""
    count = explanation.layout.num_heads
    return f"{_NUMBER_WORDS[count - 1] if count <= len(_NUMBER_WORDS) else f'{count} heads'}, step by step"


def sizes(explanation: Explanation) -> str:
    """Return the sizes, the seed and the mask in one line."""
    layout = explanation.layout
    return (
        f"{several(len(explanation.tokens), 'token')}, d_model {explanation.d_model}, "
        f"{several(layout.num_heads, 'query head')} of width {layout.head_dim}, "
        f"{several(layout.num_kv_heads, 'KV head')}, seed {explanation.seed}, "
        f"{'causal mask' if explanation.causal else 'no mask'}. "
        "Shapes are [rows, columns]; heads and columns count from 0."
    )


def ending(layout: HeadLayout) -> str:
    """Return the whole in one formula, and what to try next."""
    heads = [f"head_{head}" for head in range(layout.num_heads)]
    listed = ", ".join(heads if len(heads) <= TERMS_SHOWN else [heads[0], heads[1], "...", heads[-1]])
    return (
        f"The whole of it: MHA(X) = concat({listed}) W_O. To see it change: --causal, --num-kv-heads 1, "
        "--tokens, --seed, --d-model and --num-heads; --out FILE.html writes a page where any number can be "
        "changed."
    )


def product_shapes(left: Matrix, right: Matrix) -> str:
    """Return the shapes of a matrix product: "[3, 4] x [4, 2] -> [3, 2]"."""
    return f"{list(left.shape)} x {list(right.shape)} -> {[left.shape[0], right.shape[1]]}"


def products(left: Matrix, right: Matrix) -> list[str]:
    """Return the terms of a dot product, written out."""
    return [f"{four_decimals(a)} x {four_decimals(b)}" for a, b in zip(left, right, strict=True)]


def sum_of(terms: Sequence[str]) -> str:
    """Return the terms as a sum, cut short if there are many."""
    more = len(terms) - TERMS_SHOWN
    return " + ".join(terms[:TERMS_SHOWN]) + (f" + ... ({several(more, 'more term')})" if more > 0 else "")


def sharing(layout: HeadLayout) -> str:
    """Return which query heads read which KV head."""
    readers = [
        f"{_heads(layout.query_heads_of(kv_head))} read KV head {kv_head}"
        for kv_head in range(layout.num_kv_heads)
    ]
    shown = "; ".join(readers[:TERMS_SHOWN]) + ("; and so on" if len(readers) > TERMS_SHOWN else "")
    return (
        f"Keys and values are shared: query heads {shown}. Each query head has a W_Q of its own, and its "
        "own weights; it shares W_K and W_V."
    )


def origin_of_rows(explanation: Explanation) -> str:
    """Return where the rows of X come from."""
    drawn = explanation.drawn_tokens
    if not drawn:
        return "The rows are given with the example."
    some_given = len(drawn) < len(set(explanation.tokens))
    which = "Some rows are given with the example, the others" if some_given else "The rows are"
    return f"{which} drawn after all weights, with seed {explanation.seed}, as round(randn, 2)."


def origin_of_weights(head: HeadTrace, explanation: Explanation) -> str:
    """Return where the projections of one head come from."""
    layout = explanation.layout
    drawn = f"drawn with seed {explanation.seed} as round(randn * 0.5, 2); in a model they are learned."
    first, *_ = layout.query_heads_of(head.kv_head)
    if head.head == first:
        return f"W_Q, W_K and W_V, {drawn}"
    return f"W_Q, {drawn} W_K and W_V are those of head {first}: both heads read KV head {head.kv_head}."


def _heads(heads: range) -> str:
    return f"{heads[0]} and {heads[1]}" if len(heads) == 2 else f"{heads[0]} to {heads[-1]}"
