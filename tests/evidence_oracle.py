"""What evidence must be: every number by its definition, in loops over full weights, and the checker.

The same loops over float64 weights of the reference give what is exact, and over naive torch weights in the
dtype of computation the baseline of the tolerance rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from headwise import ops, reference
from headwise.evidence import Collect, Evidence
from headwise.ops import Observation

from .attention_cases import Case
from .naive import naive_attention
from .tolerance import assert_within_rule

Numbers = dict[str, NDArray[Any]]
Observe = Callable[..., Observation]
KEYS = ("largest_key", "top_keys")
"""Which of two nearly equal keys is larger hangs on the last bit, so keys are held to their weights."""


class Weighed(NamedTuple):
    """Full weights `[batch, num_heads, seq_len, kv_len]`, what is visible, what a sink took of each row."""

    weights: NDArray[Any]
    visible: NDArray[np.bool_]
    sink: NDArray[Any] | None


def expected_evidence(
    weighed: Weighed, collect: Collect, first_key: Sequence[int] | None = None
) -> dict[str, NDArray[Any]]:
    """Return all that is asked for, by its definition, in the dtype of the weights."""
    batch, num_heads, seq_len, _ = weighed.weights.shape
    heads = range(num_heads) if collect.heads is None else collect.heads
    firsts = _first_keys(weighed.visible) if first_key is None else first_key
    found: Numbers = {"visible": weighed.visible.any(-1)[:, [*heads]]}
    rows = {
        (b, place, i): _row(weighed, (b, h, i), firsts[b], collect)
        for b in range(batch)
        for place, h in enumerate(heads)
        for i in range(seq_len)
    }
    for name, missing in _NOTHING.items():
        found[name] = np.full((batch, len(heads), seq_len), missing, weighed.weights.dtype)
        for index, row in rows.items():
            found[name][index] = row.get(name, missing)
    if collect.offsets:
        found["at_offsets"] = np.full((batch, len(heads), seq_len, len(collect.offsets)), np.nan)
        for index, row in rows.items():
            found["at_offsets"][index] = row.get("at_offsets", np.nan)
    reported = Weighed(weighed.weights[:, [*heads]], weighed.visible[:, [*heads]], None)
    found["largest_key"] = found["largest_key"].astype(np.int64)
    if weighed.sink is None:
        del found["sink"]
    return found | _pictures(reported, collect) | _divergence(weighed, collect)


_NOTHING = {
    **dict.fromkeys(
        (
            "entropy",
            "normalised_entropy",
            "largest_weight",
            "first_token",
            "previous_token",
            "self_token",
            "mean_distance",
            "local",
            "sink",
        ),
        np.nan,
    ),
    "largest_key": -1,
}


def _first_keys(visible: NDArray[np.bool_]) -> list[int]:
    seen = visible.any(axis=(1, 2))
    return [int(np.flatnonzero(each)[0]) if each.any() else 0 for each in seen]


def _row(weighed: Weighed, index: tuple[int, int, int], first: int, collect: Collect) -> dict[str, Any]:
    seq_len, kv_len = weighed.weights.shape[2:]
    weights, seen = weighed.weights[index], [int(j) for j in np.flatnonzero(weighed.visible[index])]
    if not seen:
        return {}
    own = index[2] + kv_len - seq_len
    positive = weights[weights > 0]
    entropy = -(positive * np.log(positive)).sum()
    largest = max(seen, key=lambda j: (weights[j], -j))
    row = {
        "entropy": entropy,
        "normalised_entropy": entropy / np.log(len(seen), dtype=weights.dtype) if len(seen) > 1 else 0.0,
        "largest_weight": weights[largest],
        "largest_key": largest,
        "first_token": weights[first] if first >= 0 else 0.0,
        "mean_distance": sum(weights[j] * abs(own - j) for j in seen),
        "local": sum(weights[j] for j in seen if abs(own - j) <= collect.local_window),
        "at_offsets": [weights[own - k] if own - k in seen else np.nan for k in collect.offsets],
    }
    if own - 1 in seen:
        row["previous_token"] = weights[own - 1]
    if own >= 0:
        row["self_token"] = weights[own]
    if weighed.sink is not None:
        row["sink"] = weighed.sink[index]
    return row


def _pictures(weighed: Weighed, collect: Collect) -> Numbers:
    """Return what is more than a number a row."""
    weights, sees = weighed.weights, weighed.visible.any(-1)
    found: Numbers = {}
    if collect.weights:
        found["weights"] = weights
    if collect.rows:
        found["row_weights"] = weights[:, :, [*collect.rows]]
    if collect.received:
        found["received"] = weights.sum(axis=2)
    if collect.top_k is not None:
        count = min(collect.top_k, weights.shape[3])
        order = np.argsort(np.where(weighed.visible, -weights, 1.0), axis=-1, kind="stable")[..., :count]
        seen = np.take_along_axis(weighed.visible, order, -1)
        found["top_keys"] = np.where(seen, order, -1)
        found["top_weights"] = np.take_along_axis(weights, order, -1) * seen
    if collect.map_size is not None:
        found["map"] = _map(weights, sees, collect.map_size)
    return found


def _map(weights: NDArray[Any], sees: NDArray[np.bool_], size: int) -> NDArray[Any]:
    batch, num_heads, seq_len, kv_len = weights.shape
    rows, columns = min(size, seq_len), min(size, kv_len)
    found = np.zeros((batch, num_heads, rows, columns), weights.dtype)
    for b, h, r, c in np.ndindex(found.shape):
        its_rows = [i for i in range(seq_len) if i * rows // seq_len == r and sees[b, h, i]]
        its_keys = [j for j in range(kv_len) if j * columns // kv_len == c]
        if its_rows:
            found[b, h, r, c] = weights[b, h][np.ix_(its_rows, its_keys)].sum(-1).mean()
    return found


def _divergence(weighed: Weighed, collect: Collect) -> Numbers:
    if not collect.pairs:
        return {}
    batch, _, seq_len, _ = weighed.weights.shape
    found = np.full((batch, len(collect.pairs), seq_len), np.nan, weighed.weights.dtype)
    shares = weighed.weights
    if weighed.sink is not None:
        shares = np.concatenate([shares, weighed.sink[..., None]], axis=-1)
    for b, place, i in np.ndindex(found.shape):
        pair = [*collect.pairs[place]]
        if weighed.visible[b, pair, i].any(-1).all():
            first, second = shares[b, pair, i]
            middle = (first + second) / 2
            found[b, place, i] = (_relative(first, middle) + _relative(second, middle)) / 2
    return {"divergence": found}


def _relative(weights: NDArray[Any], others: NDArray[Any]) -> Any:
    there = weights > 0
    return (weights[there] * np.log(weights[there] / others[there])).sum()


def exact_weights(case: Case) -> Weighed:
    """Return the reference's weights of a case."""
    options = {name: _numpy(option) for name, option in case.options.items()}
    found = reference.attention(*map(_numpy, (case.query, case.key, case.value)), **options)
    return _weighed(case, found.weights, found.logsumexp)


def naive_weights(case: Case) -> Weighed:
    """Return weights by naive torch in the dtype of computation."""
    wide = torch.float64 if case.query.dtype == torch.float64 else torch.float32
    query, key = (tensor.nan_to_num().to(wide) for tensor in (case.query, case.key))
    batch, num_kv_heads, kv_len, _ = key.shape
    # With the identity for values, the output is the weights.
    value = torch.eye(kv_len, dtype=wide).expand(batch, num_kv_heads, kv_len, kv_len)
    options = {name: option for name, option in case.options.items() if name != "head_gates"}
    found = naive_attention(query, key, value, **options)
    return _weighed(case, found.output.numpy(), found.logsumexp.numpy())


def _weighed(case: Case, weights: NDArray[Any], logsumexp: NDArray[Any]) -> Weighed:
    sink = None
    if (sinks := case.options.get("sinks")) is not None:
        with np.errstate(over="ignore"):  # rows that see no key have a logsumexp of -inf
            sink = np.exp(sinks.numpy().astype(weights.dtype)[:, None] - logsumexp)
    return Weighed(weights, case.visible().numpy(), sink)


def _numpy(option: Any) -> Any:
    return (
        option.double().numpy() if isinstance(option, torch.Tensor) and option.is_floating_point() else option
    )


def hold_evidence(
    case: Case,
    collect: Collect,
    *,
    observe: Observe = ops.observe,
    first_key: Sequence[int] | None = None,
) -> Evidence[torch.Tensor]:
    """Hold every field to its definition by the tolerance rule, and return the evidence."""
    given = {} if first_key is None else {"first_key": first_key}
    found = observe(case.query, case.key, case.value, **case.options, collect=collect, **given).evidence
    truth, plain = exact_weights(case), naive_weights(case)
    exact = expected_evidence(truth, collect, first_key)
    baseline = expected_evidence(plain, collect, first_key)
    fields = {name: value for name, value in vars(found).items() if value is not None and name != "heads"}
    assert fields.keys() == exact.keys(), f"fields of {case.name}"
    in_numpy = {name: value.numpy() for name, value in fields.items()}
    for name, numbers in in_numpy.items():
        assert numbers.shape == exact[name].shape, f"{name} of {case.name}"
        if name == "visible":
            assert np.array_equal(numbers, exact[name]), f"{name} of {case.name}"
        elif name not in KEYS:
            # Beside the largest weights: a small number is held to the size of the weights it is made from.
            made, wanted, naive = (
                np.concatenate([each[name].ravel(), each["largest_weight"].ravel()])
                for each in (in_numpy, exact, baseline)
            )
            assert_within_rule(*map(torch.from_numpy, (made, wanted, naive)), f"{name} of {case.name}")
    _hold_keys(found, truth, collect, case.name)
    return found


def _hold_keys(found: Evidence[torch.Tensor], truth: Weighed, collect: Collect, name: str) -> None:
    """Hold picked keys to being different visible ones that have the weights they were picked for."""
    picked = [(found.largest_key[..., None], found.largest_weight[..., None])]
    if found.top_keys is not None and found.top_weights is not None:
        picked.append((found.top_keys, found.top_weights))
    heads = [*collect.heads_of(truth.weights.shape[1])]
    for keys, weights in ((keys.numpy(), weights.numpy()) for keys, weights in picked):
        assert keys.dtype == np.int64
        for index in np.ndindex(keys.shape[:3]):
            there = (index[0], heads[index[1]], index[2])
            count = min(keys.shape[3], int(truth.visible[there].sum()))
            its = keys[index][:count]
            assert truth.visible[there][its].all(), f"a hidden key in {index} of {name}"
            assert len(set(its)) == count, f"a key twice in {index} of {name}"
            assert (keys[index][count:] == -1).all(), f"a key that is not in {index} of {name}"
            np.testing.assert_allclose(
                weights[index][:count], truth.weights[there][its], rtol=1e-4, atol=3e-5, err_msg=f"of {name}"
            )
