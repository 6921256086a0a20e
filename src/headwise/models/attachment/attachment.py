"""`attach`: see, and switch off, every attention head of a transformers model while it runs as ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, SupportsIndex

from transformers import PreTrainedModel

from headwise.errors import ArgumentError, UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment import baselines, discover, interface, switch
from headwise.models.attachment import probe as probing
from headwise.models.attachment.addressing import EvidenceByLayer, LayerKey, find_heads, find_layer
from headwise.models.attachment.baselines import How
from headwise.models.attachment.discover import AttachedLayer, Trace, Unseen
from headwise.models.attachment.recording import Recorder
from headwise.models.attachment.takeover import take_over


def attach(
    model: PreTrainedModel,
    *,
    collect: Collect | Mapping[LayerKey, Collect] | None = None,
    probe: Mapping[str, Any] | None = None,
) -> Attachment:
    """Route every attention layer of `model` through headwise, after proving that its numbers stay the same.

    The model keeps its own code; only the attention call inside each layer is answered, by
    `headwise.attention`. Where evidence is collected it comes from `headwise.observe`, beside that answer,
    which stays the same bit for bit. A small padded batch, the probe, is run under the model's `eager`
    attention and under ours: every attention layer must have called us, and the outputs must be equal, up to
    rounding, at all tokens that are no padding. At padding they may differ: a row that sees no key gives 0
    and has no evidence here, where eager takes the mean over all keys.

    Args:
        model: a transformers model whose family uses the attention interface.
        collect: what to record in every layer, or in some layers by number or module path; None records
            nothing. `Attachment.collect` can be set at any time.
        probe: inputs of the model for the proof, as keywords of its forward; by default made from its config.

    Returns:
        The attachment, also a context manager; `detach()` or the end of the `with` restores the model.

    Raises:
        ArgumentError: not a transformers model, already attached, or the probe does not run.
        UnsupportedError: the family bypasses the interface, or asks for what headwise does not implement.
        MismatchError: the outputs differ from those of `eager`.

    Example:
        >>> import torch
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
        >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2)).eval()
        >>> with attach(model, collect=Collect()) as heads:
        ...     heads.ablate(layer=1, head=3)
        ...     logits = model(torch.tensor([[5, 7, 11]])).logits
        ...     heads.evidence[1].entropy.shape
        torch.Size([1, 4, 3])

    """
    return Attachment(model, collect=collect, probe=probe)


class Attachment:
    """The attention heads of one model, while it is attached. Made by `attach`.

    A layer is addressed by its number. Where several layers share one, as in an encoder-decoder, the number
    is refused, and the module path (`AttachedLayer.name`) or the layer itself is used.
    """

    layers: tuple[AttachedLayer, ...]
    """The attention layers, in the order in which they ran on the probe."""

    unseen: tuple[Unseen, ...]
    """Modules that mix tokens, or may, and are not recorded: linear attention, pooling heads, and layers that
    the probe did not reach, which refuse to run."""

    max_logit_difference: float
    """The largest difference from `eager` on the probe, over all outputs, padding left out."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        collect: Collect | Mapping[LayerKey, Collect] | None,
        probe: Mapping[str, Any] | None,
    ) -> None:
        _refuse_unsuited(model)
        self._model = model
        self._recorder = Recorder(model)
        self._release = take_over(self, model, self._recorder)
        try:
            self._prove(probe)
            self.collect = collect
        except BaseException:
            self.detach()
            raise

    @property
    def evidence(self) -> EvidenceByLayer:
        """What every layer did over the latest text that the model read in this thread.

        Prompt and generated tokens are one picture; `EvidenceByLayer` says what that means.
        """
        picture = self._recorder.picture
        return EvidenceByLayer(self.layers, picture, picture.first_row)

    @property
    def collect(self) -> Mapping[AttachedLayer, Collect]:
        """What is recorded, by layer; set it to a `Collect` for all layers, several by layer, or None."""
        return dict(self._recorder.collect)

    @collect.setter
    def collect(self, wanted: Collect | Mapping[LayerKey, Collect] | None) -> None:
        by_layer: Mapping[LayerKey, Any] | Any = {} if wanted is None else wanted
        if isinstance(wanted, Collect):
            by_layer = dict.fromkeys(self.layers, wanted)
        if not isinstance(by_layer, Mapping) or not all(
            isinstance(each, Collect) for each in by_layer.values()
        ):
            raise ArgumentError(
                f"collect={wanted!r} is neither a Collect, nor a mapping from layers to Collect, nor None; "
                "pass collect=Collect()"
            )
        self._refuse_detached()
        self._recorder.collect = {find_layer(self.layers, key): each for key, each in by_layer.items()}

    def ablate(
        self,
        *,
        layer: LayerKey,
        head: SupportsIndex | None = None,
        kv_head: SupportsIndex | None = None,
        how: How = "zero",
        baseline: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Switch a head off: in every later forward its output is replaced, before the output projection.

        To ablate a query head and to ablate a KV head are different questions: `kv_head` switches off all
        query heads that read it, `head` one of them. Several heads and layers may be off at once.

        Args:
            layer: the layer's number or module path.
            head: the query head.
            kv_head: the KV head, instead of `head`.
            how: `"zero"`; `"mean"`, the head's mean output over the tokens of `baseline` that are no padding;
                or `"resample"`, its output at the same place of the text `baseline`, padding not counted and
                cached tokens counted.
            baseline: inputs of the model (keywords of its forward) for `"mean"` and `"resample"`; for
                `"mean"` also a list of them. They are run once, here, with every head on.

        Raises:
            ArgumentError: no such layer or head, a baseline that is missing, useless or (when run) too short.
            UnsupportedError: `"resample"` in an encoder-decoder.

        Example:
            >>> import torch
            >>> from transformers import LlamaConfig, LlamaForCausalLM
            >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64}
            >>> config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4)
            >>> model = LlamaForCausalLM(config).eval()
            >>> text = {"input_ids": torch.tensor([[5, 7, 11]])}
            >>> with attach(model) as heads:
            ...     heads.ablate(layer=0, head=2)
            ...     heads.ablate(layer=1, kv_head=1, how="mean", baseline=text)
            ...     logits = model(**text).logits

        """
        self._refuse_detached()
        place = find_layer(self.layers, layer)
        off = find_heads(place, head, kv_head)
        stand_ins = baselines.stand_ins(self._model, self._recorder, place, off, how=how, baseline=baseline)
        self._recorder.ablations.put(place, stand_ins)

    def restore(
        self,
        *,
        layer: LayerKey | None = None,
        head: SupportsIndex | None = None,
        kv_head: SupportsIndex | None = None,
    ) -> None:
        """Switch one head, or with no arguments all of them, on again.

        Raises:
            ArgumentError: no such layer or head, or it is not ablated.

        Example:
            >>> from transformers import LlamaConfig, LlamaForCausalLM
            >>> sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 64}
            >>> config = LlamaConfig(**sizes, num_hidden_layers=2, num_attention_heads=4)
            >>> with attach(LlamaForCausalLM(config).eval()) as heads:
            ...     heads.ablate(layer=0, head=2)
            ...     heads.restore(layer=0, head=2)
            ...     heads.restore()

        """
        if layer is not None:
            place = find_layer(self.layers, layer)
            self._recorder.ablations.take(place, find_heads(place, head, kv_head))
        elif head is None and kv_head is None:
            self._recorder.ablations.clear()
        else:
            raise ArgumentError(
                f"restore got head={head}, kv_head={kv_head} and no layer; name the layer too"
            )

    def detach(self) -> None:
        """Put the model back as it was found; the evidence of the latest forward stays readable."""
        self._release()

    def __enter__(self) -> Self:
        self._refuse_detached()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()

    def _prove(self, given: Mapping[str, Any] | None) -> None:
        """Run the probe under eager and under ours, compare, and find the layers."""
        model, family = self._model, type(self._model).__name__
        switch.switch(model, interface.NAME)
        with probing.in_eval_mode(model):
            switch.switch(model, "eager")
            first, *more = probing.expectations(model, given)
            switch.switch(model, interface.NAME)
            trace = Trace(model)
            with self._recorder.tracing(trace):
                outputs = probing.run(model, first.inputs)
            self.layers, self.unseen = discover.survey(family, trace)
            for layer in self.layers:
                self._recorder.seat(trace.modules[layer.name], layer)
            differences = [probing.largest_difference(family, first, outputs)]
            # Untraced once more: while operations are being watched the kernel leaves them to plain torch.
            for expected in (first, *more):
                outputs = probing.run(model, expected.inputs)
                differences.append(probing.largest_difference(family, expected, outputs))
        self.max_logit_difference = max(differences)

    def _refuse_detached(self) -> None:
        if not self._release.alive:
            raise ArgumentError(
                f"{type(self._model).__name__} is detached; attach it again to record or ablate its heads"
            )


def _refuse_unsuited(model: object) -> None:
    if not isinstance(model, PreTrainedModel):
        raise ArgumentError(
            f"model is a {type(model).__name__}; attach takes a transformers PreTrainedModel "
            "(of a wrapper such as torch.compile or PEFT, the model inside it)"
        )
    if any(parameter.is_meta for parameter in model.parameters()):
        raise UnsupportedError(
            f"{type(model).__name__} has parameters on the meta device, which hold no numbers (an empty or "
            "offloaded model); load it into memory first"
        )
