import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from headwise import reference
from headwise.errors import ArgumentError
from headwise.verbs.explain import Explanation, explain_two_heads
from headwise.verbs.explain.render_json import to_json

SIZES = [
    {},
    {"causal": True},
    {"num_kv_heads": 1},
    {"d_model": 12, "num_heads": 6, "num_kv_heads": 2, "seed": 11, "causal": True},
    {"d_model": 7, "num_heads": 3, "head_dim": 5, "tokens": ["a", "bb", "a", "mat", "e"]},
    {"d_model": 1, "num_heads": 1, "tokens": ["one"], "seed": 0},
    {
        "d_model": 256,
        "num_heads": 64,
        "num_kv_heads": 8,
        "tokens": [str(n) for n in range(64)],
        "seed": 2**32 - 1,
    },
]


def test_the_published_numbers_to_every_digit() -> None:
    found = explain_two_heads()
    assert found.tokens == ("cat", "sat", "mat")
    assert found.input.tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0]]
    expected = {
        "weights of head 0": [[0.4720, 0.2676, 0.2603], [0.2635, 0.3618, 0.3746], [0.4565, 0.2735, 0.2700]],
        "weights of head 1": [[0.3627, 0.1943, 0.4430], [0.3326, 0.4491, 0.2182], [0.3124, 0.3025, 0.3851]],
        "concatenated": [
            [-0.0194, -0.8694, -0.9616, -0.3999],
            [0.3008, -0.8794, -0.8637, -0.4963],
            [0.0033, -0.8711, -0.9156, -0.4626],
        ],
        "output": [
            [-1.0682, 0.1421, -0.3248, 1.0458],
            [-1.4414, -0.0608, -0.1886, 1.0093],
            [-1.1078, 0.0533, -0.3220, 0.9565],
        ],
    }
    matrices = [found.heads[0].weights, found.heads[1].weights, found.concatenated, found.output]
    assert {
        name: matrix.round(4).tolist() for name, matrix in zip(expected, matrices, strict=True)
    } == expected


def against_reference(found: Explanation) -> reference.ReferenceResult:
    kv_heads = [
        found.heads[found.layout.query_heads_of(kv_head)[0]] for kv_head in range(found.layout.num_kv_heads)
    ]
    query = np.stack([head.query for head in found.heads])[None]
    key = np.stack([head.key for head in kv_heads])[None]
    value = np.stack([head.value for head in kv_heads])[None]
    count = len(found.tokens)
    mask = np.tril(np.ones((count, count), dtype=bool)) if found.causal else None
    return reference.attention(query, key, value, mask=mask)


@pytest.mark.parametrize("sizes", SIZES)
def test_every_head_equals_the_reference(sizes: dict[str, Any]) -> None:
    found = explain_two_heads(**sizes)
    expected = against_reference(found)
    for head in found.heads:
        np.testing.assert_allclose(head.weights, expected.weights[0, head.head], rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.output, expected.output[0, head.head], rtol=0, atol=1e-11)


@pytest.mark.parametrize("sizes", SIZES)
def test_the_output_is_the_sum_over_heads_of_their_slice_of_w_o(sizes: dict[str, Any]) -> None:
    found = explain_two_heads(**sizes)
    slices = np.split(found.w_o, found.layout.num_heads)
    total = sum(head.output @ of_head for head, of_head in zip(found.heads, slices, strict=True))
    np.testing.assert_allclose(found.output, total, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", SIZES)
def test_each_step_follows_from_the_one_before(sizes: dict[str, Any]) -> None:
    found = explain_two_heads(**sizes)
    for head in found.heads:
        for projected, weight in ((head.query, head.w_q), (head.key, head.w_k), (head.value, head.w_v)):
            np.testing.assert_allclose(projected, found.input @ weight, rtol=0, atol=1e-12)
        np.testing.assert_allclose(head.scores, np.inner(head.query, head.key), rtol=0, atol=1e-10)
        np.testing.assert_allclose(head.scaled * head.query.shape[1] ** 0.5, head.scores, rtol=0, atol=1e-10)
        np.testing.assert_allclose(head.weights.sum(axis=1), 1, rtol=0, atol=1e-12)


def test_causal_hides_later_tokens_and_nothing_else() -> None:
    found, plain = explain_two_heads(causal=True), explain_two_heads()
    later = np.triu(np.ones((3, 3), dtype=bool), k=1)
    for head, unmasked in zip(found.heads, plain.heads, strict=True):
        assert np.isneginf(head.masked).tolist() == later.tolist()
        assert (head.masked[~later] == unmasked.scaled[~later]).all()
        assert (head.weights[later] == 0).all()
        assert (unmasked.masked == unmasked.scaled).all()


def test_query_heads_of_a_group_share_the_matrices_of_their_kv_head() -> None:
    found = explain_two_heads(d_model=12, num_heads=6, num_kv_heads=2)
    assert [head.kv_head for head in found.heads] == [0, 0, 0, 1, 1, 1]
    for head, leader in zip(found.heads, [0, 0, 0, 3, 3, 3], strict=True):
        assert head.w_k is found.heads[leader].w_k
        assert head.w_v is found.heads[leader].w_v
    assert len({head.w_q.tobytes() for head in found.heads}) == 6
    assert not np.array_equal(found.heads[0].w_k, found.heads[3].w_k)


def test_random_numbers_are_drawn_in_the_documented_order() -> None:
    found = explain_two_heads(
        tokens=["dog", "cat", "dog", "owl"], num_heads=4, num_kv_heads=2, head_dim=3, seed=5
    )
    generator = np.random.RandomState(5)

    def half(*shape: int) -> list[list[float]]:
        return np.round(generator.randn(*shape) * 0.5, 2).tolist()

    for head in found.heads:
        assert head.w_q.tolist() == half(4, 3)
        if head.head in {0, 2}:
            assert head.w_k.tolist() == half(4, 3)
            assert head.w_v.tolist() == half(4, 3)
    assert found.w_o.tolist() == half(12, 4)
    dog, owl = (np.round(generator.randn(4), 2).tolist() for _ in range(2))
    assert found.input.tolist() == [dog, [1, 0, 1, 0], dog, owl]
    assert found.drawn_tokens == ("dog", "owl")


def test_rows_are_given_only_at_the_width_they_have() -> None:
    assert explain_two_heads().drawn_tokens == ()
    assert explain_two_heads(d_model=6).drawn_tokens == ("cat", "sat", "mat")


def test_the_result_cannot_be_changed() -> None:
    found = explain_two_heads()
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 4
    for matrix in (found.input, found.w_o, found.output, found.heads[0].weights, found.heads[1].w_k):
        with pytest.raises(ValueError, match="read-only"):
            matrix[0, 0] = 7.0


def test_json_has_every_step_with_its_shape_and_masked_scores_as_null() -> None:
    found = explain_two_heads(tokens=list("abcde"), causal=True, d_model=6, num_heads=2, num_kv_heads=1)
    document = json.loads(json.dumps(to_json(found), allow_nan=False))
    sizes = ("d_model", "num_heads", "num_kv_heads", "head_dim", "seed", "causal")
    assert [document[name] for name in sizes] == [6, 2, 1, 3, 3, True]
    assert document["tokens"] == ["a", "b", "c", "d", "e"]
    first, second = document["heads"]
    assert (second["head"], second["kv_head"]) == (1, 0)
    assert first["masked"]["values"][0][1:] == [None] * 4
    assert first["scaled"]["values"] == found.heads[0].scaled.tolist()
    shapes = {
        (6, 3): ("w_q", "w_k", "w_v"),
        (5, 3): ("query", "key", "value", "output"),
        (5, 5): ("scores", "scaled", "masked", "weights"),
    }
    for shape, names in shapes.items():
        assert [tuple(second[name]["shape"]) for name in names] == [shape] * len(names)
        assert [np.shape(second[name]["values"]) for name in names] == [shape] * len(names)
    assert document["output"] == {"shape": [5, 6], "values": found.output.tolist()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": []}, r"^0 tokens given; pass 1 to 64$"),
        ({"tokens": ["x"] * 65}, r"^65 tokens given; pass 1 to 64$"),
        (
            {"tokens": ["cat", ""]},
            r"^token 1 is ''; each of the tokens is a string of at least one character$",
        ),
        ({"tokens": ["cat", 3]}, r"^token 1 is 3; each of the tokens is a string"),
        ({"tokens": "cat"}, r"^tokens='cat' is one string; pass a list such as \['cat', 'sat', 'mat'\]$"),
        (
            {"num_heads": 3},
            r"^num_heads=3 does not divide d_model=4; .*use 2 \(head_dim 2\) or 4 \(head_dim 1\)$",
        ),
        ({"num_kv_heads": 3}, r"^num_kv_heads=3 does not divide num_heads=2; use 1 or 2$"),
        ({"d_model": 0}, r"^d_model=0 must be at least 1$"),
        ({"d_model": 257}, r"^d_model=257 is too large; the largest allowed is 256$"),
        ({"d_model": 128, "num_heads": 128}, r"^num_heads=128 is too large; the largest allowed is 64$"),
        ({"head_dim": 257}, r"^head_dim=257 is too large; the largest allowed is 256$"),
        ({"head_dim": 1.5}, r"^head_dim=1\.5 is a float; pass an integer$"),
        ({"seed": -1}, r"^seed=-1 is no seed; pass an integer from 0 to 4294967295$"),
        ({"seed": 2**32}, r"^seed=4294967296 is no seed; pass an integer from 0 to 4294967295$"),
        ({"seed": True}, r"^seed=True is no seed"),
        ({"seed": 3.0}, r"^seed=3\.0 is no seed"),
    ],
)
def test_requests_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        explain_two_heads(**options)
