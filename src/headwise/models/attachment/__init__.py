"""Attaching to the attention heads of a transformers model: recording them, and switching them off."""

from headwise.models.attachment.addressing import EvidenceByLayer, LayerKey
from headwise.models.attachment.attachment import Attachment, attach
from headwise.models.attachment.discover import AttachedLayer, Unseen

__all__ = ["AttachedLayer", "Attachment", "EvidenceByLayer", "LayerKey", "Unseen", "attach"]
