"""Right attention, however it is written, is never accused; and what it does is reported rightly."""

from __future__ import annotations

import pytest

from headwise.verbs.check import check

from .specimens.injecting import made
from .specimens.specimens import SPECIMENS
from .specimens.variants import variant

VARIANTS = 200


@pytest.mark.parametrize("name", SPECIMENS)
def test_specimen_without_a_slip_is_right(name: str) -> None:
    specimen = SPECIMENS[name]
    result = check(made(specimen), **specimen.declared)
    assert result.is_right, result


@pytest.mark.parametrize("seed", range(VARIANTS))
def test_right_variant_is_not_accused_and_its_conventions_are_found(seed: int) -> None:
    drawn = variant(seed)
    result = check(drawn.made(), **drawn.declared)
    assert result.is_right, f"{drawn}\n{result}"
    found = {convention.name: convention.value for convention in result.conventions}
    # Behind a ";" stands what else is to say of it, such as the shape of a mask.
    told = {name: found[name].split(";")[0] for name in drawn.conventions}
    assert told == drawn.conventions, str(drawn)
