"""`view` shows what every head of a model does on a text.

`compute` runs the model and returns a frozen `View`; `render_text`, `render_json` and `render_page` show it.
"""

from headwise.verbs.view.compute import view
from headwise.verbs.view.result import Comparison, HeadSummary, LayerMaps, ModelFacts, NextToken, View

__all__ = ["Comparison", "HeadSummary", "LayerMaps", "ModelFacts", "NextToken", "View", "view"]
