"""Faults that no recipe computes: they are seen by asking twice, in training, or with hidden NaN."""

from __future__ import annotations

from headwise.verbs.check.result import Fault

DROPOUT_IN_EVAL = Fault(
    "dropout-in-eval",
    "Dropout is at work in evaluation: the same question gets different answers.",
    "Pass dropout_p=self.dropout if self.training else 0.0, or use torch.nn.Dropout and call eval().",
)
UNREPEATABLE = Fault(
    "unrepeatable",
    "The same question gets different answers, and not by dropout alone.",
    "Look for random numbers, for state kept from call to call, and for memory that is read unwritten.",
)
WEIGHTS_AFTER_DROPOUT = Fault(
    "weights-after-dropout",
    "The returned weights have been through dropout: in training their rows do not sum to 1.",
    "Return the weights as they are before dropout.",
)
EMPTY_ROWS_NAN = Fault(
    "empty-rows-nan",
    "A row that sees no key is NaN.",
    "Give 0 there: torch.where(visible.any(-1, keepdim=True), weights, 0.0).",
)
INPUTS_CHANGED = Fault(
    "inputs-changed",
    "It writes into the tensors that it is given.",
    "Use what returns a new tensor: masked_fill, not masked_fill_; x = x + y, not x += y.",
)
QUESTION_REFUSED = Fault(
    "question-refused",
    "It raises at a question that its arguments allow.",
    "Say in its documentation what it takes, or handle it.",
)
EXTRA = (
    DROPOUT_IN_EVAL,
    UNREPEATABLE,
    WEIGHTS_AFTER_DROPOUT,
    EMPTY_ROWS_NAN,
    INPUTS_CHANGED,
    QUESTION_REFUSED,
)
