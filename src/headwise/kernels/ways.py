"""The ways through compiled code, each compiled when it is first needed."""

from __future__ import annotations

PACKED, STREAMED, VISIT, BACKWARD = "packed", "streamed", "visit", "backward"
"""Attention for many rows and for few, the second visit that observes, and the gradients."""

EVERY_WAY = "every way"
GROUPS = (EVERY_WAY, PACKED, STREAMED, VISIT, BACKWARD)
"""Vector functions that are compiled together: those of several ways, and those of one way alone."""
