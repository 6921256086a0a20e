from functools import cache

import pytest
import torch

from ..attention_cases import Case, all_cases, assert_attends, laid_out
from ..mutants import MUTANTS, Attend, sound


@cache
def cases() -> list[Case]:
    """The suite's cases, in memory that holds NaN all around; but those that naive float32 code cannot do."""
    return [
        Case(
            case.name,
            *(laid_out(tensor, "sliced") for tensor in (case.query, case.key, case.value)),
            case.options,
        )
        for case in all_cases(torch.float32)
        if "huge bias" not in case.name
    ]


def test_what_the_mutants_are_made_from_passes() -> None:
    for case in cases():
        assert_attends(sound, case)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_suite_catches(mutant: Attend) -> None:
    def is_caught_by(case: Case) -> bool:
        try:
            assert_attends(mutant, case)
        except AssertionError:
            return True
        return False

    assert any(is_caught_by(case) for case in cases())
