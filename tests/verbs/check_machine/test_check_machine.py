"""The function a user calls."""

from __future__ import annotations

import pytest

from headwise.errors import ArgumentError
from headwise.verbs.check_machine import check_machine, compute
from headwise.verbs.check_machine.backends import BACKENDS
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.running import units_of

from .fewer_cases import CAUSAL, NO_MASK


def test_an_unknown_backend_is_refused_before_anything_is_asked() -> None:
    listed = ", ".join(backend.name for backend in BACKENDS)
    with pytest.raises(ArgumentError, match=f"^backend 'sdpa' is unknown; there are {listed}$"):
        check_machine(backends=["jax", "sdpa"])


def test_backends_that_are_named_are_asked_in_the_usual_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "CASES", (NO_MASK, CAUSAL))
    said: list[tuple[str, float]] = []
    found = check_machine(backends=["torch_math", "headwise_cpu"], notify=lambda *told: said.append(told))
    assert [each.backend for each in found.examined] == ["headwise_cpu", "torch_math"]
    assert found.is_right
    assert found.groups == {"no mask": 1, "causal": 1}
    assert found.seconds > 0
    assert found.machine.versions["torch"]
    shares = [share for _, share in said]
    assert shares == sorted(shares)
    assert said[-1] == ("done", 1.0)
    assert {step for step, _ in said[:-1]} == {
        f"{label}: {group}" for label in ("hw cpu", "math") for group in found.groups
    }
    asked = sum(
        len(units_of(backend, (NO_MASK, CAUSAL))[0])
        for backend in BACKENDS
        if backend.label in {"hw cpu", "math"}
    )
    assert len(said) == asked + 1


def test_every_case_has_a_form_in_headwise() -> None:
    for backend in BACKENDS[:2]:
        units, without = units_of(backend, CASES)
        assert not without
        assert [*dict.fromkeys(unit.case for unit in units)] == [*CASES]
