"""Keeping libraries from writing on the user's terminal while a model is opened or run."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

import transformers
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Silence progress bars, log lines and warnings of transformers and its hub client, then restore them."""
    hub_log = logging.getLogger("huggingface_hub")
    verbosity, hub_level = transformers.logging.get_verbosity(), hub_log.level
    bars, hub_bars = (
        transformers.logging.is_progress_bar_enabled(),
        not are_progress_bars_disabled(),
    )
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    hub_log.setLevel(logging.CRITICAL)
    disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        hub_log.setLevel(hub_level)
        if bars:
            transformers.logging.enable_progress_bar()
        if hub_bars:
            enable_progress_bars()
