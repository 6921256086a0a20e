from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def unwritten_memory_is_nan() -> Iterator[None]:
    """Torch fills every buffer that nobody has written with NaN, so that reading one shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
