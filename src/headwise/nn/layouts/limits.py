"""What the layers of a family can be: weights outside these limits have no module to be loaded into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headwise.errors import ArgumentError
from headwise.nn.layouts.weights import HeadWeights


@dataclass(frozen=True)
class Limits:
    """What a family's modules can hold.

    Args:
        kv_heads: "any" divisor of num_heads (GQA), "all" of them (MHA), or "one" (MQA).
        widths: "any"; "equal" where a value is as wide as a key; "square" where moreover all heads side by
            side are as wide as the model.
        inputs: "any" where key and value may come from inputs of other widths; "one" where all are d_model
            wide.
        output: "any" width; "d_model" where the layer gives back the width it was given.

    """

    kv_heads: Literal["any", "all", "one"] = "any"
    widths: Literal["any", "equal", "square"] = "any"
    inputs: Literal["any", "one"] = "any"
    output: Literal["any", "d_model"] = "d_model"

    def check(self, weights: HeadWeights) -> None:
        """Refuse weights that no module of the family can hold.

        Raises:
            ArgumentError: a head count or width is outside the limits.

        """
        self._check_kv_heads(weights)
        self._check_widths(weights)
        inputs = (weights.d_model, weights.key.shape[2], weights.value.shape[2])
        if self.inputs == "one" and len(set(inputs)) > 1:
            raise ArgumentError(
                f"query, key and value are made from inputs {inputs[0]}, {inputs[1]} and {inputs[2]} wide; "
                "here all three have the same input"
            )
        if self.output == "d_model" and weights.out.shape[2] != weights.d_model:
            raise ArgumentError(
                f"the output is {weights.out.shape[2]} wide and the input {weights.d_model}; here the two "
                "are equal"
            )

    def _check_kv_heads(self, weights: HeadWeights) -> None:
        heads = weights.heads
        if self.kv_heads == "all" and heads.group_size > 1:
            raise ArgumentError(
                f"num_kv_heads={heads.num_kv_heads} are fewer than num_heads={heads.num_heads}, and here "
                "every query head has a KV head of its own; HeadWeights.with_own_kv_heads() copies them"
            )
        if self.kv_heads == "one" and heads.num_kv_heads > 1:
            raise ArgumentError(f"num_kv_heads={heads.num_kv_heads}; here there is only one (MQA)")

    def _check_widths(self, weights: HeadWeights) -> None:
        heads = weights.heads
        if self.widths != "any" and heads.value_head_dim != heads.head_dim:
            raise ArgumentError(
                f"value_head_dim={heads.value_head_dim} differs from head_dim={heads.head_dim}; here "
                "the two are equal"
            )
        if self.widths == "square" and heads.query_width != weights.d_model:
            raise ArgumentError(
                f"num_heads={heads.num_heads} x head_dim={heads.head_dim} is {heads.query_width}, not "
                f"d_model={weights.d_model}; here the heads divide d_model"
            )
