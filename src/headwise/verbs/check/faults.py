"""The catalogue of known faults: what was done, the mend, and the knobs of the recipe that do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.verbs.check.asking import Form
from headwise.verbs.check.result import Fault

Change = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Entry:
    """A fault, and the changes to the recipe that are its forms; each of them is the fault.

    - forms: of the subjects that can have it
    - is_last_resort: whether its numbers are matched loosely, as those of 16 bits have to be, so that it is
      tried only after all others
    """

    fault: Fault
    changes: tuple[Change, ...]
    forms: tuple[Form, ...] = tuple(Form)
    is_last_resort: bool = False


def _entry(
    name: str,
    what: str,
    mend: str,
    *changes: Change,
    forms: tuple[Form, ...] = tuple(Form),
    is_last_resort: bool = False,
) -> Entry:
    return Entry(Fault(name, what, mend), changes, forms, is_last_resort)


def _each(knob: str, *values: Any) -> tuple[Change, ...]:
    return tuple({knob: value} for value in values)


_OF_SCALE = (
    _entry(
        "scale-missing",
        "query . key is not scaled.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "missing"},
    ),
    _entry(
        "scale-by-d-model",
        "query . key is scaled by the width of the model, d_model ** -0.5, not by that of a head.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "d_model"},
    ),
    _entry(
        "scale-squared",
        "query . key is divided by head_dim, not by its square root; or it is scaled twice.",
        "Multiply query . key by head_dim ** -0.5, once.",
        {"scaling": "squared"},
    ),
    _entry(
        "scale-by-head-count",
        "query . key is scaled by the number of heads, num_heads ** -0.5, not by the width of a head.",
        "Multiply query . key by head_dim ** -0.5.",
        {"scaling": "heads"},
    ),
    _entry(
        "scale-multiplied",
        "query . key is multiplied by the square root of head_dim, not divided by it.",
        "Divide query . key by head_dim ** 0.5.",
        {"scaling": "multiplied"},
    ),
    _entry(
        "scale-by-length",
        "query . key is scaled by the number of keys, kv_len ** -0.5: the size of another axis was read.",
        "Read head_dim from the last axis of query: query.shape[-1].",
        {"scaling": "kv_len"},
    ),
    _entry(
        "scale-by-value-dim",
        "query . key is scaled by the width of a head of value, not of query and key.",
        "Read head_dim from query, since value may have another width.",
        {"scaling": "value"},
    ),
    _entry(
        "scale-ignored",
        "The scale that is handed over is not used.",
        "Multiply query . key by the given scale.",
        {"scaling": "option ignored"},
    ),
)

_OF_SOFTMAX = (
    _entry(
        "softmax-over-queries",
        "The softmax runs over the queries: each key's column sums to 1, not each query's row.",
        "Take the softmax over the last axis, dim=-1, of scores [batch, heads, queries, keys].",
        {"softmax": "queries"},
    ),
    _entry(
        "softmax-over-heads",
        "The softmax runs over the heads.",
        "Take the softmax over the last axis, dim=-1; dim=1 of four axes is the heads.",
        {"softmax": "heads"},
    ),
    _entry(
        "softmax-over-batch",
        "The softmax runs over the batch.",
        "Take the softmax over the last axis, dim=-1; a softmax without dim may run over the first.",
        {"softmax": "batch"},
    ),
    _entry(
        "softmax-missing",
        "There is no softmax: the scores themselves weigh the values.",
        "Take the softmax of the scores over the keys before they weigh the values.",
        {"softmax": "missing"},
    ),
    _entry(
        "softmax-overflows",
        "The exponentials of the softmax overflow: the largest score of a row is not taken off first.",
        "Use torch.softmax, or subtract each row's largest score before the exponential.",
        {"softmax": "overflows"},
    ),
    _entry(
        "mask-after-softmax",
        "The mask is laid onto the weights behind the softmax, so that what is hidden still takes its share.",
        "Set the scores of hidden keys to -inf before the softmax.",
        {"softmax": "before mask"},
    ),
)

_OF_HEADS = (
    _entry(
        "heads-split-by-view",
        "Rows are split into heads by view or reshape without a transpose, which mixes tokens and heads.",
        "View as [batch, seq_len, heads, head_dim], then transpose(1, 2).",
        *_each("split", "view", "fused view", "fused head view"),
    ),
    _entry(
        "heads-joined-by-view",
        "Heads are joined by view or reshape without a transpose, which mixes tokens and heads.",
        "Use transpose(1, 2).reshape(batch, seq_len, heads * head_dim).",
        {"join": "view"},
    ),
    _entry(
        "heads-split-in-wrong-order",
        "A row's width is split as [head_dim, heads], so that each head takes every so-many-th number.",
        "Split it as [heads, head_dim]: one head's numbers lie side by side.",
        {"split": "width major"},
    ),
    _entry(
        "heads-concatenated-in-wrong-order",
        "Heads are joined as [head_dim, heads]: first the first number of each head, then the second.",
        "Join them as [heads, head_dim]: transpose(1, 2).reshape(batch, seq_len, heads * head_dim).",
        {"join": "width major"},
    ),
    _entry(
        "heads-share-weights",
        "All heads use the weights of the first.",
        "Give each head its own slice of the projections, or its own module.",
        *_each("shared_head", "query key value", "query", "query key", "key value"),
    ),
    _entry(
        "kv-heads-tiled",
        "KV heads are tiled: query head h reads KV head h % num_kv_heads.",
        "Use repeat_interleave, not repeat: query head h reads KV head h // (num_heads // num_kv_heads).",
        {"kv_heads": "tiled"},
    ),
    _entry(
        "kv-heads-unused",
        "Every query head reads the first KV head.",
        "Let query head h read KV head h // (num_heads // num_kv_heads).",
        {"kv_heads": "first only"},
    ),
    _entry(
        "heads-and-sequence-mixed",
        "The axes of heads and tokens are taken for one another: attention runs across the heads.",
        "Transpose axes 1 and 2 first; query . key must be [batch, heads, queries, keys].",
        {"axes_mixed": True},
        forms=(Form.HEADS,),
    ),
)

_OF_PROJECTIONS = (
    _entry(
        "query-and-key-swapped",
        "Query and key are swapped.",
        "Let the rows that ask be the query: scores[i, j] = query[i] . key[j].",
        {"projections_swapped": "query key"},
        {"tensors_swapped": "query key"},
    ),
    _entry(
        "key-and-value-swapped",
        "Key and value are swapped.",
        "Compare the query with the key, and weigh the value.",
        {"projections_swapped": "key value"},
        {"tensors_swapped": "key value"},
    ),
    _entry(
        "projection-biases-ignored",
        "The biases of the projections are held but not added.",
        "Add them, or create the projections with bias=False.",
        {"projection_biases": False},
    ),
    _entry(
        "output-projection-missing",
        "The output projection is held but not used.",
        "Return output_projection(joined heads).",
        {"output": "missing"},
    ),
    _entry(
        "output-projection-transposed",
        "The output projection is used transposed.",
        "Compute rows @ weight.T for a weight of [out, in], as torch.nn.Linear holds it.",
        {"output": "transposed"},
    ),
)

_OF_ROTATION = (
    _entry(
        "rotary-interleaved",
        "Rotary positions turn elements 2i and 2i + 1 together; half-split pairs are expected.",
        "Turn i and i + head_dim / 2 together, or permute the projections of query and key.",
        {"rotary": "interleaved"},
    ),
    _entry(
        "rotary-half-split",
        "Rotary positions turn elements i and i + head_dim / 2 together; interleaved pairs are expected.",
        "Turn 2i and 2i + 1 together, or permute the projections of query and key.",
        {"rotary": "half_split"},
    ),
    _entry(
        "rotary-offset-ignored",
        "Behind a cache, rotary positions start at 0 again.",
        "Let the first new token's position be the number of cached ones.",
        {"rotary": "from zero"},
    ),
    _entry(
        "rotary-on-values",
        "Rotary positions turn the values too.",
        "Turn query and key alone.",
        {"rotary": "values too"},
    ),
    _entry(
        "rotary-on-query-only",
        "Rotary positions turn the query alone.",
        "Turn the key too, each row to its own position.",
        {"rotary": "query only"},
    ),
    _entry(
        "rotary-on-key-only",
        "Rotary positions turn the key alone.",
        "Turn the query too, each row to its own position.",
        {"rotary": "key only"},
    ),
    _entry(
        "rotary-over-heads",
        "Rotary positions count heads, not tokens: the axis of heads was read as that of tokens.",
        "Apply them where tokens are the last axis but one, or say which axis holds the tokens.",
        {"rotary": "over heads"},
    ),
    _entry(
        "rotary-missing",
        "Rotary positions are expected, but nothing turns.",
        "Turn query and key to their positions before query . key.",
        {"rotary": "missing"},
    ),
    _entry(
        "rotary-base-wrong",
        "Rotary positions turn with another base than the one that is expected.",
        "Take the base, rope_theta, from the checkpoint's configuration.",
        *_each("rotary_base", 10_000.0, 100_000.0, 500_000.0, 1_000_000.0),
    ),
)

_OF_CAUSALITY = (
    _entry(
        "causal-missing",
        "A row sees later keys: the causal mask is missing, or its flag is not used.",
        "Hide key j from row i where j > i + kv_len - seq_len.",
        {"causality": "ignored"},
    ),
    _entry(
        "causal-always",
        "Later keys are hidden although the causal flag is off.",
        "Hide later keys only where the flag asks for it.",
        {"causality": "always"},
    ),
    _entry(
        "causal-sees-one-ahead",
        "A row sees one key ahead: the causal mask is off by one.",
        "Hide what lies above the diagonal: triu(diagonal=1) is hidden, tril(diagonal=0) is visible.",
        {"causality": "one ahead"},
    ),
    _entry(
        "causal-hides-self",
        "A row does not see its own key: the causal mask is off by one.",
        "Keep the diagonal: triu(diagonal=1) is hidden, tril(diagonal=0) is visible.",
        {"causality": "hides self"},
    ),
    _entry(
        "causal-upper-left",
        "Where there are more keys than queries, the causal mask is aligned to the first key.",
        "Let the last query see all keys: hide key j from row i where j > i + kv_len - seq_len.",
        {"upper_left": True},
    ),
    _entry(
        "mask-inverted",
        "A mask is read the wrong way round: what it should hide is seen, and the rest is hidden.",
        "Check whether True means attend or ignore; invert the mask with ~.",
        {"masking": "inverted"},
        {"causality": "inverted"},
        {"padding": "inverted"},
    ),
    _entry(
        "mask-added-as-one",
        "A mask of ones is added to the scores: it raises them by 1 and hides nothing.",
        "Set hidden scores to -inf with masked_fill, or add 0 and -inf, not 1.",
        {"masking": "added"},
        {"padding": "added"},
        *_each("causality", "added", "hidden added"),
    ),
    _entry(
        "window-off-by-one",
        "The window is one key too wide or too narrow.",
        "Let a row see itself and window - 1 keys before it: j > i - window.",
        *_each("windowing", "one more", "one less"),
    ),
    _entry(
        "window-ignored",
        "The window is not used: a row sees keys that lie further back.",
        "Hide key j from row i where j <= i - window.",
        {"windowing": "ignored"},
    ),
    _entry(
        "window-on-one-side",
        "The window reaches as far ahead as back, or hides what lies ahead by its width alone.",
        "Combine the window with the causal mask.",
        {"windowing": "both sides", "causality": "ignored"},
    ),
)

_OF_MASKS = (
    _entry(
        "mask-ignored",
        "The mask that is handed over is not used.",
        "Set the scores of hidden keys to -inf before the softmax.",
        {"masking": "ignored"},
    ),
    _entry(
        "mask-transposed",
        "The mask is used transposed: its rows are taken for keys.",
        "A mask is [queries, keys], as the scores are.",
        {"masking": "transposed"},
    ),
    _entry(
        "float-mask-as-boolean",
        "A float mask is read as a boolean one, by zero or not zero, and its numbers are lost.",
        "Add a float mask to the scores.",
        {"masking": "as boolean"},
    ),
    _entry(
        "padding-ignored",
        "Padded keys are seen: the padding mask is not used.",
        "Hide padded keys from every row: mask[:, None, None, :].",
        {"padding": "ignored"},
    ),
    _entry(
        "padding-on-queries",
        "The padding mask hides rows of queries, not keys.",
        "Hide padded keys from every row: mask[:, None, None, :].",
        {"padding": "on queries"},
    ),
    _entry(
        "masked-values-leak",
        "Hidden keys keep a share of the weights: their score is finite and not low enough.",
        "Set hidden scores to -inf before the softmax; do not multiply by the mask.",
        *_each("hidden_score", 0.0, 1.0, -1.0, -5.0, -10.0),
        *_each("hidden_added", -1.0, -5.0, -10.0),
    ),
    _entry(
        "softcap-after-mask",
        "The softcap comes behind the mask: hidden scores come back as -softcap.",
        "Cap the scores first, then mask them.",
        {"softcapping": "after mask"},
    ),
    _entry(
        "softcap-ignored",
        "The softcap is not used.",
        "Use softcap * tanh(scores / softcap) between scaling and masking.",
        {"softcapping": "ignored"},
    ),
    _entry(
        "bias-after-softmax",
        "The bias is added to the weights behind the softmax.",
        "Add it to the scores before the softmax.",
        {"bias": "after softmax"},
    ),
    _entry(
        "bias-before-scale",
        "The bias is scaled together with query . key.",
        "Scale query . key first, then add the bias.",
        {"bias": "before scale"},
    ),
    _entry(
        "bias-ignored",
        "The bias that is handed over is not used.",
        "Add it to the scores before the softmax.",
        {"bias": "ignored"},
    ),
    _entry(
        "cache-ignored",
        "What was remembered from an earlier call is not seen.",
        "Concatenate the cached keys and values with the new ones.",
        {"cache_used": False},
    ),
)

_BATCH_MIXED = _entry(
    "batch-and-sequence-mixed",
    "The axes of batch and tokens are taken for one another: attention runs across the batch.",
    "Hand over [seq_len, batch, width], or set batch_first=True.",
    {"axes_mixed": True},
    forms=(Form.WIDTH, Form.PROJECTED),
)

_OF_SIXTEEN_BITS = (
    _entry(
        "overflow-in-16-bits",
        "query . key is computed in float16, where it overflows at 65504.",
        "Scale the query before the product, or compute scores in float32 or bfloat16.",
        {"precision": "float16 overflow"},
        is_last_resort=True,
    ),
    _entry(
        "rounded-to-16-bits",
        "Query and key are rounded to 16 bits on the way.",
        "Keep float32 where float32 is given.",
        *_each("precision", "float16", "bfloat16"),
        is_last_resort=True,
    ),
)

ENTRIES = (
    *_OF_SCALE, *_OF_SOFTMAX, *_OF_HEADS, _BATCH_MIXED, *_OF_PROJECTIONS, *_OF_ROTATION, *_OF_CAUSALITY,
    *_OF_MASKS, *_OF_SIXTEEN_BITS,
)  # fmt: skip
"""Faults that a recipe computes."""

FAULTS = tuple(entry.fault for entry in ENTRIES)
"""Every fault that can be named."""
