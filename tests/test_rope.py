from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from headwise.errors import ArgumentError
from headwise.rope import Rope

BATCH, HEADS, KV_HEADS, SEQ_LEN, HEAD_DIM = 2, 6, 2, 7, 16
every_pairing = pytest.mark.parametrize("pairing", ["half_split", "interleaved"])


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def tensors(seq_len: int = SEQ_LEN, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    query = torch.randn(BATCH, HEADS, seq_len, HEAD_DIM, dtype=dtype)
    return query, torch.randn(BATCH, KV_HEADS, seq_len, HEAD_DIM, dtype=dtype)


def by_complex_numbers(given: Tensor, rope: Rope, positions: Tensor) -> Tensor:
    """Return what a rotation is, in float64: pairs as complex numbers times `exp(i angle)`."""
    rotary_dim = given.shape[3] if rope.rotary_dim is None else rope.rotary_dim
    turning, rest = given.double().split([rotary_dim, given.shape[3] - rotary_dim], dim=3)
    frequencies = torch.tensor(
        [rope.base ** (-2 * i / rotary_dim) for i in range(rotary_dim // 2)], dtype=torch.float64
    )
    turn = torch.exp(1j * positions.double()[..., None] * frequencies)
    if rope.pairing == "half_split":
        turned = torch.complex(*turning.chunk(2, dim=3)) * turn
        return torch.cat([turned.real, turned.imag, rest], dim=3)
    turned = torch.view_as_complex(turning.unflatten(3, (-1, 2)).contiguous()) * turn
    return torch.cat([torch.view_as_real(turned).flatten(3), rest], dim=3)


@pytest.mark.parametrize("base", [10_000.0, 500_000.0])
def test_half_split_gives_the_numbers_of_llama(base: float) -> None:
    config = LlamaConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    query, key = tensors()
    first = torch.tensor([0, 13])
    positions = first[:, None] + torch.arange(SEQ_LEN)
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(query, positions)
    expected = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    found = Rope(base=base).rotate(query, key, first=first)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rotary_dim", [HEAD_DIM, 6])
def test_interleaved_gives_the_numbers_of_gpt_j(rotary_dim: int) -> None:
    query, key = tensors()
    sin, cos = modeling_gptj.create_sinusoidal_positions(20, rotary_dim)[None, 13 : 13 + SEQ_LEN].chunk(
        2, dim=2
    )
    found = Rope(pairing="interleaved", rotary_dim=rotary_dim).rotate(query, key, first=13)
    for one, given in zip(found, (query, key), strict=True):
        turned = modeling_gptj.apply_rotary_pos_emb(given[..., :rotary_dim].transpose(1, 2), sin, cos)
        expected = torch.cat([turned.transpose(1, 2), given[..., rotary_dim:]], dim=3)
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-5)


@every_pairing
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_far_positions_are_as_exact_as_near_ones(pairing: Any, rotary_dim: int | None) -> None:
    # With float32 angles they are off by more than 1e-3 here.
    rope, (query, key) = Rope(pairing=pairing, rotary_dim=rotary_dim), tensors()
    for first in (0, 1_000_003):
        positions = first + torch.arange(SEQ_LEN)
        for one, given in zip(rope.rotate(query, key, first=first), (query, key), strict=True):
            exact = by_complex_numbers(given, rope, positions)
            torch.testing.assert_close(one.double(), exact, rtol=0, atol=1e-6)


@every_pairing
def test_float64_is_float64(pairing: Any) -> None:
    rope, (query, key) = Rope(pairing=pairing), tensors(dtype=torch.float64)
    found = rope.rotate(query, key, first=5)
    torch.testing.assert_close(
        found[0], by_complex_numbers(query, rope, 5 + torch.arange(SEQ_LEN)), rtol=0, atol=1e-14
    )


@every_pairing
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_rounded_once(pairing: Any, dtype: torch.dtype) -> None:
    rope, halved = Rope(pairing=pairing, rotary_dim=6), tensors(dtype=dtype)
    found = rope.rotate(*halved, first=3)
    wide = rope.rotate(*(each.float() for each in halved), first=3)
    for one, other in zip(found, wide, strict=True):
        assert torch.equal(one, other.to(dtype))


@every_pairing
def test_scores_depend_on_the_distance_alone(pairing: Any) -> None:
    query, key = tensors(dtype=torch.float64)
    rope, key = Rope(pairing=pairing), key.repeat_interleave(HEADS // KV_HEADS, dim=1)
    near, far = (
        turned_query @ turned_key.mT
        for turned_query, turned_key in (rope.rotate(query, key, first=first) for first in (0, 1234))
    )
    torch.testing.assert_close(near, far)
    assert not torch.allclose(near, query @ key.mT)


@every_pairing
def test_tokens_may_come_one_by_one_with_the_same_bits(pairing: Any) -> None:
    rope, (query, key) = Rope(pairing=pairing), tensors(seq_len=37)
    whole = rope.rotate(query, key, first=[3, 1000])
    pieces = [
        rope.rotate(query[:, :, i : i + 1], key[:, :, i : i + 1], first=[3 + i, 1000 + i]) for i in range(37)
    ]
    for found, expected in zip(zip(*pieces, strict=True), whole, strict=True):
        assert torch.equal(torch.cat(found, dim=2), expected)


def test_gradients_are_turned_back() -> None:
    query, key = (each.requires_grad_() for each in tensors(dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda *two: Rope().rotate(*two, first=2), (query[:1, :1], key[:1, :1]))


def test_ropes_are_values() -> None:
    assert Rope() == Rope(base=10_000.0, pairing="half_split")
    assert len({Rope(), Rope(), Rope(base=7.0)}) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"base": 0}, "base=0 must be a finite number above 0, such as 10000.0"),
        ({"base": float("inf")}, "base=inf must be a finite"),
        ({"base": True}, "base=True must be a finite"),
        ({"base": "a"}, "base='a' must be a finite"),
        ({"pairing": "halves"}, "pairing='halves' is unknown; allowed are 'half_split', 'interleaved'"),
        ({"rotary_dim": 3}, "rotary_dim=3 is odd; elements turn in pairs: pass an even one"),
        ({"rotary_dim": 0}, "rotary_dim=0 must be at least 1"),
    ],
)
def test_ropes_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Rope(**arguments)


def test_tensors_that_do_not_fit_are_refused() -> None:
    query, key = tensors()
    with pytest.raises(
        ArgumentError, match=r"turn 18 elements of a head of head_dim=16; .* rotary_dim=16 or less"
    ):
        Rope(rotary_dim=18).rotate(query, key)
    with pytest.raises(
        ArgumentError, match=r"turn 15 elements of a head of head_dim=15; .* pass rotary_dim=14"
    ):
        Rope().rotate(query[..., :15], key[..., :15])
    with pytest.raises(
        ArgumentError, match=r"key has rank 3, shape \(2, 2, 7\); it must have rank 4, \[batch"
    ):
        Rope().rotate(query, key[..., 0])
    with pytest.raises(
        ArgumentError, match=r"key \(2, 2, 6, 16\); they are of the same tokens, so only the num"
    ):
        Rope().rotate(query, key[:, :, :6])
    with pytest.raises(
        ArgumentError, match="first has 3 entries, but batch is 2; give one position for each"
    ):
        Rope().rotate(query, key, first=[1, 2, 3])
    with pytest.raises(ArgumentError, match="an entry of first=-1 must be at least 0"):
        Rope().rotate(query, key, first=-1)
