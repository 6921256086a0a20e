"""Fixtures of the page tests: one browser for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .chromium import Browser


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
