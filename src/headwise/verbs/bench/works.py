"""What is timed: the shapes that prompts, windows, padded batches and decoding have. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwise.errors import ArgumentError


@dataclass(frozen=True)
class Work:
    """One attention call: its sizes, its mask, and the dtype of its tensors.

    - causal: each query sees the keys up to its own; `window`, if given, only the last `window` of them
    - lengths: real keys of each batch element, padding behind, or None
    """

    name: str
    batch: int
    num_heads: int
    num_kv_heads: int
    seq_len: int
    kv_len: int
    head_dim: int
    causal: bool = False
    window: int | None = None
    lengths: tuple[int, ...] | None = None
    dtype: str = "float32"

    @property
    def is_decode(self) -> bool:
        """Whether one query reads a whole cache, so that memory and not arithmetic sets the speed."""
        return self.seq_len == 1

    @property
    def mask_name(self) -> str:
        """The mask in words."""
        if self.window is not None:
            return f"causal, window of {self.window}"
        if self.lengths is not None:
            return f"lengths {min(self.lengths)} to {max(self.lengths)}"
        return "causal" if self.causal else "none"


WORKS = (
    Work("full-64", 1, 8, 8, 2048, 2048, 64),
    Work("full-128", 1, 16, 16, 1024, 1024, 128),
    Work("causal-512", 1, 8, 8, 512, 512, 64, causal=True),
    Work("causal-2048", 1, 8, 8, 2048, 2048, 64, causal=True),
    Work("gqa-causal", 1, 16, 4, 1024, 1024, 128, causal=True),
    Work("short-causal", 1, 32, 32, 128, 128, 64, causal=True),
    Work("window", 1, 8, 8, 8192, 8192, 64, causal=True, window=256),
    Work("padded", 8, 8, 8, 1024, 1024, 64, lengths=(64, 201, 338, 475, 613, 750, 887, 1024)),
    Work("decode-gqa-4k", 1, 32, 8, 1, 4096, 128),
    Work("decode-gqa-32k", 1, 32, 8, 1, 32768, 128),
    Work("decode-4k", 1, 32, 32, 1, 4096, 128),
    Work("causal-bf16", 1, 8, 8, 2048, 2048, 64, causal=True, dtype="bfloat16"),
)


def works_named(names: Sequence[str] | None) -> tuple[Work, ...]:
    """Return the works of these names, in the order of the list; all of them for None or no name.

    Raises:
        ArgumentError: there is no work of a name.

    Example:
        >>> [work.kv_len for work in works_named(["decode-4k", "short-causal"])]
        [128, 4096]

    """
    known = {work.name: work for work in WORKS}
    for name in names or ():
        if name not in known:
            raise ArgumentError(f"work {name!r} is unknown; there are {', '.join(known)}")
    return tuple(work for work in WORKS if not names or work.name in names)
