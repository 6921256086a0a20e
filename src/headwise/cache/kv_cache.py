"""The cache that keeps every token."""

from __future__ import annotations

from headwise.cache.layer_cache import LayerCache, Row, places_for
from headwise.masks import Mask


class KVCache(LayerCache):
    """The keys and values of one layer, every token of them; it grows in place.

    Keys stand at their absolute positions, `[batch, num_kv_heads, kv_len, head_dim]`. The capacity doubles
    when it is used up, and `key` and `value` are views, so an append copies the new tokens only.

    Example:
        >>> import torch
        >>> from headwise import attention
        >>> cache = KVCache()
        >>> prompt = torch.randn(2, 3, 7, 64)  # two rows, padded to 7 tokens: 7 are real, and 4
        >>> cache.append(prompt, prompt, lengths=[7, 4])
        >>> attention(torch.randn(2, 9, 7, 64), cache.key, cache.value, mask=cache.mask(7)).shape
        torch.Size([2, 9, 7, 64])
        >>> token = torch.randn(2, 3, 1, 64)
        >>> cache.append(token, token)
        >>> cache.lengths
        (8, 5)
        >>> cache.mask(1)
        CausalFrom(first=(7, 4), counts=(1, 1), window=None)

    """

    def mask(self, seq_len: int, *, window: int | None = None) -> Mask:
        """Return which keys the last appended tokens see: causal order, each row at its own place.

        Args:
            seq_len: queries of the call. They are the last `seq_len` new tokens of each row; a row with fewer
                new tokens has its queries first, and padding, which sees nothing, behind.
            window: the keys a query sees at most, its own included; None means all.

        Raises:
            ArgumentError: fewer tokens than `seq_len` are new, or the cache is empty.

        """
        return self._causal(seq_len, window)

    def _make_room(self, counts: tuple[int, ...]) -> None:
        needed = max((row.filled + count for row, count in zip(self._rows, counts, strict=True)), default=0)
        if needed > self.capacity:
            self._rehouse(self._rows, places_for(needed))

    def _fewest_kept(self, row: Row) -> int:
        return 0
