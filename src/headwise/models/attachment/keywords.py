"""The keywords that model families pass to their attention: what is done with each, and what is refused.

A keyword that is not known is refused. To ignore one, as functions that end in `**kwargs` do, may compute
another softmax without a word: a dropped sink or soft cap does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from headwise.errors import UnsupportedError

HARMLESS = {
    "position_ids": "positions are already in query and key, or in position_bias",
    "cache_position": "positions are already in query and key",
    "use_cache": "key and value arrive complete, cached part included",
    "output_hidden_states": "read by the model around the layer",
    "output_router_logits": "read by the model around the layer",
    "return_dict": "read by the model around the layer",
    "num_items_in_batch": "read by the loss",
    "deterministic": "asks flash kernels for a fixed order of sums; ours is fixed",
    "encoder_hidden_states": "key and value were already projected from it",
    "encoder_attention_mask": "already part of attention_mask",
}
"""Keywords that reach the function and change no number, with the reason."""

MENDS = {
    "cu_seq_lens_q": "packed rows: pass one row per text, with padding and attention_mask",
    "cu_seq_lens_k": "packed rows: pass one row per text, with padding and attention_mask",
    "max_length_q": "packed rows: pass one row per text, with padding and attention_mask",
    "max_length_k": "packed rows: pass one row per text, with padding and attention_mask",
    "seq_idx": "packed rows: pass one row per text, with padding and attention_mask",
    "indices": "sparse attention picks its keys outside the mask; run this family without attach",
    "block_indices": "sparse attention picks its keys outside the mask; run this family without attach",
    "sinks": "sinks that differ from row to row; only one sink per head (s_aux) is implemented",
    "output_attentions": "pass attach a collect= for this layer: Collect(weights=True) gives its weights, "
    "any other its Evidence",
}
"""What to do about the keywords that are refused, where it is known."""


def refuse_unknown(module: nn.Module, options: dict[str, Any], watches: Callable[[nn.Module], bool]) -> None:
    """Refuse every keyword that may change numbers and is not implemented here.

    Raises:
        UnsupportedError: such a keyword was given and is not None.

    """
    for name, given in options.items():
        asks_nothing = given is None or name in HARMLESS
        if name == "output_attentions":
            asks_nothing = not given or watches(module)
        if not asks_nothing:
            mend = MENDS.get(name, "leave it out, or detach before this call")
            raise UnsupportedError(
                f"{type(module).__name__} passes {name}=... to its attention, which headwise does not "
                f"implement ({mend})"
            )
