"""How a check of a machine is shown."""

from __future__ import annotations

import io
import json
import math
from dataclasses import FrozenInstanceError

import pytest
from rich.console import Console

from headwise.verbs.check_machine.backends import BACKENDS
from headwise.verbs.check_machine.cases import CASES
from headwise.verbs.check_machine.render_json import to_json
from headwise.verbs.check_machine.render_text import print_machine_check
from headwise.verbs.check_machine.result import Examined, MachineCheck, Verdict

from .made_machine_check import ABSENT, BARRED, LINE, MACHINE, MADE, SOUND, finding


def text_of(found: MachineCheck, width: int = 80) -> str:
    stream = io.StringIO()
    print_machine_check(found, Console(file=stream, width=width, markup=False, emoji=False, highlight=False))
    return stream.getvalue()


def test_the_table_counts_cases_by_the_worst_of_their_forms() -> None:
    lines = text_of(MADE).splitlines()
    start = next(number for number, line in enumerate(lines) if line.split() == ["of", "one", "two"])
    assert [line.split() for line in lines[start + 1 : start + 4]] == [
        ["masks", "3", "1!1", "1~2"],
        ["sizes", "1", "1", "!1"],
        ["gradients", "2", "!1", "1!1"],
    ]


def test_each_kind_of_finding_is_told_once_with_its_line() -> None:
    text = text_of(MADE, width=400)
    for told in (
        f"! one masks: b (tensor): gives 1.25, exact is 0.75, allowed are 1e-05\n{LINE}\n",
        "! one gradients: f: the process crashed: SIGFPE\n1 / 0\n",
        "! two sizes: c: gives (2, 3), exact is (3, 2)\n3\n",
        "! two gradients: e: gives 0.12345679, exact is 0.12345779, allowed are 1e-09\n4\n",
        f"~ two masks: b: rows give NaN; gives nan, exact is 0 (and 1 more like it)\n{LINE}\n",
        "- one: no form of some cases: no [bold]softcap[/bold] (2)\n",
        "- absent: it is not installed; pip install it\n",
        "- barred: no compiler (1)\n",
    ):
        assert told in text
    assert text.endswith("Wrong on this machine: one, two.\n")


def test_a_line_is_one_line_in_a_narrow_terminal_and_nothing_else_is_wider() -> None:
    lines = text_of(MADE).splitlines()
    assert LINE in lines
    assert {line for line in lines if len(line) > 80} == {LINE}


def test_what_others_wrote_steers_no_terminal() -> None:
    text = text_of(MADE)
    assert "\x1b[31m" not in text
    assert r"Some \x1b[31mCPU  2 CPUs; 61 s" in text


def test_a_sound_machine_has_no_list_of_faults() -> None:
    text = text_of(SOUND)
    assert text.endswith("Attention is right on this machine.\n")
    for absent in ("Wrong", "convention,", "!1", "- one"):
        assert absent not in text.replace("! wrong", "")


def test_where_nothing_was_asked_nothing_is_called_right() -> None:
    text = text_of(MachineCheck(MACHINE, (ABSENT, BARRED), {"masks": 3}, 1.0))
    assert text.endswith("- barred: no compiler (1)\n\nNothing here could be asked.\n")
    assert "is right" not in text


def test_the_whole_table_fits_into_80_columns() -> None:
    """With every backend, every group, and a count of each kind in each cell."""
    groups = {case.group: 16 for case in CASES}
    shares: dict[Verdict, int] = {"right": 9, "differs": 4, "wrong": 3}
    examined = [
        Examined(
            backend.name,
            backend.label,
            tuple(
                finding(backend.name, group, f"{verdict} {number}", verdict)
                for group in groups
                for verdict, count in shares.items()
                for number in range(count)
            ),
        )
        for backend in BACKENDS
    ]
    lines = text_of(MachineCheck(MACHINE, tuple(examined), groups, 1.0)).splitlines()
    rows = [line for line in lines if "9~4!3" in line]
    assert len(rows) == len(groups)
    assert all(line.count("9~4!3") == len(BACKENDS) for line in rows)
    assert max(map(len, lines)) <= 80


def test_json_has_every_finding_and_only_what_json_has() -> None:
    document = json.loads(json.dumps(to_json(MADE), allow_nan=False))
    assert document["is_right"] is False
    assert document["wrong"] == ["one", "two"]
    assert document["groups"] == {"masks": 3, "sizes": 1, "gradients": 2}
    assert document["seconds"] == 61.4
    assert document["machine"]["usable_cpus"] == 2
    assert document["backends"]["absent"] == {
        "label": "absent",
        "missing": "it is not installed; pip install it",
        "is_right": True,
        "verdicts": {"masks": {}, "sizes": {}, "gradients": {}},
        "findings": [],
    }
    two = document["backends"]["two"]
    assert two["verdicts"]["masks"] == {"a": "right", "b": "differs", "d": "differs"}
    assert two["findings"][1] == {
        "group": "masks",
        "case": "b",
        "form": "",
        "verdict": "differs",
        "convention": "rows give NaN",
        "reason": None,
        "error": "inf",
        "limit": 1e-5,
        "found": "nan",
        "exact": 0.0,
        "line": LINE,
    }
    assert two["findings"][3]["found"] == [2, 3]


def test_json_of_this_machine(quick_found: MachineCheck) -> None:
    document = json.loads(json.dumps(to_json(quick_found), allow_nan=False))
    assert sum(document["groups"].values()) == len(CASES)
    assert document["wrong"] == list(quick_found.wrong)
    for each in quick_found.examined:
        assert len(document["backends"][each.backend]["findings"]) == len(each.findings)


def test_what_was_found_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        MADE.seconds = 0.0  # type: ignore[misc]  # which is what is tried
    assert MADE.wrong == ("one", "two")
    assert not MADE.is_right
    assert SOUND.is_right
    assert math.isnan(float(str(MADE.of("two").findings[1].found)))
