"""What `check` found, in the terminal and as JSON: every part of it, and nothing that steers a terminal."""

import io
import json
import math
from dataclasses import fields, replace

import pytest
from rich.console import Console

from headwise.verbs.check.asking import Form
from headwise.verbs.check.render_json import to_json
from headwise.verbs.check.render_text import PROBES_SHOWN, print_check
from headwise.verbs.check.result import (
    Caution,
    CheckResult,
    Convention,
    Departure,
    Explanation,
    Fault,
    Nearest,
    ProbeResult,
)

from .made_results import RIGHT, SCALE, TILED, UNKNOWN, WRONG


def told(found: CheckResult, *, width: int = 80) -> str:
    out = io.StringIO()
    print_check(found, Console(file=out, width=width, markup=False, highlight=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def test_a_right_one() -> None:
    assert told(RIGHT) == (
        "mha is right.\n"
        "Right on 2 probes; largest error 1.4e-06, where 3.5e-06 is allowed (peaked\n"
        "scores).\n"
        "\n"
        "Conventions, as measured\n"
        "given             query, key and value split into heads\n"
        "heads             4 query heads on 2 KV heads of 7 (value 5)\n"
        "causal alignment  lower_right\n"
        "empty rows        0\n"
        "\n"
        "Not wrong, but it goes wrong easily\n"
        "empty-rows-nan: A row that sees no key gives NaN.\n"
        "  Give 0 there."
    )


def test_a_wrong_one_with_a_pair_of_faults() -> None:
    assert told(WRONG) == (
        "Attention is wrong: The scores are not divided by sqrt(head_dim). And KV heads\n"
        "are repeated as a whole, so query head h reads KV head h % num_kv_heads.\n"
        "Wrong on 1 of 2 probes; error 8.3e-01, where 3.5e-06 is allowed (peaked scores).\n"
        "\n"
        "Conventions, as measured\n"
        "given   rows of tokens, with projections\n"
        "heads   4 query heads on 1 KV head of 7\n"
        "causal  no\n"
        "\n"
        "What is wrong\n"
        "scale-missing\n"
        "  Mend: Multiply query . key by head_dim ** -0.5 before the softmax.\n"
        "kv-heads-tiled\n"
        "  Mend: Repeat each KV head in place: key.repeat_interleave(group_size, dim=1).\n"
        "  Together they reproduce the numbers of all 2 probes, off by 2.2e-07, where\n"
        "  3.1e-06 is allowed."
    )


def test_one_fault_is_told_once() -> None:
    found = replace(WRONG, explanations=(Explanation((SCALE,), 2.2e-7, 3.1e-6),))
    shown = told(found)
    assert shown.startswith("Attention is wrong: The scores are not divided by sqrt(head_dim).\nWrong on 1")
    assert shown.count("not divided") == 1
    assert "  It reproduces the numbers of all 2 probes, off by 2.2e-07, where 3.1e-06 is" in shown


def test_several_that_no_probe_tells_apart_are_all_told() -> None:
    one, other = Explanation((SCALE,), 1e-7, 3e-6), Explanation((TILED, SCALE), 2e-7, 3e-6)
    shown = told(replace(WRONG, explanations=(one, other)), width=200)
    assert shown.startswith(
        "Attention is wrong: scale-missing or kv-heads-tiled and scale-missing, which no probe tells apart.\n"
    )
    assert "One of these it is\nscale-missing\n  The scores are not divided" in shown
    assert shown.count(TILED.mend) == 1
    assert shown.count(SCALE.mend) == 2


DEPARTURES = (Departure("scale", "0.5", "head_dim ** -0.5"), Departure("causal", "True", "False"))


def test_one_that_is_not_as_declared_and_has_no_fault() -> None:
    found = replace(UNKNOWN, departures=DEPARTURES)
    shown = told(found, width=200)
    assert shown.startswith(
        "odd is right, but not as declared: scale is head_dim ** -0.5, not 0.5; causal is False, not True.\n"
    )
    assert shown.splitlines()[-1].startswith("heads")
    assert to_json(found)["departures"][0] == {
        "name": "scale",
        "declared": "0.5",
        "found": "head_dim ** -0.5",
    }


def test_one_that_is_not_as_declared_by_a_fault_says_what_was_done() -> None:
    shown = told(replace(WRONG, departures=DEPARTURES))
    assert shown.startswith("Attention is right, but not as declared: scale is")
    assert f"What is wrong\nscale-missing\n  {SCALE.what}\n  Mend: " in shown


def test_one_that_nothing_fits() -> None:
    assert told(UNKNOWN).endswith(
        "What is wrong is not known here\n"
        "1,412 faults and pairs of faults were tried, and none gives its numbers.\n"
        "Nearest is scale-missing: it reproduces 1 of 2 probes and is off by 4.0e-01,\n"
        "where 2.9e-06 is allowed on another.\n"
        "\n"
        "Wrong on:\n"
        "plain  normal numbers, no mask: no number, where 2.9e-06 is allowed"
    )
    assert told(UNKNOWN).startswith(
        "odd is wrong: no known fault reproduces its numbers.\n"
        "Wrong on 1 of 2 probes; error no number, where 3.5e-06 is allowed (normal\n"
    )


def test_one_that_nothing_fits_and_nothing_is_near() -> None:
    assert "Nearest" not in told(replace(UNKNOWN, nearest=None))
    assert "Nearest is no fault at all: it" in told(replace(UNKNOWN, nearest=Nearest((), 1, 0.4, 2.9e-6)))


def test_of_many_wrong_probes_the_first_are_shown_and_the_others_counted() -> None:
    probes = tuple(ProbeResult(f"p{place}", "a question", 1.0, 0.1) for place in range(PROBES_SHOWN + 3))
    shown = told(replace(UNKNOWN, probes=probes))
    assert f"p{PROBES_SHOWN - 1}  a question" in shown
    assert f"p{PROBES_SHOWN} " not in shown
    assert shown.endswith("and 3 more; --json has all.")


@pytest.mark.parametrize("form", Form)
def test_every_form_is_told(form: Form) -> None:
    assert "\ngiven " in told(replace(RIGHT, form=form))


def test_an_error_that_is_no_number_finds_its_probe() -> None:
    probe = ProbeResult("nan", "where NaN came", math.nan, 1e-6)
    found = replace(UNKNOWN, error=math.nan, allowed=1e-6, probes=(*UNKNOWN.probes[1:], probe))
    assert "error no number, where 1.0e-06 is allowed (where NaN came)." in told(found, width=200)


HOSTILE = "\x1b[31mred\x1b[0m [bold]b[/bold] :smile: \u202eback\nnext"
ESCAPED = r"\x1b[31mred\x1b[0m [bold]b[/bold] :smile: \u202eback\nnext"


@pytest.mark.parametrize("base", [RIGHT, WRONG, UNKNOWN])
def test_nothing_of_the_user_steers_the_terminal(base: CheckResult) -> None:
    fault = Fault(HOSTILE, HOSTILE, HOSTILE)
    found = replace(
        base,
        name=HOSTILE,
        conventions=(Convention(HOSTILE, HOSTILE),),
        cautions=(Caution(HOSTILE, HOSTILE, HOSTILE),),
        probes=tuple(replace(probe, name=HOSTILE, what=HOSTILE) for probe in base.probes),
        explanations=tuple(replace(each, faults=(fault,)) for each in base.explanations),
        nearest=None if base.nearest is None else replace(base.nearest, faults=(fault,)),
    )
    shown = told(found, width=1000)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.startswith(f"{ESCAPED} is ")
    assert shown.count(ESCAPED) >= 5


@pytest.mark.parametrize("found", [RIGHT, WRONG, UNKNOWN])
@pytest.mark.parametrize("width", [40, 80])
def test_no_line_is_wider_than_the_terminal(found: CheckResult, width: int) -> None:
    long = replace(found, conventions=(Convention("a name", "words and words " * 20),))
    assert max(map(len, told(long, width=width).splitlines())) <= width


def test_a_right_and_a_wrong_one_differ_in_colour() -> None:
    out = io.StringIO()
    for found in (RIGHT, WRONG):
        print_check(found, Console(file=out, force_terminal=True, color_system="standard", width=80))
    assert "\x1b[1;32mright" in out.getvalue()
    assert "\x1b[1;31mwrong" in out.getvalue()


def test_json_has_every_part_of_the_result() -> None:
    document = to_json(WRONG)
    assert set(document) == {field.name for field in fields(CheckResult)} | {"fault_names"}
    assert document["form"] == "projected"
    assert document["sizes"]["num_kv_heads"] == 1
    assert document["conventions"] == {"causal": "no"}
    assert document["fault_names"] == ["scale-missing and kv-heads-tiled"]
    (explanation,) = document["explanations"]
    assert explanation == {
        "name": "scale-missing and kv-heads-tiled",
        "faults": [{"name": fault.name, "what": fault.what, "mend": fault.mend} for fault in (SCALE, TILED)],
        "error": 2.2e-7,
        "allowed": 3.1e-6,
    }
    assert document["probes"][1] == {
        "name": "peaked",
        "what": "peaked scores",
        "error": 0.83,
        "allowed": 3.5e-6,
        "is_right": False,
    }
    assert to_json(RIGHT)["cautions"] == [
        {"name": "empty-rows-nan", "what": "A row that sees no key gives NaN.", "mend": "Give 0 there."}
    ]


def test_json_of_one_that_nothing_fits_says_what_is_nearest_and_holds_no_infinity() -> None:
    document = to_json(replace(UNKNOWN, allowed=math.nan))
    json.dumps(document, allow_nan=False)
    assert document["error"] is document["allowed"] is document["probes"][0]["error"] is None
    assert document["explanations"] == []
    assert document["nearest"]["probes_reproduced"] == 1
    assert document["nearest"]["faults"][0]["name"] == "scale-missing"
    assert to_json(WRONG)["nearest"] is None
