"""A model whose heads are known: two layers of attention, weights computed by formula, nothing trained.

Layer 0 has one head that looks at the previous token, layer 1 one head that looks for an earlier occurrence
of the current token and at what followed it there; together they predict repeated text. Every other head
looks somewhere else and adds nothing. It is the ground truth for head scores and ablations.

Nothing is imported here, so that the catalogue can name the model without loading anything.
"""
