"""What a case must give, in float64, and what it gives under each convention that is known to differ.

What is right is `headwise.reference`; gradients are the derivative of its formula, written out. Only what
differs by convention has weights of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise import reference
from headwise.verbs.check_machine.case import Case

Float64 = NDArray[np.float64]
Results = dict[str, Float64]


@dataclass(frozen=True, eq=False)
class Given:
    """The tensors of a case as NumPy arrays; visible and added are `[batch, num_heads, seq_len, kv_len]`."""

    query: Float64
    key: Float64
    value: Float64
    visible: NDArray[np.bool_]
    bias: Float64 | None
    sinks: Float64 | None
    upstream: Float64
    softcap: float | None
    score_dtype: type[np.floating[Any]]

    @property
    def empty(self) -> NDArray[np.bool_]:
        """The rows that see no key, `[batch, num_heads, seq_len]`."""
        return ~np.asarray((self.visible & self.added[0]).any(axis=-1))

    @property
    def added(self) -> tuple[NDArray[np.bool_], Float64]:
        """Which keys the bias leaves visible, and what it adds to the others' scores."""
        if self.bias is None:
            return np.ones_like(self.visible), np.zeros(self.visible.shape)
        bias = np.broadcast_to(self.bias, self.visible.shape)
        return bias != -np.inf, np.where(bias == -np.inf, 0.0, bias)

    def by_query_head(self, tensor: Float64) -> Float64:
        """Return a tensor of KV heads with one for each query head."""
        return tensor.repeat(self.query.shape[1] // tensor.shape[1], axis=1) if tensor.shape[1] else tensor

    def to_kv_heads(self, gradient: Float64) -> Float64:
        """Return the sum over the query heads that read one KV head."""
        batch, _, length, width = gradient.shape
        return gradient.reshape(batch, self.key.shape[1], -1, length, width).sum(axis=2)


def given(case: Case, namespace: Mapping[str, Any]) -> Given:
    """Return the tensors that the statements of a case have made."""
    shape = (case.batch, case.num_heads, case.seq_len, case.kv_len)
    visible = _mask(case.whole_mask(), namespace) if case.has_mask else np.ones(1, dtype=bool)
    return Given(
        query=_array(namespace["q"]),
        key=_array(namespace["k"]),
        value=_array(namespace["v"]),
        visible=np.broadcast_to(visible, shape),
        bias=_array(namespace["bias"]) if case.bias is not None else None,
        sinks=_array(namespace["sinks"]) if case.sinks else None,
        upstream=_array(namespace["up"]) if case.wants == "gradients" else np.zeros(()),
        softcap=case.softcap,
        score_dtype=np.float64 if case.dtype == "float64" else np.float32,
    )


def exact(case: Case, tensors: Given) -> Results:
    """Return what is right: `out`, and `logsumexp` or `dq`, `dk`, `dv`, `dbias` where the case wants them."""
    bias = None if tensors.bias is None else np.broadcast_to(tensors.bias, tensors.visible.shape)
    found = reference.attention(
        tensors.query,
        tensors.key,
        tensors.value,
        mask=tensors.visible,
        bias=bias,
        softcap=tensors.softcap,
        sinks=tensors.sinks,
    )
    results: Results = {"out": found.output}
    if case.wants == "logsumexp":
        results["logsumexp"] = found.logsumexp
    if case.wants == "gradients":
        results |= _gradients(case, tensors, found.weights)
    return results


def by_convention(case: Case, tensors: Given, namespace: Mapping[str, Any]) -> Iterator[tuple[str, Results]]:
    """Yield each convention that changes this case, by name, with what the case gives under it."""
    if case.causal or case.window is not None:
        visible = np.broadcast_to(_mask(case.whole_mask("upper_left"), namespace), tensors.visible.shape)
        if (visible != tensors.visible).any():
            upper_left = replace(tensors, visible=visible)
            yield "causal aligns to the upper left", exact(case, upper_left)
            for name, results in _for_empty_rows(case, upper_left):
                yield f"causal aligns to the upper left, {name}", results
    yield from _for_empty_rows(case, tensors)
    if tensors.bias is not None and np.abs(tensors.added[1]).max() > 1e6:
        yield "a large bias swallows the scores", _from_weights(case, tensors, _swallowed(tensors))
        hides = tensors.visible & (tensors.added[1] > np.finfo(np.float32).min)
        yield "a bias of the lowest number hides", exact(case, replace(tensors, visible=hides))


def _for_empty_rows(case: Case, tensors: Given) -> Iterator[tuple[str, Results]]:
    empty = tensors.empty
    if not empty.any():
        return
    right = exact(case, tensors)
    yield "an empty row gives NaN", {**right, "out": np.where(empty[..., None], np.nan, right["out"])}
    if tensors.visible.shape[-1]:
        mean = _weights(tensors, tensors.visible & tensors.added[0])
        mean[empty] = 1 / mean.shape[-1]
        yield "an empty row gives the mean of the values", {**right, **_from_weights(case, tensors, mean)}


def _swallowed(tensors: Given) -> Float64:
    """Return weights whose scores were rounded after a large bias had been added."""
    added = tensors.added[1].astype(tensors.score_dtype)
    return _weights(tensors, tensors.visible, lambda scores: scores.astype(tensors.score_dtype) + added)


def _weights(
    tensors: Given, visible: NDArray[np.bool_], finish: Callable[[Float64], Any] | None = None
) -> Float64:
    scores = tensors.query @ tensors.by_query_head(tensors.key).swapaxes(-1, -2)
    scores = scores * tensors.query.shape[-1] ** -0.5
    with np.errstate(over="ignore"):
        scores = scores + tensors.added[1] if finish is None else np.asarray(finish(scores), dtype=np.float64)
    scores = np.where(visible & tensors.added[0], scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    raised = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    total = raised.sum(axis=-1, keepdims=True)
    weights: Float64 = raised / np.where(total == 0, 1.0, total)
    return weights


def _from_weights(case: Case, tensors: Given, weights: Float64) -> Results:
    results: Results = {"out": weights @ tensors.by_query_head(tensors.value)}
    return results | (_gradients(case, tensors, weights) if case.wants == "gradients" else {})


def _gradients(case: Case, tensors: Given, weights: Float64) -> Results:
    """Return the gradients of `sum(up * out)`: what no row sees has none, whatever it holds."""
    query, key, value = (
        np.where(np.isfinite(tensor), tensor, 0.0) for tensor in (tensors.query, tensors.key, tensors.value)
    )
    key, value = tensors.by_query_head(key), tensors.by_query_head(value)
    scale = query.shape[-1] ** -0.5
    of_weights = tensors.upstream @ value.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(axis=-1, keepdims=True))
    of_scores = np.where(tensors.visible & tensors.added[0], of_scores, 0.0)
    results = {
        "dq": scale * of_scores @ key,
        "dk": tensors.to_kv_heads(scale * of_scores.swapaxes(-1, -2) @ query),
        "dv": tensors.to_kv_heads(weights.swapaxes(-1, -2) @ tensors.upstream),
    }
    if case.bias_is_learned and tensors.bias is not None:
        results["dbias"] = _summed_to(of_scores, tensors.bias.shape)
    return results


def _summed_to(gradient: Float64, shape: tuple[int, ...]) -> Float64:
    """Return a gradient summed over what was broadcast."""
    padded = (1,) * (gradient.ndim - len(shape)) + shape
    axes = tuple(axis for axis, size in enumerate(padded) if size == 1 and gradient.shape[axis] != 1)
    return gradient.sum(axis=axes, keepdims=True).reshape(shape)


def _mask(source: str, namespace: Mapping[str, Any]) -> NDArray[np.bool_]:
    evaluated = eval(source, dict(namespace))  # noqa: S307 - the case's own source, which is a constant of ours
    mask: NDArray[np.bool_] = evaluated.numpy()
    return mask


def _array(tensor: torch.Tensor) -> Float64:
    array: Float64 = tensor.detach().double().numpy()
    return array
