"""What tests of several files share: one browser, and one head of either real model traced."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.explain_model import ModelTrace, explain_model

from .chromium import Browser
from .explain_told import TEXT


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def trace(smollm2: OpenedModel) -> ModelTrace:
    return explain_model(smollm2, TEXT, layer=20, head=4)


@pytest.fixture(scope="session")
def encoder(minilm: OpenedModel) -> ModelTrace:
    return explain_model(minilm, TEXT, layer=2, head=5, query=3)
