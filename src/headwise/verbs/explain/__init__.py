"""How does attention arrive at these numbers: the verb `explain`.

`compute` takes every step of a small example on its own and returns a frozen `Explanation`; `render_text`
tells it as a story, `render_json` as one document.
"""

from headwise.verbs.explain.compute import explain_two_heads
from headwise.verbs.explain.result import Explanation, HeadTrace

__all__ = ["Explanation", "HeadTrace", "explain_two_heads"]
