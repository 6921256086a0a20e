"""Is a model's attention right, and which of its heads are duplicates or dead: the verb `check` on a model.

`compute` runs the model once and looks; `render_text` tells it, `render_json` gives it as one document.
"""

from headwise.verbs.check_model.compute import check_model
from headwise.verbs.check_model.result import Finding, HeadPlace, LayerCheck, ModelCheck

__all__ = ["Finding", "HeadPlace", "LayerCheck", "ModelCheck", "check_model"]
