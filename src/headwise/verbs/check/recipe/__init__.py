"""One general attention computation with a knob for every convention and every fault."""

from headwise.verbs.check.recipe.computing import Computation, Computed
from headwise.verbs.check.recipe.knobs import CannotComputeError, Recipe
from headwise.verbs.check.recipe.weighing import Weights

__all__ = ["CannotComputeError", "Computation", "Computed", "Recipe", "Weights"]
