"""Real models for the tests, opened once a session; downloaded into the user's cache the first time.

transformers takes seconds to load, and many tests need none of it, so it is loaded by who asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from headwise.models.opening.opened_model import OpenedModel

# The tensors of the tests are small: on a busy machine a second thread makes them ten times slower.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def smollm2() -> OpenedModel:
    return _opened("smollm2-135m")


@pytest.fixture(scope="session")
def minilm() -> OpenedModel:
    return _opened("minilm-l6")


@pytest.fixture
def said_by_transformers() -> Iterator[list[str]]:
    """What transformers logs, the things it says once a process included."""
    import transformers  # noqa: PLC0415 (slow)

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    transformers.utils.logging.warning_once.cache_clear()
    transformers.logging.add_handler(handler)
    yield said
    transformers.logging.remove_handler(handler)


def _opened(name: str) -> OpenedModel:
    from headwise.models.opening.opened_model import open_model  # noqa: PLC0415 (slow)

    return open_model(name)
