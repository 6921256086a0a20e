import pytest

from ..attention_cases import Case, assert_attends
from ..mutants import MUTANTS, Attend, sound
from .suite import cases


def cases_for_mutants() -> list[Case]:
    """Return the cases without those that naive float32 code cannot do."""
    return [case for case in cases() if "huge bias" not in case.name]


def test_what_the_mutants_are_made_from_passes() -> None:
    for case in cases_for_mutants():
        assert_attends(sound, case)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_suite_catches(mutant: Attend) -> None:
    def is_caught_by(case: Case) -> bool:
        try:
            assert_attends(mutant, case)
        except AssertionError:
            return True
        return False

    assert any(is_caught_by(case) for case in cases_for_mutants())
