"""A line that somebody got wrong, in code that somebody else wrote: `check` names the fault."""

from __future__ import annotations

from collections import defaultdict

import pytest

from headwise.verbs.check import CheckResult, check
from headwise.verbs.check.faults import FAULTS

from .specimens.injecting import Slip, made
from .specimens.slips import CAUTIONED, PAIRS, SLIPS
from .specimens.specimens import SPECIMENS


def result_of(slip: Slip) -> CheckResult:
    specimen = SPECIMENS[slip.specimen]
    return check(made(specimen, slip.changes), **{**specimen.declared, **slip.declared})


@pytest.mark.parametrize("slip", SLIPS, ids=str)
def test_fault_is_named(slip: Slip) -> None:
    result = result_of(slip)
    assert not result.is_right
    assert result.fault_names == (slip.fault,)


@pytest.mark.parametrize("slip", PAIRS, ids=str)
def test_pair_of_faults_is_named(slip: Slip) -> None:
    found = [{fault.name for fault in explanation.faults} for explanation in result_of(slip).explanations]
    assert found == [set(slip.fault.split(" and "))]


@pytest.mark.parametrize("slip", CAUTIONED, ids=str)
def test_what_goes_wrong_easily_is_said_and_accuses_nobody(slip: Slip) -> None:
    result = result_of(slip)
    assert result.is_right
    assert slip.fault in {caution.name for caution in result.cautions}


def test_every_fault_of_the_catalogue_is_made_in_two_styles() -> None:
    styles = defaultdict(set)
    for slip in (*SLIPS, *CAUTIONED):
        styles[slip.fault].add(SPECIMENS[slip.specimen].style)
    assert {fault.name for fault in FAULTS} - {
        name for name, found in styles.items() if len(found) > 1
    } == set()


def test_no_name_is_expected_that_the_catalogue_lacks() -> None:
    assert {slip.fault for slip in (*SLIPS, *CAUTIONED)} - {fault.name for fault in FAULTS} == set()
