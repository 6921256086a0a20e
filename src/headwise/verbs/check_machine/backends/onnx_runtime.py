"""ONNX Runtime's `Attention`, the operator of the standard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from headwise.models.short_cause import short_cause
from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.libraries import CannotRunError

OPSET = 23  # the first with Attention
FORMAT = 10  # of the model file
TYPES = {"float32": "float", "float16": "float16", "float64": "double"}


class OnnxRuntime(Backend):
    """A graph of one node, on the CPU."""

    name: ClassVar[str] = "onnxruntime"
    label: ClassVar[str] = "ORT"
    libraries: ClassVar[dict[str, str]] = {"onnxruntime": "ONNX Runtime", "onnx": "ONNX"}

    def forms(self, case: Case) -> Iterator[Form]:
        """Yield the attribute for causal attention, and the mask as a tensor.

        Raises:
            CannotRunError: the operator has no form of the case.

        """
        if case.dtype not in TYPES:
            raise CannotRunError(f"no {case.dtype} on a CPU")
        if case.sinks:
            raise CannotRunError("no sinks")
        if case.wants != "output":
            raise CannotRunError(f"returns no {case.wants}")
        if case.is_only_causal:
            yield _form(case, "is_causal", None, is_causal=True)
        if case.bias is not None:
            hidden = f".masked_fill(~({case.whole_mask()}), -torch.inf)" if case.has_mask else ""
            yield _form(case, "", f"bias{hidden}", is_causal=False)
        elif case.has_mask:
            yield _form(case, "mask tensor", f"({case.whole_mask()})", is_causal=False)
        else:
            yield _form(case, "", None, is_causal=False)

    def gist(self, error: Exception) -> str:
        """Return what was violated; before it stand the operator's source file and signature."""
        return short_cause(RuntimeError(str(error).rsplit(" was false. ", 1)[-1]))


def _form(case: Case, name: str, mask: str | None, *, is_causal: bool) -> Form:
    kind = TYPES[case.dtype]
    inputs = {"q": f"{kind}[B, H, L, D]", "k": f"{kind}[B, K, S, D]", "v": f"{kind}[B, K, S, E]"}
    if mask is not None:
        inputs["m"] = f"{kind if case.bias is not None else 'bool'}[M, N, O, P]"
    attributes = {"is_causal": int(is_causal), "softcap": case.softcap}
    named = ", ".join(f"{key}={value}" for key, value in attributes.items() if value)
    declared = ", ".join(f"{type_} {key}" for key, type_ in inputs.items())
    node = f"y = Attention{f'<{named}>' if named else ''} ({', '.join(inputs)})"
    opset = f'opset_import: ["" : {OPSET}]'
    model = f"<ir_version: {FORMAT}, {opset}> g ({declared}) => ({kind}[B, H, L, E] y) {{{node}}}"
    fed = ", ".join(f'"{key}": {key}.numpy()' for key in inputs)
    return Form(
        name,
        (
            "import onnx.parser, onnxruntime",
            *case.setup(),
            # The operator's mask has the rank of the scores.
            *((f"m = {mask}", "m = m.reshape((1,) * (4 - m.ndim) + m.shape)") if mask else ()),
            f"g = onnx.parser.parse_model('{model}').SerializeToString()",
            "s = onnxruntime.InferenceSession(g, providers=['CPUExecutionProvider'])",
            f"out = torch.from_numpy(s.run(None, {{{fed}}})[0])",
        ),
    )
