"""Observing takes memory that grows with the keys, and not with queries times keys."""

from __future__ import annotations

import pytest
import torch

from headwise.evidence import Collect
from headwise.masks import Causal, Packed
from headwise.ops import plain

from ..attention_cases import tensors
from ..evidence_oracle import Observe
from .observe_ways import every_observer


@every_observer
def test_no_tensor_holds_all_scores(monkeypatch: pytest.MonkeyPatch, observe: Observe) -> None:
    monkeypatch.setattr(plain, "SCORES_PER_BLOCK", 2**14)
    made = tensors("randn", batch=1, num_heads=2, num_kv_heads=1, seq_len=503, kv_len=503, head_dim=2)
    collect = Collect(
        map_size=8,
        top_k=2,
        offsets=[1],
        rows=[-1],
        received=True,
        heads=[1],
        pairs=[(0, 1)],
        local_window=300,
    )
    with torch.no_grad(), torch.profiler.profile(profile_memory=True) as profile:
        observe(*made, mask=Packed([200, 303]) & Causal(), collect=collect)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest <= 8 * 2**14  # a block of 8-byte numbers; all scores would be 2 MiB
