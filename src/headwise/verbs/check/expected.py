"""What the caller of `check` says the attention should be; what is left open is found out instead."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Literal, get_args

from headwise.counts import checked_size, either
from headwise.errors import ArgumentError
from headwise.rope import Rope

Axes = Literal["bhqd", "bqhd", "bqd", "qbd"]
Causal = Literal["lower_right", "upper_left"]
MaskMeans = Literal["attend", "ignore", "add"]

LARGEST_WINDOW = 512
LARGEST_SIZE = 16_384


@dataclass(frozen=True)
class Expected:
    """What the attention is expected to do. None: whatever it does is accepted, and reported.

    Args:
        num_heads: query heads.
        num_kv_heads: heads of key and value.
        head_dim: width of a head of query and key.
        value_head_dim: width of a head of value.
        d_model: width of a token's row.
        axes: order of the tensors' axes: `"bhqd"` or `"bqhd"` (b batch, h heads, q tokens, d width) where it
            is given heads, `"bqd"` or `"qbd"` where it is given rows.
        causal: False, True (either alignment where lengths differ), `"lower_right"` or `"upper_left"`.
        window: how many keys a row sees, itself included.
        scale: multiplies `query . key`.
        softcap: bound of the soft-capped scores.
        rope: rotary positions it applies itself.
        mask_means: what True or 1 in its mask says: `"attend"`, `"ignore"`, or `"add"`, where a float mask is
            added to the scores.

    Raises:
        ArgumentError: a value is out of range or of another type.

    Example:
        >>> Expected(num_heads=4, causal="lower_right").declared()
        {'num_heads': 4, 'causal': 'lower_right'}

    """

    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    value_head_dim: int | None = None
    d_model: int | None = None
    axes: Axes | None = None
    causal: bool | Causal | None = None
    window: int | None = None
    scale: float | None = None
    softcap: float | None = None
    rope: Rope | None = None
    mask_means: MaskMeans | None = None

    def __post_init__(self) -> None:
        for name in ("num_heads", "num_kv_heads", "head_dim", "value_head_dim", "d_model"):
            if getattr(self, name) is not None:
                checked_size(name, getattr(self, name), largest=LARGEST_SIZE)
        if self.window is not None:
            checked_size("window", self.window, largest=LARGEST_WINDOW)
        if (
            self.num_heads is not None
            and self.num_kv_heads is not None
            and self.num_heads % self.num_kv_heads
        ):
            raise ArgumentError(
                f"num_kv_heads={self.num_kv_heads} does not divide num_heads={self.num_heads}; every KV head "
                "is read by the same number of query heads"
            )
        _check_word("axes", self.axes, get_args(Axes))
        _check_word("mask_means", self.mask_means, get_args(MaskMeans))
        if not isinstance(self.causal, bool):
            _check_word("causal", self.causal, get_args(Causal), also="True or False")
        for name in ("scale", "softcap"):
            _check_above_zero(name, getattr(self, name))
        if self.rope is not None and not isinstance(self.rope, Rope):
            raise ArgumentError(
                f"rope={self.rope!r} is a {type(self.rope).__name__}; "
                "pass headwise.Rope(base=..., pairing=...)"
            )

    def declared(self) -> dict[str, object]:
        """Return what is declared, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def _check_word(name: str, given: object, words: tuple[str, ...], *, also: str = "") -> None:
    if given is None or (isinstance(given, str) and given in words):
        return
    allowed = [f'"{word}"' for word in words]
    known = f"{', '.join(allowed)}, {also}" if also else either(allowed)
    raise ArgumentError(f"{name}={given!r} is not known; pass {known}")


def _check_above_zero(name: str, given: float | None) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, Real) or not 0 < given < inf:
        raise ArgumentError(f"{name}={given!r} must be a finite number above 0")
