"""Real models: opening them, and attaching to their attention heads."""

from headwise.models.addressing import EvidenceByLayer, LayerKey
from headwise.models.attach import Attachment, attach
from headwise.models.discover import AttachedLayer, Unseen
from headwise.models.opening import OpenedModel, open_model

__all__ = [
    "AttachedLayer",
    "Attachment",
    "EvidenceByLayer",
    "LayerKey",
    "OpenedModel",
    "Unseen",
    "attach",
    "open_model",
]
