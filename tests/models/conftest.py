"""Real models for the tests of this folder, opened once; downloaded into the user's cache the first time."""

import pytest

from headwise.models.opening import OpenedModel, open_model


@pytest.fixture(scope="session")
def smollm2() -> OpenedModel:
    return open_model("smollm2-135m")


@pytest.fixture(scope="session")
def minilm() -> OpenedModel:
    return open_model("minilm-l6")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder of the test's own."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
