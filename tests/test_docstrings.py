"""Every example in a docstring is run, and every public name has one that says what it is."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import headwise

FOUND = pkgutil.walk_packages(headwise.__path__, "headwise.")
MODULES = sorted(module.name for module in FOUND if not module.name.endswith("__main__"))


def test_modules_were_found():
    assert {"headwise.reference", "headwise.ops", "headwise.verbs.view.compute"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name):
    outcome = doctest.testmod(import_module(name))
    assert outcome.failed == 0, f"{outcome.failed} of {outcome.attempted} examples of {name} failed"


@pytest.mark.parametrize("name", sorted(set(headwise.__all__) - {"__version__"}))
def test_a_public_name_says_what_it_is(name):
    text = getattr(headwise, name).__doc__ or ""
    first_line = text.strip().splitlines()[0]
    assert first_line.endswith((".", ":")), f"headwise.{name} needs a docstring that starts with one sentence"
