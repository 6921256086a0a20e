"""`view` shows what every head of a model does on a text or an image.

`compute` runs the model and returns a frozen `View`; `render_text`, `render_json` and `render_page` show it,
or a `Comparison` of two.
"""

from headwise.verbs.view.compute import view
from headwise.verbs.view.result import Comparison, HeadSummary, LayerMaps, ModelFacts, NextToken, Part, View

__all__ = ["Comparison", "HeadSummary", "LayerMaps", "ModelFacts", "NextToken", "Part", "View", "view"]
