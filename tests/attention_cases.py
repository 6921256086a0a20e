"""The inputs that attention is tested on, and the checker that holds any implementation to the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headwise import masks, reference
from headwise.masks import Causal, Dense, Lengths, Packed, Prefix, Window
from headwise.ops import AttentionResult

from .naive import naive_attention
from .tolerance import assert_within_rule

KINDS = ("randn", "peaked", "needles")
LAYOUTS = ("contiguous", "heads_inside", "sliced", "every_second", "expanded")


@dataclass(frozen=True)
class Case:
    """One attention problem: tensors, options, and a name for the report."""

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def exact(self) -> AttentionResult:
        """Return the reference's answer, float64."""
        tensors = (self.query, self.key, self.value)
        found = reference.attention(
            *(tensor.double().numpy() for tensor in tensors),
            **{name: _for_numpy(option) for name, option in self.options.items()},
        )
        return AttentionResult(torch.from_numpy(found.output), torch.from_numpy(found.logsumexp))

    def visible(self) -> Tensor:
        """Return which keys each row sees, `[batch, num_heads, seq_len, kv_len]`."""
        sizes = masks.Sizes(*self.query.shape[:3], self.key.shape[2])
        mask, bias = (_for_numpy(self.options.get(name)) for name in ("mask", "bias"))
        return torch.from_numpy(reference.visible_and_bias(mask, bias, sizes)[0])


def _for_numpy(option: Any) -> Any:
    return option.double().numpy() if isinstance(option, Tensor) and option.is_floating_point() else option


def assert_attends(attend: Callable[..., AttentionResult], case: Case) -> None:
    """Hold `attend`, called as `attention_with_logsumexp` is, to the reference on `case`."""
    exact = case.exact
    # The baseline is not asked to survive NaN; what it computes from zeros there, nobody sees.
    clean = [
        tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for tensor in (case.query, case.key, case.value)
    ]
    plain = naive_attention(*clean, **case.options)
    found = attend(case.query, case.key, case.value, **case.options)
    assert found.output.dtype == case.query.dtype
    assert_within_rule(found.output, exact.output, plain.output, f"output of {case.name}")
    wide = torch.float64 if case.query.dtype == torch.float64 else torch.float32
    assert found.logsumexp.dtype == wide
    plain_wide = naive_attention(*(tensor.to(wide) for tensor in clean), **case.options)
    assert_within_rule(found.logsumexp, exact.logsumexp, plain_wide.logsumexp, f"logsumexp of {case.name}")


def tensors(
    kind: str,
    *,
    batch: int = 2,
    num_heads: int = 6,
    num_kv_heads: int = 3,
    seq_len: int = 5,
    kv_len: int = 7,
    head_dim: int = 11,
    value_head_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value: `randn`; `peaked`, scores three times as large; or `needles`.

    Needles have one-hot values, key j's at j modulo value_head_dim, so that the output shows the weights.
    """
    value_head_dim = head_dim if value_head_dim is None else value_head_dim
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(batch, num_heads, seq_len, head_dim, generator=generator)
    key = torch.randn(batch, num_kv_heads, kv_len, head_dim, generator=generator)
    value = torch.randn(batch, num_kv_heads, kv_len, value_head_dim, generator=generator)
    if kind != "randn":
        query = 3 * query
    if kind == "needles":
        value = torch.eye(value_head_dim)[torch.arange(kv_len) % value_head_dim].expand_as(value)
    return query.to(dtype), key.to(dtype), value.to(dtype).contiguous()


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """Return a tensor equal to `tensor` with other strides; the memory around it holds NaN."""
    batch, heads, length, width = tensor.shape
    match layout:
        case "contiguous":
            return tensor.contiguous()
        case "heads_inside":  # [batch, length, heads, width] in memory, as projections leave it
            view = tensor.new_full((batch, length, heads, width), torch.nan).transpose(1, 2)
        case "sliced":
            view = tensor.new_full((batch, heads, length + 4, width + 3), torch.nan)[:, :, 2:-2, 1:-2]
        case "every_second":
            view = tensor.new_full((batch, heads, length, 2 * width), torch.nan)[..., ::2]
        case "expanded":  # only the first batch element is there; all others are it
            return tensor[:1].expand_as(tensor) if batch else tensor
        case _:
            raise ValueError(layout)
    return view.copy_(tensor)


def poisoned(case: Case) -> Case:
    """Return `case` with NaN in every key and value that no row sees."""
    batch, num_kv_heads, kv_len, _ = case.key.shape
    visible = case.visible().reshape(batch, num_kv_heads, -1, case.query.shape[2], kv_len)
    unseen = ~visible.any(dim=3).any(dim=2)[..., None]
    key, value = case.key.masked_fill(unseen, torch.nan), case.value.masked_fill(unseen, torch.nan)
    return replace(case, name=f"{case.name}, poisoned", key=key, value=value)


def all_masks(batch: int, num_heads: int, seq_len: int, kv_len: int) -> dict[str, Any]:
    """Return one mask of each kind that fits, by name."""
    rng = np.random.default_rng(7)
    boolean = rng.random((batch, num_heads, seq_len, kv_len)) < 0.6
    boolean[:, :, seq_len // 2] = False
    floats = np.where(boolean, rng.standard_normal(boolean.shape), -np.inf)
    real = [min(1 + b, kv_len) for b in range(batch)]
    found = {
        "none": None,
        "causal": Causal(),
        "causal upper left": Causal("upper_left"),
        "window": Window(left=2, right=1),
        "causal window": Window.of(3),
        "lengths": Lengths([min(b, kv_len) for b in range(batch)]),
        "lengths left": Lengths(real, padding="left"),
        "prefix": Prefix(1),
        "causal and lengths": Causal() & Lengths(real, padding="left"),
        "boolean": torch.from_numpy(boolean),
        "boolean per batch": Dense(torch.from_numpy(boolean[:, 0]), axes="bqk"),
        "boolean per head": Dense(torch.from_numpy(boolean[0]), axes="hqk"),
        "boolean keys": torch.from_numpy(boolean[:, :1, :1]),
        "boolean and causal": Causal() & torch.from_numpy(boolean),
        "float": torch.from_numpy(floats).float(),
        "float and window": Window(left=3, right=0) & torch.from_numpy(floats[:1, :1]),
        "nothing seen": torch.zeros(seq_len, kv_len, dtype=torch.bool),
    }
    if seq_len == kv_len > 1:
        found["packed"] = Packed([1, 0, seq_len - 2])  # the last row is padding
        found["packed causal"] = Packed([1, seq_len - 1]) & Causal()
    elif kv_len > 1:
        found["packed cross"] = Packed([1, seq_len - 1], key_lengths=[2, kv_len - 2])
    return found


def all_options(batch: int, num_heads: int, seq_len: int, kv_len: int) -> dict[str, dict[str, Any]]:
    """Return one set of options beside the mask of each kind, by name."""
    generator = torch.Generator().manual_seed(3)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "plain": {},
        "scale": {"scale": 0.37},
        "bias": {"bias": randn(1, num_heads, seq_len, kv_len)},
        "huge bias": {"bias": 1e4 * randn(seq_len, kv_len)},
        "softcap": {"softcap": 1.3},
        "sinks": {"sinks": randn(num_heads)},
        "gates": {"head_gates": randn(batch, num_heads)},
        "everything": {
            "bias": randn(1, num_heads, 1, kv_len),
            "scale": 0.71,
            "softcap": 2.9,
            "sinks": randn(num_heads),
            "head_gates": randn(num_heads),
        },
    }


@cache
def all_cases(dtype: torch.dtype) -> list[Case]:
    """Return every mask with every option, the kinds of input taking turns, and poison where nobody looks."""
    cases: list[Case] = []
    for kv_len, value_head_dim in ((7, 11), (5, 13), (5, 11)):
        for mask_name, mask in all_masks(2, 6, 5, kv_len).items():
            for option_name, options in all_options(2, 6, 5, kv_len).items():
                kind = KINDS[len(cases) % len(KINDS)]
                query, key, value = tensors(
                    kind, kv_len=kv_len, value_head_dim=value_head_dim, dtype=dtype, seed=len(cases)
                )
                name = f"{mask_name}, {option_name}, {kind}, kv_len {kv_len}, value_head_dim {value_head_dim}"
                cases.append(poisoned(Case(name, query, key, value, {"mask": mask, **options})))
    return cases
