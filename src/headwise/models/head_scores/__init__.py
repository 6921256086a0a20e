"""Scores that say how much each head does of one known thing; `docs/scores.md` has the definitions."""

from headwise.models.head_scores.compute import head_scores
from headwise.models.head_scores.result import SCORES, HeadScore, HeadScores

__all__ = ["SCORES", "HeadScore", "HeadScores", "head_scores"]
