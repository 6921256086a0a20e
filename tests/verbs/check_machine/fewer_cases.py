"""Some cases of the set, by group and name."""

from __future__ import annotations

from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.cases import CASES


def case_named(group: str, name: str) -> Case:
    (case,) = (case for case in CASES if (case.group, case.name) == (group, name))
    return case


NO_MASK = case_named("no mask", "equal lengths")
SHORT = case_named("no mask", "5 queries, 11 keys")
FEW_KEYS = case_named("causal, rectangular", "11 queries, 5 keys")
NO_KEYS = case_named("zero sizes", "no keys")
CAUSAL = case_named("causal", "11 tokens")

# Each kind of finding that Flex and JAX have.
TELLING = (
    NO_MASK,
    case_named("causal, rectangular", "5 queries, 11 keys"),
    case_named("float mask", "a row of -1e9"),
    case_named("empty rows", "one row of a boolean mask"),
    case_named("float64", "causal"),
    case_named("logsumexp", "an empty row"),
    case_named("NaN in hidden places", "in a value"),
    case_named("NaN in plain sight", "in a query"),
    case_named("gradients, hard rows", "an empty row"),
    case_named("softcap", "2"),
    case_named("sinks", "no mask"),
)
