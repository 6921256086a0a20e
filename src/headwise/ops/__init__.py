"""Attention on torch tensors: the operator, its logsumexp, merging of parts, and observation of heads."""

from headwise.ops.choice import IMPLEMENTATIONS, Choice, Implementation
from headwise.ops.merging import merge
from headwise.ops.observation import observe
from headwise.ops.operator import attention, attention_with_logsumexp, choose
from headwise.ops.results import AttentionResult, Observation

__all__ = [
    "IMPLEMENTATIONS",
    "AttentionResult",
    "Choice",
    "Implementation",
    "Observation",
    "attention",
    "attention_with_logsumexp",
    "choose",
    "merge",
    "observe",
]
