"""One call of an attention layer in headwise's terms, and what is asked of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise import masks, ops
from headwise.evidence import Collect, Evidence
from headwise.models.attachment.mask_reading import Runs
from headwise.ops.first_key import FirstKey


class LayerCall(NamedTuple):
    """One call of an attention layer, in headwise's terms.

    - query `[batch, num_heads, seq_len, head_dim]`, key `[batch, num_kv_heads, kv_len, head_dim]`,
      value `[batch, num_kv_heads, kv_len, value_head_dim]`
    - mask: boolean `[batch or 1, num_heads or 1, seq_len or 1, kv_len]`, a mask object, or None
    - bias: float of the same form, finite, or None
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | masks.Mask | None
    bias: Tensor | None
    scale: float | None
    softcap: float | None
    sinks: Tensor | None
    dropout: float

    def attend(self, head_gates: Tensor | None) -> Tensor:
        """Return the output of every head, `[batch, num_heads, seq_len, value_head_dim]`."""
        # Asking for the logsumexp keeps off torch's fused kernel, which has other digits than headwise's own
        # and than eager. Where there is a gradient, plain torch gives eager's own.
        return ops.attention_with_logsumexp(
            self.query,
            self.key,
            self.value,
            mask=self.mask,
            bias=self.bias,
            scale=self.scale,
            softcap=self.softcap,
            sinks=self.sinks,
            head_gates=head_gates,
            dropout=self.dropout,
        ).output

    def observe(
        self,
        head_gates: Tensor | None,
        collect: Collect,
        *,
        kv_len: int | None = None,
        first_key: FirstKey = None,
    ) -> tuple[Tensor, Evidence[Tensor]]:
        """Return the output of every head, and the evidence, which is of the weights before dropout.

        Args:
            head_gates: factors of the outputs, or None.
            collect: what to record.
            kv_len: how many of the keys there are: evidence counts positions back from the last key, which
                must be the last one written. By default `written_keys()`.
            first_key: as in `headwise.observe`.

        """
        call = self._first_keys(self.written_keys() if kv_len is None else kv_len)
        # Watching a head must change no number: the output is the one of an unwatched layer. The kernel's is
        # the same bits whatever is collected, and whatever hidden keys were left off; but nothing is dropped.
        is_the_same = not self.dropout and self._is_for_the_kernel(head_gates)
        with torch.set_grad_enabled(is_the_same and torch.is_grad_enabled()):
            seen = ops.observe(
                call.query,
                call.key,
                call.value,
                **call._terms(head_gates),
                collect=collect,
                first_key=first_key,
            )
        output = seen.output if is_the_same else self.attend(head_gates)
        return output, seen.evidence

    def _is_for_the_kernel(self, head_gates: Tensor | None) -> bool:
        """Return whether `attend` takes headwise's own kernel."""
        choice = ops.choose(
            self.query,
            self.key,
            self.value,
            **self._terms(head_gates),
            dropout=self.dropout,
            need_logsumexp=True,
        )
        return choice.path == "kernel"

    def _terms(self, head_gates: Tensor | None) -> dict[str, Any]:
        """Return what is asked of the operators; `attend`, which every decode step calls, spares the dict."""
        return {
            "mask": self.mask,
            "bias": self.bias,
            "scale": self.scale,
            "softcap": self.softcap,
            "sinks": self.sinks,
            "head_gates": head_gates,
        }

    def real_rows(self) -> Tensor | None:
        """Return which rows are no padding, `[batch or 1, seq_len]`, in a layer that attends to its own rows.

        A padding token is one that no row sees. None means that nothing is known to be padding.
        """
        return self._seen_keys() if self.query.shape[2] == self.key.shape[2] else None

    def written_keys(self) -> int:
        """Return how many keys there are without the places of a static cache that are still empty.

        They are told by the mask: no row sees them.
        """
        seq_len, kv_len = self.query.shape[2], self.key.shape[2]
        seen = None if kv_len <= seq_len else self._seen_keys()
        if seen is None:
            return kv_len
        places = seen.any(dim=0).nonzero()
        return max(seq_len, int(places.max()) + 1) if len(places) else kv_len

    def first_seen_key(self) -> Tensor:
        """Return the first key that any row sees, `[batch or 1]`; 0 where none is seen or no mask says it."""
        if isinstance(self.mask, Runs):
            return torch.from_numpy(self.mask.first_seen_key())
        seen = self._seen_keys()
        return torch.zeros(1, dtype=torch.long) if seen is None else seen.byte().argmax(-1)

    def _first_keys(self, count: int) -> LayerCall:
        """Return the call with as many of its keys."""
        if count == self.key.shape[2]:
            return self
        return self._replace(
            key=self.key[:, :, :count],
            value=self.value[:, :, :count],
            mask=self.mask[..., :count] if isinstance(self.mask, Tensor) else self.mask,
            bias=None if self.bias is None else self.bias[..., :count],
        )

    def _seen_keys(self) -> Tensor | None:
        """Return which keys any row sees, `[batch or 1, kv_len]`; None where no mask tensor says it."""
        kv_len = self.key.shape[2]
        if isinstance(self.mask, Runs):
            return torch.from_numpy(self.mask.seen_keys(kv_len))
        if isinstance(self.mask, Tensor) and self.mask.shape[3] == kv_len:
            return self.mask.any(dim=1).any(dim=1)
        return None
