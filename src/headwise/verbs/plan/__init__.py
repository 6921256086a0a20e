"""What does this attention cost: the verb `plan`.

`compute` turns a layout into a frozen `Plan`, `figures` puts the arithmetic beside each number, and
`render_text` and `render_json` show it. Plain integers throughout, so nothing here needs torch or NumPy.
"""

from headwise.verbs.plan.compute import plan
from headwise.verbs.plan.result import Cache, Figure, Flops, Parameters, Plan, Products, Settings, Variant

__all__ = ["Cache", "Figure", "Flops", "Parameters", "Plan", "Products", "Settings", "Variant", "plan"]
