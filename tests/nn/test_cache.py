"""The layer behind a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.cache import KVCache, RollingKVCache
from headwise.errors import ArgumentError
from headwise.evidence import Collect
from headwise.masks import Causal, Dense
from headwise.nn import MultiHeadAttention
from headwise.rope import Rope

from .test_layer_options import BATCH, D_MODEL, HEADS, OPTIONS, made

SEQ_LEN = 19


PIECES = {"token by token": [1] * SEQ_LEN, "prompt, then tokens": [11, *[1] * 8], "chunks": [7, 1, 6, 5]}


every_piece = pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)


def streamed(
    layer: MultiHeadAttention, given: Tensor, cache: Any, pieces: list[int], **options: Any
) -> Tensor:
    return torch.cat([layer(piece, cache=cache, **options) for piece in given.split(pieces, dim=1)], dim=1)


@every_piece
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_text_in_pieces_gives_the_numbers_of_the_whole(options: dict[str, Any], pieces: list[int]) -> None:
    layer, given = made(**options), torch.randn(BATCH, SEQ_LEN, D_MODEL)
    with torch.no_grad():
        whole = layer(given, mask=Causal())
        torch.testing.assert_close(streamed(layer, given, KVCache(), pieces), whole, rtol=1e-4, atol=1e-5)
        if layer.window is not None:
            rolling = RollingKVCache(window=layer.window)
            torch.testing.assert_close(streamed(layer, given, rolling, pieces), whole, rtol=1e-4, atol=1e-5)


@every_piece
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_where_the_projections_are_exact_it_gives_the_same_bits(
    options: dict[str, Any], pieces: list[int]
) -> None:
    """A matrix product of other shape may sum in another order; sums of small integers are exact in any."""
    layer = MultiHeadAttention(48, HEADS, num_kv_heads=2, **options)
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj):
        projection.weight.data = torch.randint(-2, 3, projection.weight.shape) / 8.0
    nn.init.eye_(layer.out_proj.weight)
    given = torch.randint(-3, 4, (BATCH, SEQ_LEN, 48)).float()
    with torch.no_grad():
        whole = layer(given, mask=Causal(), impl="cpu")
        assert torch.equal(streamed(layer, given, KVCache(), pieces, impl="cpu"), whole)
        if layer.window is not None:
            rolling = RollingKVCache(window=layer.window)
            assert torch.equal(streamed(layer, given, rolling, pieces, impl="cpu"), whole)


def test_long_texts_roll_with_their_first_tokens() -> None:
    """Far more tokens than the rolling cache holds; positions go on, they are not renumbered."""
    layer, given, window, first = made(rope=Rope()), torch.randn(1, 2000, D_MODEL), 30, 3
    place = torch.arange(2000)
    near = (place <= place[:, None]) & ((place > place[:, None] - window) | (place < first))
    cache = RollingKVCache(window=window, keep_first=first)
    with torch.no_grad():
        whole = layer(given, mask=near)
        found = streamed(layer, given, cache, [1000, *[200] * 5])
    assert cache.key.shape[2] < 1500
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [OPTIONS["all"], {"rope": Rope()}], ids=["all", "rope"])
def test_rows_of_unequal_length_are_as_they_are_alone(options: dict[str, Any]) -> None:
    layer, given = made(**options), torch.randn(3, SEQ_LEN, D_MODEL)
    steps, counts = [[7, 4, 0], [1, 1, 1], [2, 3, 1]], [10, 8, 2]
    cache, done = KVCache(), [0, 0, 0]
    with torch.no_grad():
        alone = [layer(given[b : b + 1, :count], mask=Causal())[0] for b, count in enumerate(counts)]
        for lengths in steps:
            piece = torch.full((3, max(lengths), D_MODEL), 1e6)
            for b, length in enumerate(lengths):
                piece[b, :length] = given[b, done[b] : done[b] + length]
            found = layer(piece, cache=cache, lengths=lengths)
            for b, length in enumerate(lengths):
                expected = alone[b][done[b] : done[b] + length]
                torch.testing.assert_close(found[b, :length], expected, rtol=1e-4, atol=1e-5)
                done[b] += length
    assert cache.lengths == tuple(counts)


def test_another_mask_joins_that_of_the_cache() -> None:
    layer, given = made(), torch.randn(BATCH, 6, D_MODEL)
    with torch.no_grad():
        expected = layer(given, mask=Causal() & Dense(torch.arange(6)[None] != 2))[:, 4:]
        cache = KVCache()
        layer(given[:, :4], cache=cache)
        found = layer(given[:, 4:], cache=cache, mask=torch.arange(6)[None] != 2)
    torch.testing.assert_close(found, expected)


def test_what_a_cache_cannot_do_is_refused() -> None:
    layer, given = made(window=3), torch.randn(BATCH, 4, D_MODEL)
    with torch.no_grad():
        with pytest.raises(ArgumentError, match="key is given with a cache, which is for self-attention"):
            layer(given, given, cache=KVCache())
        with pytest.raises(
            ArgumentError, match=r"lengths is given without cache; .* pass mask=Lengths\(lengths\)"
        ):
            layer(given, lengths=[1, 2])
        with pytest.raises(
            ArgumentError, match="cache is a dict; it must be a headwise KVCache or RollingKVCache, o"
        ):
            layer(given, cache={})
        with pytest.raises(
            ArgumentError, match=r"the cache has window=4 and the layer window=3; .*\(window=3\), or a"
        ):
            layer(given, cache=RollingKVCache(window=4))
        with pytest.raises(ArgumentError, match="lengths has 3 entries, but batch is 2"):
            layer(given, cache=KVCache(), lengths=[1, 2, 3])
    with pytest.raises(
        ArgumentError, match=r"requires a gradient, .* run the model under torch\.no_grad\(\)"
    ):
        layer(given, cache=KVCache())


def test_nothing_is_a_text_too() -> None:
    layer, given = made(rope=Rope()), torch.randn(BATCH, 0, D_MODEL)
    with torch.no_grad():
        assert layer(given, cache=KVCache()).shape == (BATCH, 0, D_MODEL)
        assert layer(given, cache=KVCache(), observe=Collect()).output.shape == (BATCH, 0, D_MODEL)


REFUSED: dict[str, dict[str, Any]] = {
    "mask": {"mask": torch.ones(2, 9, dtype=torch.bool)},
    "kind of mask": {"mask": "causal"},
    "bias": {"bias": torch.zeros(4, 4, 4, 4, 4)},
    "gates": {"head_gates": torch.ones(5)},
    "heads": {"observe": Collect(heads=[9])},
    "rows": {"observe": Collect(rows=[7])},
    "implementation": {"impl": "fast"},
    "lengths": {"lengths": [1, 9]},
}


@pytest.mark.parametrize("wrong", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("kind", ["growing", "rolling", "rolling with first tokens"])
@pytest.mark.parametrize("filled", [0, 9, 700])
def test_a_call_that_is_refused_leaves_the_cache_as_it_was(
    wrong: dict[str, Any], kind: str, filled: int
) -> None:
    """Whoever mends the call and repeats it has not doubled the tokens."""
    layer, given = made(rope=Rope()), torch.randn(BATCH, filled + 6, D_MODEL)
    make: dict[str, Callable[[], Any]] = {
        "growing": KVCache,
        "rolling": lambda: RollingKVCache(window=5),
        "rolling with first tokens": lambda: RollingKVCache(window=5, keep_first=2),
    }
    caches = make[kind](), make[kind]()
    with torch.no_grad():
        for cache in caches:
            if filled:
                layer(given[:, :filled], cache=cache)
        with pytest.raises(ArgumentError):
            layer(given[:, filled : filled + 4], cache=caches[0], **wrong)
        assert caches[0].lengths == caches[1].lengths
        for piece in given[:, filled:].split([4, 1, 1], dim=1):
            found, expected = (layer(piece, cache=cache, impl="cpu") for cache in caches)
            assert torch.equal(found, expected)


def test_so_does_one_that_is_interrupted() -> None:
    layer, given, cache = made(), torch.randn(BATCH, 4, D_MODEL), KVCache()

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with torch.no_grad():
        layer(given[:, :3], cache=cache)
        hook = layer.out_proj.register_forward_pre_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            layer(given[:, 3:], cache=cache)
        hook.remove()
        assert cache.lengths == (3, 3)
        found = layer(given[:, 3:], cache=cache)
        torch.testing.assert_close(found, layer(given, mask=Causal())[:, 3:])
