"""An explanation told in the terminal: each step's formula, shapes and numbers, and one number worked out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from headwise.verbs.explain import words
from headwise.verbs.explain.matrices import Labelled, four_decimals, print_side_by_side, token_labels
from headwise.verbs.explain.result import Explanation, HeadTrace, Matrix

HEADS_TOLD = 4


def print_explanation(explanation: Explanation, console: Console) -> None:
    """Print `explanation` to `console`."""
    _Story(explanation, console).tell()


class _Story:
    """The steps in order. The last token's numbers are worked out, for it sees every token."""

    def __init__(self, explanation: Explanation, console: Console) -> None:
        self.explanation = explanation
        self.console = console
        self.labels = token_labels(explanation.tokens)
        self.d_model_columns = [f"x{column}" for column in range(explanation.d_model)]
        self.head_columns = [str(column) for column in range(explanation.layout.head_dim)]
        self.root = four_decimals(explanation.layout.head_dim**0.5)
        self.step = 0
        self.below_a_table = False

    def tell(self) -> None:
        heads = self.explanation.heads
        told = heads if len(heads) <= HEADS_TOLD else heads[: HEADS_TOLD - 1]
        self._tell_beginning()
        for head in told:
            self._tell_projections(head)
            self._tell_scores(head)
            self._tell_weights(head)
            self._tell_head_output(head)
        if len(told) < len(heads):
            self._heading(f"Heads {len(told)} to {len(heads) - 1}")
            self._say("The same steps with other numbers; --json has them all.")
        self._tell_concatenation()
        self._tell_output_projection()

    def _tell_beginning(self) -> None:
        found = self.explanation
        self.console.print(Text(words.title(found), style="bold"))
        self._say(words.sizes(found))
        self._say(words.WHAT_HEADS_DO)
        if found.layout.group_size > 1:
            self._say(words.sharing(found.layout))
        self._heading("Input X: one row for each token")
        self._say(words.origin_of_rows(found))
        self._show(Labelled("X", found.input, self.d_model_columns))

    def _tell_projections(self, head: HeadTrace) -> None:
        x, last = self.explanation.input, self.labels[-1]
        self._heading(f"Head {head.head}: queries, keys and values")
        self._say(words.origin_of_weights(head, self.explanation))
        projections = {"W_Q": head.w_q, "W_K": head.w_k, "W_V": head.w_v}
        self._show(*self._over_head_columns(projections), rows=self.d_model_columns)
        self._say(f"Q = X W_Q, K = X W_K, V = X W_V, each {words.product_shapes(x, head.w_q)}.")
        self._lecture(head, words.WHAT_PROJECTIONS_ARE)
        self._show(*self._over_head_columns({"Q": head.query, "K": head.key, "V": head.value}))
        self._work_out(
            f"Q of {last}, column 0: row {last} of X times column 0 of W_Q",
            words.products(x[-1], head.w_q[:, 0]),
            head.query[-1, 0],
        )

    def _tell_scores(self, head: HeadTrace) -> None:
        self._heading(f"Head {head.head}: scores")
        shapes = words.product_shapes(head.query, head.key.T)
        self._say(f"Scores = Q K^T, {shapes}. Scaled = scores / sqrt(head_dim) = scores / {self.root}.")
        self._lecture(head, words.WHAT_SCORES_ARE)
        self._show(*self._over_tokens({"scores": head.scores, "scaled": head.scaled}))
        looks, seen = self.labels[-1], self.labels[0]
        score, scaled = four_decimals(head.scores[-1, 0]), four_decimals(head.scaled[-1, 0])
        self._work_out(
            f"{looks} looks at {seen}: row {looks} of Q times row {seen} of K",
            words.products(head.query[-1], head.key[0]),
            head.scores[-1, 0],
            then=f"; scaled: {score} / {self.root} = {scaled}",
        )

    def _tell_weights(self, head: HeadTrace) -> None:
        if self.explanation.causal:
            self._heading(f"Head {head.head}: mask")
            self._lecture(head, words.WHAT_THE_MASK_DOES)
            self._show(*self._over_tokens({"masked": head.masked}))
        self._heading(f"Head {head.head}: weights")
        self._say("Weights = softmax of each row: exp of a score over the sum of exp in its row.")
        self._lecture(head, words.WHAT_WEIGHTS_ARE)
        self._show(*self._over_tokens({"weights": head.weights}))
        terms = [f"exp({four_decimals(score)})" for score in head.masked[-1]]
        weight = four_decimals(head.weights[-1, 0])
        self._say(
            f"{self.labels[-1]} looks at {self.labels[0]}: {terms[0]} / ({words.sum_of(terms)}) = {weight}"
        )

    def _tell_head_output(self, head: HeadTrace) -> None:
        last = self.labels[-1]
        self._heading(f"Head {head.head}: output")
        self._say(f"Output of the head = weights V, {words.product_shapes(head.weights, head.value)}.")
        self._show(Labelled("output", head.output, self.head_columns))
        self._work_out(
            f"Output of {last}, column 0: row {last} of the weights times column 0 of V",
            words.products(head.weights[-1], head.value[:, 0]),
            head.output[-1, 0],
        )

    def _tell_concatenation(self) -> None:
        self._heading("Concatenated: the outputs of the heads side by side")
        self._say("Column 0.1 is column 1 of head 0, and so on.")
        self._show(Labelled("concatenated", self.explanation.concatenated, self._concatenated_columns()))

    def _tell_output_projection(self) -> None:
        found, last = self.explanation, self.labels[-1]
        self._heading("Output: W_O mixes what the heads found")
        self._say(f"Output = concatenated W_O, {words.product_shapes(found.concatenated, found.w_o)}.")
        self._show(Labelled("W_O", found.w_o, self.d_model_columns), rows=self._concatenated_columns())
        self._show(Labelled("output", found.output, self.d_model_columns))
        self._work_out(
            f"Output of {last}, column x0: row {last} of concatenated times column x0 of W_O",
            words.products(found.concatenated[-1], found.w_o[:, 0]),
            found.output[-1, 0],
        )
        self.console.print()
        self._say(words.ending(found.layout))

    def _concatenated_columns(self) -> list[str]:
        heads = range(self.explanation.layout.num_heads)
        return [f"{head}.{column}" for head in heads for column in self.head_columns]

    def _over_head_columns(self, matrices: dict[str, Matrix]) -> list[Labelled]:
        return [Labelled(name, matrix, self.head_columns) for name, matrix in matrices.items()]

    def _over_tokens(self, matrices: dict[str, Matrix]) -> list[Labelled]:
        return [Labelled(name, matrix, self.labels) for name, matrix in matrices.items()]

    def _heading(self, heading: str) -> None:
        self.step += 1
        self.below_a_table = False
        self.console.print()
        self.console.print(Text(f"{self.step}. {heading}", style="bold"))

    def _say(self, sentence: str) -> None:
        if self.below_a_table:
            self.console.print()
        self.below_a_table = False
        self.console.print(Text(sentence))

    def _lecture(self, head: HeadTrace, sentence: str) -> None:
        """Say what holds for every head once, at the first."""
        if head.head == 0:
            self._say(sentence)

    def _show(self, *matrices: Labelled, rows: Sequence[str] | None = None) -> None:
        self.console.print()
        print_side_by_side(self.labels if rows is None else rows, matrices, self.console)
        self.below_a_table = True

    def _work_out(self, what: str, terms: Sequence[str], result: float, then: str = "") -> None:
        self._say(f"{what}: {words.sum_of(terms)} = {four_decimals(result)}{then}")
