"""The ways into the operator, each called as `attention_with_logsumexp` is."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from headwise import ops
from headwise.ops import AttentionResult


def by_attention(*tensors: Tensor, **options: Any) -> AttentionResult:
    """The path that `attention` chooses, fused where it may be; it gives no logsumexp."""
    logsumexp = ops.attention_with_logsumexp(*tensors, **options).logsumexp
    return AttentionResult(ops.attention(*tensors, **options), logsumexp)


def by_observe(*tensors: Tensor, **options: Any) -> AttentionResult:
    found = ops.observe(*tensors, **options)
    return AttentionResult(found.output, found.logsumexp)


def by_reference(*tensors: Tensor, **options: Any) -> AttentionResult:
    return ops.attention_with_logsumexp(*tensors, impl="reference", **options)


def by_kernel(*tensors: Tensor, **options: Any) -> AttentionResult:
    """The CPU kernel; without logsumexp it must give the same output, bit for bit."""
    found = ops.attention_with_logsumexp(*tensors, impl="cpu", **options)
    assert torch.equal(_bits(ops.attention(*tensors, impl="cpu", **options)), _bits(found.output))
    return found


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int32 if tensor.dtype == torch.float32 else torch.int16)


Way = Callable[..., AttentionResult]

WAYS: dict[str, Way] = {
    "attention": by_attention,
    "cpu": by_kernel,
    "attention_with_logsumexp": ops.attention_with_logsumexp,
    "observe": by_observe,
    "reference": by_reference,
}
DIFFERENTIABLE = ("attention", "attention_with_logsumexp", "observe")
