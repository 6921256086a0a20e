"""What each backend is asked is the case, in its own words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.models.short_cause import short_cause
from headwise.verbs.check_machine.asking import Question, execute
from headwise.verbs.check_machine.backends import BACKENDS, flex
from headwise.verbs.check_machine.backends.flex import FlexAttention
from headwise.verbs.check_machine.backends.jax_nn import JaxNn
from headwise.verbs.check_machine.backends.multihead import MultiheadAttention
from headwise.verbs.check_machine.backends.onnx_runtime import OnnxRuntime
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.result import MachineCheck
from headwise.verbs.libraries import CannotRunError

from .fewer_cases import NO_MASK, case_named

MASKED = [case for case in CASES if case.has_mask]


def looked_up(case: Case) -> tuple[Tensor, Tensor]:
    """Return FlexAttention's mask at every place, and the whole mask as other backends are given it."""
    namespace: dict[str, Any] = {}
    execute("; ".join(case.setup()), namespace)
    whole = eval(case.whole_mask(), dict(namespace))  # noqa: S307 - the case's own source
    execute("; ".join(flex._tables(case)), namespace)
    sizes = (case.batch, case.num_heads, case.seq_len, case.kv_len)
    grid = torch.meshgrid(*map(torch.arange, sizes), indexing="ij")
    places = dict(zip("bhij", grid, strict=True))
    visible: Tensor = eval(flex._visible(case), {**namespace, **places})  # noqa: S307 - source of ours
    return visible.expand(sizes), whole.expand(sizes)


@pytest.mark.parametrize("case", MASKED, ids=lambda case: f"{case.group}: {case.name}")
def test_flex_attention_looks_up_the_same_mask(case: Case) -> None:
    visible, whole = looked_up(case)
    assert torch.equal(visible, whole)


def test_flex_attention_caps_before_it_adds() -> None:
    case = case_named("softcap", "2, a float mask")
    scores, bias = torch.tensor([3.0, 3.0]), torch.tensor([[[[-torch.inf, 0.5]]]])
    names = {"torch": torch, "s": scores, "bias": bias, "b": 0, "h": 0, "i": 0, "j": torch.arange(2)}
    found = eval(flex._score(case), names)  # noqa: S307 - source of ours
    torch.testing.assert_close(
        found, torch.tensor([-torch.inf, 2 * torch.tanh(torch.tensor(1.5)).item() + 0.5])
    )


def refusals() -> Iterator[tuple[str, Case, str]]:
    softcap, sinks, logsumexp = (
        case_named(*of) for of in (("softcap", "2"), ("sinks", "no mask"), ("logsumexp", "no mask"))
    )
    for name in ("torch_flash", "torch_math", "multihead"):
        yield name, softcap, "no softcap"
        yield name, sinks, "no sinks"
        yield name, logsumexp, "returns no logsumexp"
    yield "multihead", case_named("GQA and MQA", "4 heads, 1 KV"), "no grouped heads"
    yield (
        "multihead",
        case_named("widths of heads", "head_dim 16, values of 24"),
        "values are as wide as keys",
    )
    infinite = case_named("NaN in plain sight", "infinity in a value")
    yield "multihead", infinite, "its projections make NaN of infinity"
    yield "flex_attention", sinks, "no sinks"
    yield "onnxruntime", sinks, "no sinks"
    yield "onnxruntime", case_named("bfloat16", "causal"), "no bfloat16 on a CPU"
    yield "onnxruntime", case_named("gradients", "causal"), "returns no gradients"
    yield "onnxruntime", logsumexp, "returns no logsumexp"
    yield "jax", softcap, "no softcap"
    yield "jax", sinks, "no sinks"


@pytest.mark.parametrize(("name", "case", "reason"), [*refusals()])
def test_what_has_no_argument_is_refused_in_a_few_words(name: str, case: Case, reason: str) -> None:
    (backend,) = (backend for backend in BACKENDS if backend.name == name)
    with pytest.raises(CannotRunError, match=f"^{reason}$"):
        list(backend.forms(case))


def test_a_compiler_that_is_missing_is_told_with_what_brings_it() -> None:
    missing = RuntimeError("InvalidCxxCompiler: No working C++ compiler found in (None, 'g++')")
    assert FlexAttention().gist(missing) == "torch.compile found no working C++ compiler; install g++"
    assert FlexAttention().gist(ValueError("other\nlines")) == short_cause(ValueError("other"))


def test_of_onnx_runtimes_errors_what_was_violated_is_told() -> None:
    said = (
        "[Fail] node. /src/attention.h:70 void check(const Tensor*) a == b was false. inconsistent length\n"
    )
    assert OnnxRuntime().gist(RuntimeError(said)) == "inconsistent length"
    assert OnnxRuntime().gist(RuntimeError("no such operator")) == "no such operator"


def test_what_a_line_leaves_behind_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[str, bool]] = []
    config = SimpleNamespace(update=lambda *change: set_to.append(change))
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
    JaxNn().tidy()
    assert set_to == [("jax_enable_x64", False)]
    case = case_named("no mask", "one tensor thrice")
    forms = {form.name: form for form in MultiheadAttention().forms(case)}
    assert "torch.set_grad_enabled(False)" in forms["eval"].statements
    finding = Question(case).asked(MultiheadAttention(), forms["eval"])
    assert finding.verdict == "right"
    assert torch.is_grad_enabled()


def test_masks_are_asked_in_each_backends_own_words_too() -> None:
    def names(backend_name: str, *case: str) -> list[str]:
        (backend,) = (backend for backend in BACKENDS if backend.name == backend_name)
        return [form.name for form in backend.forms(case_named(*case))]

    padded = ("padding", "right, causal")
    assert names("headwise_cpu", *padded) == ["mask objects", "mask tensor"]
    assert names("torch_math", *padded) == ["mask tensor"]
    assert names("torch_math", "causal", "11 tokens") == ["is_causal", "mask tensor"]
    assert names("onnxruntime", "causal", "11 tokens") == ["is_causal", "mask tensor"]
    assert names("jax", *padded) == ["own words", "mask tensor"]
    assert names("headwise_cpu", "float mask", "a row of -1e9") == ["", "float mask"]
    assert names("multihead", *padded) == ["need_weights=False", "need_weights=True"]
    assert names("jax", "padding", "left") == names("jax", "boolean mask", "transposed") == [""]


def test_what_is_here_is_asked_and_answers(quick_found: MachineCheck, slow_found: MachineCheck) -> None:
    """No backend is kept from answering by the way it is asked."""
    for each in (*quick_found.examined, *slow_found.examined):
        assert each.missing is None
        assert each.verdicts("no mask")[NO_MASK.name] == "right"
    for name in ("torch_flash", "torch_math", "multihead"):
        gradients = quick_found.of(name).verdicts("gradients")
        assert gradients["causal"] == gradients["strided"] == "right"
    of_onnx = [finding.reason for finding in quick_found.of("onnxruntime").findings if finding.reason]
    assert all(len(reason) < 100 for reason in of_onnx)
