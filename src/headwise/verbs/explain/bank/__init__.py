"""The example `bank`: what one head can route against two, and why scores are divided by sqrt(head_dim).

Everything shown is computed: the routing by attention over drawn sentences, the scaling over drawn scores.
"""

from headwise.verbs.explain.bank.compute import explain_bank
from headwise.verbs.explain.bank.result import BankExplanation, BankHead, Mix, Routing, ScalePoint, Spread

__all__ = ["BankExplanation", "BankHead", "Mix", "Routing", "ScalePoint", "Spread", "explain_bank"]
