"""What a parameter means: by its name, its default and its place, or as the user says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.nn import functional

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Role
from headwise.verbs.check.subject.meaning import Constant, Meaning, Part
from headwise.verbs.check.subject.reading import meanings_of
from headwise.verbs.check.subject.signature import signature_of
from headwise.verbs.check.subject.weight_names import WeightRole, weight_role


def meanings(function: Callable[..., Any], **arguments: Any) -> dict[str, Meaning]:
    return meanings_of(signature_of(function), name="attend", arguments=arguments)


NAMES: dict[Meaning, str] = {
    Role.MASK: "mask attn_mask attention_mask attnMask",
    Role.PADDING: "key_padding_mask padding_mask pad_mask",
    Role.BIAS: "bias attn_bias position_bias alibi",
    Role.CAUSAL: "is_causal causal use_causal_mask",
    Role.WINDOW: "window sliding_window window_size",
    Role.SOFTCAP: "softcap logits_soft_cap attn_logit_softcapping",
    Role.SCALE: "scale softmax_scale sm_scale scaling",
    Role.DROPOUT: "dropout_p dropout attn_pdrop",
    Role.NUM_HEADS: "num_heads n_heads heads numHeads h",
    Role.NUM_KV_HEADS: "num_kv_heads n_kv_heads num_key_value_heads",
    Role.NEED_WEIGHTS: "need_weights output_attentions return_weights",
    Role.CACHE: "cache past_key_value layer_past kv_cache",
    Part.HEAD_DIM: "head_dim d_k dim_head",
    Part.D_MODEL: "d_model embed_dim hidden_size n_embd dim",
    Part.GROUP_SIZE: "n_rep group_size",
    Part.START: "start_pos offset",
    WeightRole("q"): "w_q W_q wq Wq q_weight query_proj",
    WeightRole("k"): "w_k k_proj_weight",
    WeightRole("o"): "w_o W_out out_proj_weight proj_weight",
    WeightRole("qkv"): "w_qkv in_proj_weight qkv_weight Wqkv",
    WeightRole("kqv"): "w_kqv",
    WeightRole("q", is_bias=True): "b_q bq q_bias q_proj_bias",
    WeightRole("qkv", is_bias=True): "in_proj_bias b_qkv",
}
CASES = [(name, meaning) for meaning, names in NAMES.items() for name in names.split()]


@pytest.mark.parametrize(("name", "meaning"), CASES, ids=[name for name, _ in CASES])
def test_names_that_people_give(name: str, meaning: Meaning) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def attend(q, k, v, {name}=None): pass", namespace)  # noqa: S102  # a name of the list above
    expected = {"q": Role.QUERY, "k": Role.KEY, "v": Role.VALUE, name: meaning}
    assert meanings(namespace["attend"]) == expected


@pytest.mark.parametrize("name", ["x", "hidden_states", "inputs", "h", "query", "xq"])
def test_names_of_rows(name: str) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def attend({name}): pass", namespace)  # noqa: S102  # a name of the list above
    assert meanings(namespace["attend"]) == {name: Role.QUERY}


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("self_attn", None),
        ("norm", None),
        ("gate_proj", None),
        ("up_proj", None),
        ("rel_pos", None),
        ("q_norm", None),
    ],
)
def test_names_that_tell_of_no_projection(name: str, letters: str | None) -> None:
    assert weight_role(name) is letters


def test_flags_are_told_from_what_they_are_named_like() -> None:
    def attend(query, mask=False, scale=True, bias=True, causal=True):  # type: ignore[no-untyped-def]  # a user's
        """A mask that is a flag is causal; scale and bias that are flags say whether, not what."""

    assert meanings(attend) == {"query": Role.QUERY, "mask": Role.CAUSAL}


def test_parameters_without_known_names_are_read_by_their_place() -> None:
    def three(a, b, c, mask=None): ...  # type: ignore[no-untyped-def]  # a user's
    def one(z): ...  # type: ignore[no-untyped-def]  # a user's

    assert meanings(three) == {"a": Role.QUERY, "b": Role.KEY, "c": Role.VALUE, "mask": Role.MASK}
    assert meanings(one) == {"z": Role.QUERY}


def test_what_is_optional_and_unknown_is_left_alone() -> None:
    def attend(q, k, v, frobnicate=3, *, verbose=False, **others): ...  # type: ignore[no-untyped-def]  # a user's

    assert list(meanings(attend)) == ["q", "k", "v"]


def test_two_parameters_of_one_meaning_the_first_has_it() -> None:
    def attend(q, k, v, attn_mask=None, mask=None): ...  # type: ignore[no-untyped-def]  # a user's

    assert meanings(attend)["attn_mask"] is Role.MASK
    assert "mask" not in meanings(attend)


def test_the_user_says_what_they_mean() -> None:
    def attend(a, b, c, m=None, layer=None, **others): ...  # type: ignore[no-untyped-def]  # a user's

    told = {"a": "query", "b": "key", "c": "value", "m": "mask", "layer": 3, "keep": "padding"}
    found = meanings(attend, **told)
    assert found["m"] is Role.MASK
    assert found["layer"] == Constant(3)
    assert found["keep"] is Role.PADDING  # one of **others


def test_words_for_weights() -> None:
    def attend(x, a, b, c, d): ...  # type: ignore[no-untyped-def]  # a user's

    words = {"a": "query_weight", "b": "key_weight", "c": "value_weight", "d": "output_bias"}
    found = meanings(attend, **words)
    assert found["a"] == WeightRole("q")
    assert found["d"] == WeightRole("o", is_bias=True)


def refused(function: Callable[..., Any], message: str, **arguments: Any) -> None:
    with pytest.raises(ArgumentError, match=message):
        meanings(function, **arguments)


def test_refusals_name_the_parameter() -> None:
    def attend(q, k, v, frob, knob): ...  # type: ignore[no-untyped-def]  # a user's

    refused(
        attend,
        r"attend must be given frob and knob, .*arguments=\{'frob': \"mask\"\}, with one of query, key",
    )
    refused(
        attend, r"arguments names 'nob', which attend does not take; its parameters are q, k, v", nob="mask"
    )
    refused(attend, r"arguments=\{'frob': 'musk'\}: 'musk' is no known meaning; use query", frob="musk")
    refused(attend, r"arguments gives 'frob' and 'knob' the same meaning, 'mask'", frob="mask", knob="mask")


def test_built_in_functions_tell_their_parameters_in_their_docs() -> None:
    found = meanings(functional.scaled_dot_product_attention)
    assert found["attn_mask"] is Role.MASK
    assert found["enable_gqa"] is Part.GROUPED
    assert signature_of(functional.scaled_dot_product_attention).parameters["dropout_p"].default == 0.0


def test_a_callable_that_tells_nothing_is_refused() -> None:
    class Silent:
        __signature__ = "nothing"

        def __call__(self) -> None: ...

    with pytest.raises(ArgumentError, match=r"Silent does not tell its parameters; wrap it in a function"):
        signature_of(Silent())
