"""Real models for the tests, opened once a session; downloaded into the user's cache the first time."""

import pytest
import torch

from headwise.models.opening.opened_model import OpenedModel, open_model

# The tensors of the tests are small: on a busy machine a second thread makes them ten times slower.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> OpenedModel:
    return open_model("smollm2-135m")


@pytest.fixture(scope="session")
def minilm() -> OpenedModel:
    return open_model("minilm-l6")
