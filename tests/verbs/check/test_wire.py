"""A result as JSON and back: nothing is lost, and nothing of another shape is taken."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from headwise.verbs.check.result import CheckResult, Convention, Departure, Explanation, ProbeResult
from headwise.verbs.check.wire import read_back, written

from .made_results import RIGHT, UNKNOWN, WRONG

DEPARTING = replace(UNKNOWN, departures=(Departure("causal", "True", "False"),))


@pytest.mark.parametrize("result", [RIGHT, WRONG, UNKNOWN, DEPARTING])
def test_what_is_written_is_read_back_whole(result: CheckResult) -> None:
    line = written(result)
    assert "\n" not in line
    assert read_back(CheckResult, json.loads(line)) == result


def test_infinity_and_nan_survive() -> None:
    probe = replace(RIGHT.probes[0], error=math.nan, allowed=math.inf)
    back = read_back(ProbeResult, json.loads(written(probe)))
    assert math.isnan(back.error)
    assert back.allowed == math.inf


def test_a_whole_number_may_stand_for_a_fraction_and_stays_one() -> None:
    back = read_back(ProbeResult, {"name": "a", "what": "b", "error": 0, "allowed": 1})
    assert (type(back.error), type(back.allowed)) == (float, float)


def changed(path: tuple[str | int, ...], value: Any) -> Any:
    document = json.loads(written(WRONG))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "None stands where CheckResult must"),
        ([], "stands where CheckResult must"),
        ({"name": "x"}, "stands where CheckResult must"),
        (changed(("surplus",), 1), "stands where CheckResult must"),
        (changed(("name",), 3), "3 stands where str must"),
        (changed(("is_right",), 1), "1 stands where bool must"),
        (changed(("searched",), True), "True stands where int must"),
        (changed(("error",), "1.0"), "'1.0' stands where float must"),
        (changed(("form",), "sideways"), "'sideways' stands where Form must"),
        (changed(("form",), ["heads"]), "stands where Form must"),
        (changed(("sizes", "num_heads"), None), "None stands where int must"),
        (changed(("probes",), {}), "{} stands where tuple must"),
        (changed(("explanations", 0, "faults", 0), "scale-missing"), "stands where Fault must"),
        (changed(("nearest",), "near"), "'near' stands where"),
    ],
)
def test_what_does_not_fit_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("{", r"\{").replace("}", r"\}")):
        read_back(CheckResult, document)


def test_what_has_no_form_in_json_is_refused() -> None:
    with pytest.raises(TypeError, match="a result holds a value of type object, which has no form in JSON"):
        written(Convention("odd", object()))  # type: ignore[arg-type]


def test_a_pair_of_faults_is_read_back_as_a_tuple() -> None:
    back = read_back(Explanation, json.loads(written(WRONG.explanations[0])))
    assert isinstance(back.faults, tuple)
