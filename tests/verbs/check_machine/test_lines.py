"""Every line that is printed does in a new process what is said of it."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from headwise.verbs.check_machine.render_text import print_machine_check
from headwise.verbs.check_machine.result import Finding, MachineCheck

FORKING = Path(__file__).with_name("fork_lines.py")


def shown(found: MachineCheck) -> dict[str, Finding]:
    """Return the lines that are printed, with their findings."""
    stream = io.StringIO()
    print_machine_check(found, Console(file=stream, width=80, markup=False))
    printed = set(stream.getvalue().splitlines())
    told = {finding.line: finding for each in found.examined for finding in each.findings if finding.line}
    return {line: finding for line, finding in told.items() if line in printed}


def assert_lines_show_what_is_said(found: MachineCheck) -> None:
    lines = shown(found)
    process = subprocess.run(
        [sys.executable, str(FORKING)], input=json.dumps([*lines]), capture_output=True, text=True, check=True
    )
    answers = json.loads(process.stderr.splitlines()[-1])
    for (line, finding), answer in zip(lines.items(), answers, strict=True):
        assert isinstance(finding.found, float), line
        # Another number of threads may add in another order.
        assert float(answer) == pytest.approx(finding.found, rel=1e-3, nan_ok=True), line
        assert finding.exact != pytest.approx(finding.found, abs=finding.limit, nan_ok=True), line


def test_lines_of_backends_that_do_not_compile(quick_found: MachineCheck) -> None:
    assert len(shown(quick_found)) > 25
    assert_lines_show_what_is_said(quick_found)


def test_lines_of_backends_that_compile(slow_found: MachineCheck) -> None:
    assert {finding.backend for finding in shown(slow_found).values()} == {"flex_attention", "jax"}
    assert_lines_show_what_is_said(slow_found)


def test_each_group_and_kind_has_its_line(quick_found: MachineCheck) -> None:
    every = {
        (finding.backend, finding.group, finding.convention)
        for each in quick_found.examined
        for finding in each.findings
        if finding.verdict in {"differs", "wrong"}
    }
    lines = shown(quick_found).values()
    assert {(finding.backend, finding.group, finding.convention) for finding in lines} == every


def test_a_line_needs_no_process_that_has_loaded_anything(quick_found: MachineCheck) -> None:
    """What is split off above has torch already; one line of each backend runs in a bare interpreter too."""
    one_of_each = {finding.backend: line for line, finding in shown(quick_found).items()}
    assert len(one_of_each) >= 3
    for line in one_of_each.values():
        process = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
        float(process.stdout)


def test_errors_are_told_as_they_are(quick_found: MachineCheck, slow_found: MachineCheck) -> None:
    for each in (*quick_found.examined, *slow_found.examined):
        for finding in each.findings:
            if finding.verdict in {"right", "cannot"}:
                assert finding.line is None
                continue
            assert isinstance(finding.found, float)
            assert isinstance(finding.exact, float)
            difference = abs(finding.found - finding.exact)
            assert finding.error == (math.inf if math.isnan(difference) else difference)
            assert finding.error > finding.limit


def test_headwise_is_right_here_and_the_others_are_what_they_are_known_for(
    quick_found: MachineCheck, slow_found: MachineCheck
) -> None:
    for name in ("headwise_cpu", "headwise_torch"):
        assert {finding.verdict for finding in quick_found.of(name).findings} <= {"right", "cannot"}
    assert not [
        finding for finding in quick_found.of("headwise_torch").findings if finding.verdict == "cannot"
    ]
    conventions = {
        (each.backend, finding.convention)
        for each in (*quick_found.examined, *slow_found.examined)
        for finding in each.findings
    }
    assert ("torch_math", "causal aligns to the upper left") in conventions
    assert ("multihead", "an empty row gives NaN") in conventions
    assert ("jax", "an empty row gives the mean of the values") in conventions
    assert ("jax", "float64 is computed in float32") in conventions
    assert ("flex_attention", "NaN in hidden places leaks") in conventions
