"""PyTorch's own samples for its `scaled_dot_product_attention`, answered by ours."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import attention as torch_attention
from torch.nn import functional

from headwise import ops
from headwise.errors import UnsupportedError
from headwise.masks import Causal

from .. import mutants
from ..naive import naive_attention
from ..tolerance import CAPS, assert_within_rule
from .ways import computes

IMPLEMENTATIONS = ("cpu", "torch", "reference")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WITH_DROPOUT = ("cpu", "torch")


@dataclass(frozen=True)
class Sample:
    """One call as torch makes it: query, key, value of rank 3 or 4, and its keyword arguments."""

    tensors: tuple[Tensor, Tensor, Tensor]
    keywords: dict[str, Any]

    @property
    def dropout(self) -> float:
        return float(self.keywords["dropout_p"])

    def by_torch_in_float64(self) -> Tensor:
        """What torch's formula says without dropout, whose random numbers are nobody's promise."""
        keywords = {**self.keywords, "dropout_p": 0.0}
        if "attn_mask" in keywords:
            keywords["attn_mask"] = keywords["attn_mask"].double()
        tensors = [each.double() for each in self.tensors]
        with torch_attention.sdpa_kernel(torch_attention.SDPBackend.MATH):
            return functional.scaled_dot_product_attention(*tensors, **keywords)

    def in_our_terms(self) -> tuple[list[Tensor], dict[str, Any]]:
        """The tensors with all four axes and no broadcasting, and the mask as ours: torch's is upper left."""
        leading = torch.broadcast_shapes(*(each.shape[:-2] for each in self.tensors))
        tensors = [each.expand(*leading, *each.shape[-2:]) for each in self.tensors]
        if len(leading) == 1:
            tensors = [each[:, None] for each in tensors]
        mask = Causal("upper_left") if self.keywords["is_causal"] else self.keywords.get("attn_mask")
        return tensors, {"mask": mask}


@cache
def samples(dtype: torch.dtype) -> list[Sample]:
    with pytest.MonkeyPatch.context() as patch:
        # Importing torch's test code would forbid this process to set flags such as allow_tf32.
        patch.setattr(torch.backends, "disable_global_flags", lambda: None)
        from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415
    (operator,) = [each for each in op_db if each.name == "nn.functional.scaled_dot_product_attention"]
    assert dtype in operator.supported_dtypes("cpu")
    torch.manual_seed(0)
    found = operator.sample_inputs("cpu", dtype, requires_grad=False)
    return [Sample((each.input, *each.args), each.kwargs) for each in found]


def test_the_samples_are_those_known() -> None:
    for dtype in DTYPES:
        found = samples(dtype)
        assert len(found) == 25
        assert len([each for each in found if each.dropout]) == 12
        assert len([each for each in found if each.keywords["is_causal"]]) == 12
        assert len([each for each in found if "attn_mask" in each.keywords]) == 1
        assert {name for each in found for name in each.keywords} == {"attn_mask", "is_causal", "dropout_p"}


def impls_and_dtypes() -> list[tuple[str, torch.dtype]]:
    return [(impl, dtype) for impl in IMPLEMENTATIONS for dtype in DTYPES if computes(impl, dtype)]


@pytest.mark.parametrize(("impl", "dtype"), impls_and_dtypes(), ids=str)
def test_every_sample_without_its_dropout(impl: Any, dtype: torch.dtype) -> None:
    # All at once: the scores go up to 500, and on one small sample the baseline is right or wrong by luck.
    exact = torch.cat([sample.by_torch_in_float64().flatten() for sample in samples(dtype)])
    plain = joined(baseline, dtype)
    for attend in (ops.attention, ops.attention_with_logsumexp):
        found = joined(partial(attend, impl=impl), dtype)
        if dtype == torch.float64:  # then torch's formula is no more exact than what it is compared with
            torch.testing.assert_close(found, exact, rtol=0, atol=CAPS[dtype] * exact.abs().max().item())
        else:
            assert_within_rule(found, exact, plain, f"the samples by {attend.__name__}")


def baseline(*tensors: Tensor, mask: Any) -> Tensor:
    # NumPy, in which it reads masks, has no bfloat16.
    return naive_attention(*tensors, mask=mask.double() if isinstance(mask, Tensor) else mask).output


def joined(attend: Callable[..., Any], dtype: torch.dtype) -> Tensor:
    """What `attend` gives for all samples, in one row."""
    found = []
    for sample in samples(dtype):
        tensors, options = sample.in_our_terms()
        result = attend(*tensors, **options)
        found.append((result if isinstance(result, Tensor) else result.output).flatten())
    return torch.cat(found)


def lower_right_for_upper_left(*tensors: Tensor, mask: Any) -> Tensor:
    return baseline(*tensors, mask=Causal() if isinstance(mask, Causal) else mask)


@pytest.mark.parametrize(
    "mutant",
    [
        mutants.missing_scale,
        mutants.scale_from_the_model_width,
        mutants.dropped_key,
        lower_right_for_upper_left,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_the_samples_catch(mutant: Callable[..., Any]) -> None:
    exact = torch.cat([sample.by_torch_in_float64().flatten() for sample in samples(torch.float32)])
    plain = joined(baseline, torch.float32)
    assert_within_rule(plain, exact, plain)
    with pytest.raises(AssertionError, match="result is off by"):
        assert_within_rule(joined(mutant, torch.float32), exact, plain)


@pytest.mark.parametrize("impl", IMPLEMENTATIONS)
def test_the_samples_with_dropout_drop_weights_and_scale_the_others_or_are_refused(impl: Any) -> None:
    seen = 0
    for sample in samples(torch.float32):
        if not sample.dropout:
            continue
        (query, key, _), options = sample.in_our_terms()
        identity = torch.eye(key.shape[2]).expand(*key.shape[:3], key.shape[2])
        weights = ops.attention(query, key, identity, impl=impl, **options)
        if impl not in WITH_DROPOUT:
            with pytest.raises(UnsupportedError, match=r"dropout=0\.5"):
                ops.attention(query, key, identity, dropout=sample.dropout, impl=impl, **options)
        else:
            kept = ops.attention(query, key, identity, dropout=sample.dropout, impl=impl, **options)
            grown = weights / (1 - sample.dropout)
            torch.testing.assert_close(kept, torch.where(kept == 0, 0.0, grown))
            assert 0 < (kept != 0).sum() < (weights != 0).sum()
        seen += 1
    assert seen == 12
