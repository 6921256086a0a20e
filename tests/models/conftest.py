"""What the tests of models share."""

import pytest

from headwise.models.opening.opened_model import OpenedModel, open_model


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder of the test's own."""
    monkeypatch.setenv("HEADWISE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def toy() -> OpenedModel:
    return open_model("toy-induction")
