import pytest

from .. import mutants
from ..attention_cases import Case, assert_attends
from ..mutants import MUTANTS, Attend, sound
from . import test_kernel_shapes
from .suite import cases

# Those that show without a mask tensor, an option or NaN.
OF_SHAPES = (
    mutants.kv_heads_tiled,
    mutants.upper_left_for_lower_right,
    mutants.base_two_logsumexp,
    mutants.missing_scale,
    mutants.scale_from_the_model_width,
    mutants.swapped_heads,
    mutants.dropped_key,
)


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


@pytest.mark.parametrize("mutant", [sound, *OF_SHAPES], ids=lambda mutant: mutant.__name__)
def test_the_shapes_catch_it_in_the_kernels_place(mutant: Attend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_kernel_shapes, "by_kernel", mutant)
    hold = test_kernel_shapes.test_every_group_size_with_every_length_around_the_border
    if mutant is sound:
        hold(3)
    else:
        with pytest.raises(AssertionError, match=r"of \d+ queries"):
            hold(3)
