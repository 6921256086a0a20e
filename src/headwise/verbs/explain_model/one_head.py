"""One head: the row of one query from scores to output, and what each head of its layer adds."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from headwise import masks
from headwise.models.attachment.layer_call import LayerCall
from headwise.verbs.explain.result import Matrix
from headwise.verbs.explain_model.listening import HeardCall
from headwise.verbs.explain_model.result import HeadRow


class Added(NamedTuple):
    """What the heads of a layer add: see `ModelTrace`."""

    added: Matrix
    bias: Matrix | None
    block: Matrix
    sum_difference: float


def head_row(heard: HeardCall, *, head: int, kv_head: int, position: int) -> HeadRow:
    """Return the row of one query of one head, each step in float64."""
    call: LayerCall = _found(heard.call)
    query, key, value = doubles(call.query[0, head, position]), *_of_kv_head(call, kv_head)
    visible, added = _seen(call, head, position)
    scale = query.shape[0] ** -0.5 if call.scale is None else call.scale
    scores = key @ query
    scaled = scores * scale
    if call.softcap is not None:
        scaled = call.softcap * np.tanh(scaled / call.softcap)
    sink = None if call.sinks is None else float(doubles(call.sinks).flatten()[head])
    weights, sink_weight = _weights(np.where(visible, scaled + added, -np.inf), sink)
    output = doubles(heard.outputs_at(position)[head])
    return HeadRow(
        scale=scale,
        softcap=call.softcap,
        scores=scores,
        scaled=scaled,
        added=added if added.any() else None,
        visible=visible,
        weights=weights,
        sink=sink_weight,
        output=output,
        output_difference=float(np.abs(weights @ value - output).max()),
    )


def added_by_heads(heard: HeardCall, *, position: int) -> Added:
    """Return what each head adds to the output of a call whose output projection was found."""
    outputs = doubles(heard.output[0])  # [num_heads, seq_len, value_head_dim]
    slices, bias = slices_of(heard)
    block = doubles(_found(heard.projected)[0])
    total = np.einsum("hsv,hvd->sd", outputs, slices) + (0.0 if bias is None else bias)
    return Added(
        added=np.einsum("hv,hvd->hd", outputs[:, position], slices),
        bias=bias,
        block=block[position],
        sum_difference=float(np.abs(total - block).max()),
    )


def slices_of(heard: HeardCall) -> tuple[Matrix, Matrix | None]:
    """Return each head's slice of the output projection, and its bias or None.

    The slices are `[num_heads, value_head_dim, d_model]`.
    """
    projection = _found(heard.projection)
    weight = doubles(projection.weight)
    # nn.Linear keeps [out, in], the Conv1D of GPT-2 [in, out].
    weight = weight.T if isinstance(projection, nn.Linear) else weight
    num_heads, value_head_dim = heard.output.shape[1], heard.output.shape[3]
    bias = getattr(projection, "bias", None)
    return weight.reshape(num_heads, value_head_dim, -1), None if bias is None else doubles(bias)


def doubles(tensor: torch.Tensor) -> Matrix:
    """Return a tensor as a float64 array of its own."""
    return tensor.detach().double().numpy(force=True).copy()


def _of_kv_head(call: LayerCall, kv_head: int) -> tuple[Matrix, Matrix]:
    return doubles(call.key[0, kv_head]), doubles(call.value[0, kv_head])


def _seen(call: LayerCall, head: int, position: int) -> tuple[NDArray[np.bool_], Matrix]:
    """Return which keys a row sees and what is added to its scores: of that row alone, for texts are long."""
    num_heads, seq_len, kv_len = *call.query.shape[1:3], call.key.shape[2]
    visible, added = np.ones(kv_len, dtype=bool), np.zeros(kv_len)
    if isinstance(call.mask, torch.Tensor):
        visible &= _row_of(call.mask, head, position).numpy(force=True)
    elif call.mask is not None:
        runs = masks.resolve(call.mask, masks.Sizes(1, num_heads, seq_len, kv_len)).intervals
        visible[: int(runs.start[0, position])] = False
        visible[int(runs.stop[0, position]) :] = False
    if call.bias is not None:
        added += doubles(_row_of(call.bias, head, position))
    return visible, added


def _row_of(tensor: torch.Tensor, head: int, position: int) -> torch.Tensor:
    """Return one row of a tensor `[1, num_heads or 1, seq_len or 1, kv_len]`."""
    return tensor[0, min(head, tensor.shape[1] - 1), min(position, tensor.shape[2] - 1)]


def _weights(scores: Matrix, sink: float | None) -> tuple[Matrix, float | None]:
    """Return the softmax over the visible keys and, where there is one, the sink."""
    joined = scores if sink is None else np.append(scores, sink)
    raised = np.exp(joined - joined.max())
    shares = raised / raised.sum()
    return (shares, None) if sink is None else (shares[:-1], float(shares[-1]))


def _found(part: Any) -> Any:
    if part is None:
        raise ValueError("this part of a call was not found, or not kept")
    return part
