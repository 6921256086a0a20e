"""How does one head of a real model arrive at its numbers: the verb `explain` on a model.

Apart from `headwise.verbs.explain`, whose examples load no torch. `compute` runs the model once and traces
one call; `render_text` tells it, `render_json` gives it as one document.
"""

from headwise.verbs.explain_model.compute import explain_model
from headwise.verbs.explain_model.result import HeadRow, LayerParts, LogitParts, ModelTrace, NextToken

__all__ = ["HeadRow", "LayerParts", "LogitParts", "ModelTrace", "NextToken", "explain_model"]
