"""The set holds what it must, and every known fault fails on it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import ClassVar

import pytest
import torch

from headwise.verbs.check_machine.asking import Question, execute
from headwise.verbs.check_machine.backends import BACKENDS, Backend, Form
from headwise.verbs.check_machine.backends.headwise_ops import HeadwiseCpu
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.judging import LEAK

from ...mutants import MUTANTS, Attend, sound


@functools.cache
def questions() -> tuple[Question, ...]:
    """The cases that naive attention takes: it has no gradients of its own, and no 16 bits to speak of."""
    wide = [case for case in CASES if case.dtype in {"float32", "float64"} and case.wants != "gradients"]
    return tuple(map(Question, wide))


class Mutant(Backend):
    """Attention with one fault, given headwise's own mask objects."""

    name: ClassVar[str] = "mutant"
    label: ClassVar[str] = "mutant"

    def forms(self, case: Case) -> Iterator[Form]:
        (form, *_) = HeadwiseCpu().forms(case)
        called = "out, logsumexp = mutant.attend(q, k, v, "
        (call,) = (each for each in form.statements if each.startswith("out"))
        call = called + call.split("q, k, v, ", 1)[1].replace('impl="cpu"', "")
        yield Form("", ("import planted_mutant as mutant", *form.statements[:-1], call))


@functools.cache
def verdicts_on(attend: Attend) -> dict[tuple[str, str], str]:
    """Return what is said of some attention: the verdict on each case, or the convention."""
    module = ModuleType("planted_mutant")
    vars(module)["attend"] = attend
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "planted_mutant", module)
        for question in questions():
            (form,) = Mutant().forms(question.case)
            finding = question.asked(Mutant(), form)
            found[question.case.group, question.case.name] = finding.convention or finding.verdict
    return found


def test_attention_without_a_fault_is_not_accused() -> None:
    found = verdicts_on(sound)
    accused = {case for case, told in found.items() if told != "right"}
    expected = {("float mask", "a row of -1e9"), ("float mask", "a row of the lowest number")}
    # It takes NaN out of keys and values before it begins, also what is seen.
    expected |= {("NaN in hidden places", "in the future")}
    expected |= {case for case in found if case[0] == "NaN in plain sight" and case[1] != "in a query"}
    assert accused == expected


CONVENTIONS = {
    "upper_left_for_lower_right": "causal aligns to the upper left",
    "hidden_values_times_zero": LEAK,
    "keys_read_past_the_end": "wrong",
    "mean_where_nothing_is_seen": "an empty row gives the mean of the values",
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_each_known_fault_is_found(mutant: Attend) -> None:
    before, after = verdicts_on(sound), verdicts_on(mutant)
    changed = {told for case, told in after.items() if told != before[case]}
    assert CONVENTIONS.get(mutant.__name__, "wrong") in changed


def test_the_set_covers_what_it_says() -> None:
    assert len({(case.group, case.name) for case in CASES}) == len(CASES)
    groups = list(dict.fromkeys(case.group for case in CASES))
    assert [case.group for case in CASES] == sorted((case.group for case in CASES), key=groups.index)
    assert {case.dtype for case in CASES} == {"float32", "float64", "float16", "bfloat16"}
    assert {63, 64, 65, 127, 128, 129, 255, 256, 257} <= {case.kv_len for case in CASES}
    assert {case.num_heads // case.num_kv_heads for case in CASES} >= {1, 2, 4}
    assert {case.head_dim for case in CASES} >= {1, 13, 64, 256}
    assert any(case.head_dim != case.value_head_dim for case in CASES)
    assert all(
        any(case.compiled for case in CASES if case.group == group)
        for group in groups
        if group not in {"sinks", "zero sizes", "gradients, hard rows"}
    )


def test_rows_are_empty_where_a_case_says_so_and_nowhere_else() -> None:
    with_empty_rows = {question.case.group for question in questions() if question.given.empty.any()}
    assert with_empty_rows == {
        "empty rows",
        "causal, rectangular",
        "sinks",
        "logsumexp",
        "softcap",
        "zero sizes",
    }


def test_views_are_what_their_names_say() -> None:
    def made(name: str) -> dict[str, torch.Tensor]:
        (case,) = (case for case in CASES if (case.group, case.name) == ("layout", name))
        namespace: dict[str, torch.Tensor] = {}
        execute("; ".join(case.setup()), namespace)
        return namespace

    plain = made("NaN behind the last key")
    for name, strides in {
        "[batch, length, heads, width]": (704, 16, 64, 1),
        "[heads, batch, length, width]": (176, 352, 16, 1),
        "[batch, heads, width, length]": (704, 176, 1, 11),
        "every other number": (1408, 352, 32, 2),
        "cut from a longer buffer": (1408, 352, 16, 1),
    }.items():
        query = made(name)["q"]
        assert query.stride() == strides
        torch.testing.assert_close(query, plain["q"], rtol=0, atol=0)
    assert made("from an odd address")["q"].storage_offset() % 2 == 1
    assert made("expanded heads")["k"].stride()[1] == 0
    assert made("expanded batch")["v"].stride()[0] == 0
    key = plain["k"]
    behind = key.as_strided((2, 4, 1, 16), key.stride(), key.storage_offset() + 11 * key.stride(2))
    assert behind.isnan().all()
    assert not key.isnan().any()


def test_every_backend_is_asked_by_name_and_label_of_its_own() -> None:
    assert (
        len({backend.name for backend in BACKENDS})
        == len({backend.label for backend in BACKENDS})
        == len(BACKENDS)
    )
