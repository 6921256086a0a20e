"""Real models for the tests, opened once a session; downloaded into the user's cache the first time."""

import logging
from collections.abc import Iterator

import pytest
import torch
import transformers

from headwise.models.opening.opened_model import OpenedModel, open_model

# The tensors of the tests are small: on a busy machine a second thread makes them ten times slower.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> OpenedModel:
    return open_model("smollm2-135m")


@pytest.fixture(scope="session")
def minilm() -> OpenedModel:
    return open_model("minilm-l6")


@pytest.fixture
def said_by_transformers() -> Iterator[list[str]]:
    """What transformers logs, the things it says once a process included."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    transformers.utils.logging.warning_once.cache_clear()
    transformers.logging.add_handler(handler)
    yield said
    transformers.logging.remove_handler(handler)
