"""One forward under a model's own attention: each call compared, each projection found by its numbers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from headwise.models.attachment import AttachedLayer, Unseen
from headwise.models.attachment.discover import Trace, survey
from headwise.models.attachment.layer_call import LayerCall
from headwise.verbs.check_model.against_reference import Held, hold
from headwise.verbs.check_model.own_attention import hearing_calls
from headwise.verbs.check_model.result import Matrix
from headwise.verbs.check_model.sources import MOST_TOKENS, Made, Source, find_source


@dataclass(eq=False)
class HeardLayer:
    """What one attention call showed.

    - sources: which linear layer makes, or of `"output"` reads, each matrix's heads, where it was found
    - added `[num_heads]`: length of what each head adds at the token where it adds most; None where the
      output projection was not found or there is NaN
    - num_rows: how many rows the call had
    """

    held: Held
    sources: dict[Matrix, Source] = field(default_factory=dict)
    added: tuple[float, ...] | None = None
    num_rows: int = 0


@dataclass(frozen=True, eq=False)
class Heard:
    """The layers of a model in the order in which they ran, what each call showed, and what was not seen."""

    layers: tuple[AttachedLayer, ...]
    calls: tuple[HeardLayer, ...]
    unseen: tuple[Unseen, ...]


def hear(model: PreTrainedModel, inputs: Mapping[str, Any], on_layer: Callable[[int], None]) -> Heard:
    """Run a model once and return what its attention calls showed.

    Raises:
        UnsupportedError: it computes attention outside transformers' attention interface, or asks it for
            what headwise does not implement.

    """
    trace, ears = Trace(model), _Ears(on_layer)
    with ears.listening(model, trace), trace.watching(), torch.no_grad():
        model(**_fitting(model, inputs))
    layers, unseen = survey(type(model).__name__, trace)
    return Heard(layers, tuple(ears.heard), unseen)


def _fitting(model: PreTrainedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    accepted = inspect.signature(model.forward).parameters
    placed = {
        name: _placed(given, model) if isinstance(given, Tensor) else given for name, given in inputs.items()
    }
    # No cache, and of the logits, the largest tensor of all, no more than must be.
    spared = {"use_cache": False, "logits_to_keep": 1}
    return placed | {name: value for name, value in spared.items() if name in accepted}


def _placed(given: Tensor, model: PreTrainedModel) -> Tensor:
    # Images and sounds come in the dtype of the weights that read them.
    return given.to(model.device, model.dtype if given.is_floating_point() else None)


class _Ears:
    """Hears attention calls, linear layers and norms; keeps of tensors what one layer needs."""

    def __init__(self, on_layer: Callable[[int], None]) -> None:
        self.heard: list[HeardLayer] = []
        self._made: list[Made] = []
        self._output: Tensor | None = None
        self._on_layer = on_layer

    @contextmanager
    def listening(self, model: nn.Module, trace: Trace) -> Iterator[None]:
        with ExitStack() as cleanup:
            cleanup.enter_context(hearing_calls(model, self._call_of(trace)))
            for name, module in model.named_modules():
                if isinstance(module, nn.Linear | Conv1D) or _is_norm(module):
                    cleanup.callback(module.register_forward_hook(self._hook(name)).remove)
            yield

    def _call_of(self, trace: Trace) -> Callable[..., Any]:
        def on_call(module: nn.Module, call: LayerCall, run: Callable[[], Any]) -> Any:
            with trace.answering(module, call):
                answer = run()
            batch, num_heads, seq_len, _ = call.query.shape
            # [batch, seq_len, num_heads, value_head_dim] -> [batch, num_heads, seq_len, value_head_dim]
            output = answer[0].reshape(batch, seq_len, num_heads, -1).transpose(1, 2).detach()
            layer = HeardLayer(hold(call, output), num_rows=batch * seq_len)
            unit = math.gcd(call.query.shape[3], call.value.shape[3])
            given: dict[Matrix, Tensor] = {"query": call.query, "key": call.key, "value": call.value}
            for name, heads in given.items():
                source = find_source(heads, self._made, unit)
                if source is not None:
                    layer.sources[name] = source
            self._made.clear()
            if _spoils(layer.held):  # it would make all layers behind it NaN
                answer = (_zeroed(answer[0]), *answer[1:])
                output = _zeroed(output)
            self._output = output
            self.heard.append(layer)
            self._on_layer(len(self.heard))
            return answer

        return on_call

    def _hook(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], written: Any) -> None:
            if not args or not torch.is_tensor(args[0]) or not torch.is_tensor(written):
                return
            made = Made(name, module, args[0].detach(), written.detach())
            if made.is_linear and self._output is not None and _reads(args[0], self._output):
                self._take_output_projection(made, self._output)
                self._output = None
            self._made.append(made)

        return hook

    def _take_output_projection(self, made: Made, output: Tensor) -> None:
        _, num_heads, _, width = output.shape
        begins = tuple(range(0, num_heads * width, width))
        self.heard[-1].sources["output"] = Source(made.name, made.module, begins, width)
        weight, held = weight_of(made.module), self.heard[-1].held
        if weight is None or not held.is_finite or _spoils(held):
            return
        rows = output.transpose(1, 2).flatten(0, 1)  # [batch * seq_len, num_heads, value_head_dim]
        some = torch.linspace(0, len(rows) - 1, min(len(rows), MOST_TOKENS)).round().long()
        # [d_model, num_heads * value_head_dim] -> [num_heads, value_head_dim, d_model]
        slices = weight.T.unflatten(0, (num_heads, width)).float()
        added = torch.bmm(rows[some].transpose(0, 1).float(), slices)  # [num_heads, rows, d_model]
        self.heard[-1].added = tuple(added.norm(dim=-1).amax(dim=-1).tolist())


def _spoils(held: Held) -> bool:
    """Return whether a layer made NaN of what was none."""
    return held.is_finite and held.error == math.inf


def _zeroed(output: Tensor) -> Tensor:
    return output.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def weight_of(module: nn.Module) -> Tensor | None:
    """Return a linear layer's weight as `[out, in]`; None where it is packed and no float."""
    weight = module.weight
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.dim() != 2:
        return None
    weight = weight.detach()
    return weight.T if isinstance(module, Conv1D) else weight


def _reads(given: Tensor, output: Tensor) -> bool:
    """Return whether a linear layer reads the heads' outputs as they are, side by side."""
    side_by_side = output.transpose(1, 2).flatten(2)
    if given.numel() != side_by_side.numel() or given.shape[-1] != side_by_side.shape[-1]:
        return False
    same = given.detach().reshape(side_by_side.shape)
    return bool(((same == side_by_side) | (same.isnan() & side_by_side.isnan())).all())


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and next(module.children(), None) is None
