"""What autograd keeps for the backward pass: brought back by hooks, computed again, changed meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from headwise import ops
from headwise.masks import Causal, Lengths
from headwise.ops import fused, kernel, plain, registered

from ..attention_cases import tensors

OPTIONS: dict[str, Callable[[int], dict[str, Any]]] = {
    "causal": lambda _: {"mask": Causal()},
    "boolean": lambda batch: {"mask": torch.randn(batch, 1, 5, 7) < 0.5},
    "bias and sinks": lambda _: {"bias": torch.randn(1, 6, 1, 7), "sinks": torch.randn(6)},
    "two biases": lambda batch: {"bias": torch.randn(batch, 6, 5, 7), "mask": torch.randn(5, 7)},
    "gates": lambda batch: {"head_gates": torch.randn(6), "mask": Lengths([0, 4][:batch])},
    "dropout": lambda _: {"dropout": 0.4, "softcap": 2.0},
}
by_both = pytest.mark.parametrize("impl", ["cpu", "torch"])
with_all = pytest.mark.parametrize("name", OPTIONS)
Given = tuple[dict[str, Tensor], Callable[..., Any]]


def given(name: str, impl: Any, dtype: torch.dtype = torch.float32, batch: int = 2) -> Given:
    """Return by name the tensors of a call that can be leaves, and the call, which takes them in order."""
    options = OPTIONS[name](batch)
    made = dict(zip(("query", "key", "value"), tensors("randn", batch=batch, dtype=dtype), strict=True))
    made |= {
        key: each.to(dtype)
        for key, each in options.items()
        if isinstance(each, Tensor) and each.is_floating_point()
    }

    def attend(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        torch.manual_seed(11)  # of dropout
        query, key, value, *others = leaves
        floats = dict(zip([*made][3:], others, strict=True))
        found = ops.attention_with_logsumexp(query, key, value, **{**options, **floats}, impl=impl)
        return found.output, found.logsumexp

    return {key: each.requires_grad_() for key, each in made.items()}, attend


def upstreams_for(outputs: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    torch.manual_seed(13)
    return tuple(torch.randn_like(each) for each in outputs)


def gradients(outputs: tuple[Tensor, Tensor], leaves: list[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(outputs, leaves, upstreams_for(outputs), retain_graph=True))


def every_second(tensor: Tensor) -> Tensor:
    """Return the same numbers, NaN or 0 between them."""
    wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]), dtype=tensor.dtype)
    if wide.is_floating_point():
        wide.fill_(torch.nan)
    return wide[..., ::2].copy_(tensor)


def from_the_last_axis(tensor: Tensor) -> Tensor:
    """Return the same numbers, those of the first axis side by side."""
    turned = tuple(reversed(range(tensor.dim())))
    return tensor.permute(turned).contiguous().permute(turned)


def keep(tensor: Tensor) -> Tensor:
    return tensor.detach()


@by_both
@with_all
@pytest.mark.parametrize("bring", [every_second, from_the_last_axis])
def test_hooks_may_bring_back_other_memory(bring: Callable[[Tensor], Tensor], name: str, impl: Any) -> None:
    for dtype, batch in ((torch.float32, 1), (torch.float32, 2), (torch.bfloat16, 2)):
        made, attend = given(name, impl, dtype, batch)
        leaves = list(made.values())
        expected = gradients(attend(*leaves), leaves)
        with saved_tensors_hooks(keep, bring):
            outputs = attend(*leaves)
        for one, other in zip(gradients(outputs, leaves), expected, strict=True):
            if impl == "cpu":
                assert torch.equal(one, other)
            torch.testing.assert_close(one, other)


@by_both
@with_all
def test_tensors_saved_elsewhere_give_the_same_bits(name: str, impl: Any) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)
    with save_on_cpu():
        outputs = attend(*leaves)
    assert all(torch.equal(*pair) for pair in zip(gradients(outputs, leaves), expected, strict=True))


@by_both
@with_all
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_a_checkpoint_computes_again_has_the_same_bits(
    use_reentrant: bool, name: str, impl: Any
) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)
    outputs: Any = checkpoint(attend, *leaves, use_reentrant=use_reentrant)
    torch.autograd.backward(outputs, upstreams_for(outputs))
    assert all(torch.equal(leaf.grad, each) for leaf, each in zip(leaves, expected, strict=True))


@by_both
@with_all
def test_what_a_checkpoint_computes_again_may_have_a_stack_of_upstreams(name: str, impl: Any) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)
    outputs: Any = checkpoint(attend, *leaves, use_reentrant=False)
    stacks = [torch.stack([each, -each]) for each in upstreams_for(outputs)]

    def found() -> tuple[Tensor, ...]:
        return torch.autograd.grad(outputs, leaves, stacks, is_grads_batched=True)

    if name == "dropout":  # torch draws no numbers inside a map, for whatever dropout
        with pytest.raises(RuntimeError, match="perform random operations outside of vmap"):
            found()
        return
    for one, other in zip(found(), expected, strict=True):
        torch.testing.assert_close(one, torch.stack([other, -other]))


@by_both
@with_all
def test_a_checkpoint_may_keep_the_operators_results(
    name: str, impl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)

    def policy(_: Any, operation: Any, *__: Any, **___: Any) -> CheckpointPolicy:
        is_ours = operation is registered.ATTENTION
        return CheckpointPolicy.MUST_SAVE if is_ours else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(policy)

    outputs: Any = checkpoint(attend, *leaves, use_reentrant=False, context_fn=contexts)
    for module, function in ((kernel, "attend_for_gradient"), (fused, "attend"), (plain, "attend")):
        monkeypatch.setattr(module, function, lambda _: pytest.fail("computed again"))
    torch.testing.assert_close(gradients(outputs, leaves), expected)


@by_both
@with_all
def test_a_graph_that_is_kept_gives_the_same_bits_again(name: str, impl: Any) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    outputs = attend(*leaves)
    first, again = gradients(outputs, leaves), gradients(outputs, leaves)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


@by_both
@with_all
def test_a_tensor_that_was_changed_meanwhile_is_refused(name: str, impl: Any) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)
    for place, changed in enumerate([*made, "output"]):
        copies = [leaf * 1 for leaf in leaves]
        outputs = attend(*copies)
        with torch.no_grad():
            [*copies, outputs[0]][place].mul_(2.0)
        if changed == "head_gates" or (changed == "output" and "head_gates" in made):
            # Of these autograd keeps copies, with the numbers of the call.
            assert torch.equal(gradients(outputs, leaves)[-1], expected[-1])
            continue
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(outputs, leaves)


@by_both
@with_all
def test_torch_may_keep_copies_of_what_is_changed(name: str, impl: Any) -> None:
    made, attend = given(name, impl)
    leaves = list(made.values())
    expected = gradients(attend(*leaves), leaves)
    with allow_mutation_on_saved_tensors():
        copies = [leaf * 1 for leaf in leaves]
        outputs = attend(*copies)
        for copy in copies:
            copy.mul_(2.0)
        torch.testing.assert_close(gradients(outputs, leaves), expected)


def test_a_mask_that_was_changed_meanwhile_is_refused() -> None:
    made, mask = [each.requires_grad_() for each in tensors("randn")], torch.ones(5, 7, dtype=torch.bool)
    output = ops.attention(*made, mask=mask)
    mask.logical_not_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
