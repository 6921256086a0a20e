"""Real models for the tests, opened once a session; downloaded into the user's cache the first time."""

import pytest

from headwise.models import OpenedModel, open_model


@pytest.fixture(scope="session")
def smollm2() -> OpenedModel:
    return open_model("smollm2-135m")


@pytest.fixture(scope="session")
def minilm() -> OpenedModel:
    return open_model("minilm-l6")
