"""Real models: opening them, and attaching to their attention heads."""

from headwise.models.addressing import EvidenceByLayer, LayerKey
from headwise.models.attach import Attachment, attach
from headwise.models.discover import AttachedLayer, Unseen
from headwise.models.opening import OpenedModel, open_model
from headwise.models.tokens import Token, max_positions, read_text, readable_tokens, tokenize

__all__ = [
    "AttachedLayer",
    "Attachment",
    "EvidenceByLayer",
    "LayerKey",
    "OpenedModel",
    "Token",
    "Unseen",
    "attach",
    "max_positions",
    "open_model",
    "read_text",
    "readable_tokens",
    "tokenize",
]
