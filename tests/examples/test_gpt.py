"""The GPT learns, its variants are what they say, and a cache changes nothing but the time."""

import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from math import log
from typing import Any

import pytest
import torch
from gpt import (
    CHARACTERS,
    CONTEXT,
    D_MODEL,
    GPT,
    LAYERS,
    NUM_HEADS,
    TEXT,
    encode,
    held_out_loss,
    loss_of,
    sample,
    train,
    unigram_entropy,
)
from torch import Tensor
from torch.nn import functional

HEAD_DIM = D_MODEL // NUM_HEADS
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "GQA": {"num_kv_heads": 2},
    "window": {"window": 8},
    "MQA, window": {"num_kv_heads": 1, "window": 13},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)


def least_loss_by_pairs(text: str) -> float:
    """Return the entropy of a character if the one before it is known: no model of pairs is below it."""
    pairs, firsts = Counter(pairwise(text)), Counter(text[:-1])
    return -sum(count * log(count / firsts[first]) for (first, _), count in pairs.items()) / (len(text) - 1)


@pytest.mark.parametrize(
    ("steps", "flags"),
    [(150, ()), (125, ("--num-kv-heads", "2", "--window", "32", "--seed", "1"))],
    ids=["plain", "GQA, window"],
)
def test_it_learns_more_than_pairs_of_characters(
    run: Callable[..., str], steps: int, flags: tuple[str, ...]
) -> None:
    printed = run("gpt.py", "--steps", str(steps), *flags)
    held_out, blind = map(
        float, re.search(r"held-out loss (\S+), by frequencies alone (\S+) \(", printed).groups()
    )
    losses = [float(loss) for loss in re.findall(r"step \d+: loss (\S+),", printed)]
    assert len(losses) == steps // 50
    assert all(one > next_one for one, next_one in pairwise(losses))
    text = TEXT[len(TEXT) * 9 // 10 :]
    frequencies = [text.count(character) / len(text) for character in set(text)]
    assert blind == pytest.approx(-sum(each * log(each) for each in frequencies), abs=1e-3)
    # What comes from the character before alone needs no attention.
    assert held_out < least_loss_by_pairs(text) - 0.1 < blind - 0.6
    assert len(printed[printed.index("\nThe ") :].strip("\n")) > 300, "no sample"


def test_an_untrained_model_guesses() -> None:
    pieces = encode(TEXT[: 7 * CONTEXT]).view(-1, CONTEXT)
    assert loss_of(GPT(), pieces).item() == pytest.approx(log(len(CHARACTERS)), abs=0.5)


@every_variant
def test_caches_change_no_logits(variant: dict[str, Any]) -> None:
    model, tokens = GPT(**variant), encode(TEXT[:300])[None]
    with torch.no_grad():
        whole = model(tokens)
        caches = model.new_caches()
        parts = [model(piece, caches) for piece in tokens.split([150] + [1] * 150, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)


@every_variant
def test_a_sample_is_that_without_caches_and_computes_each_character_once(variant: dict[str, Any]) -> None:
    model, computed = GPT(**variant), []
    hook = model.embedding.register_forward_hook(lambda _, given, __: computed.append(given[0].numel()))
    found = sample(model, "class ", length=40, seed=3)
    hook.remove()
    assert computed == [6] + [1] * 39
    generator, written = torch.Generator().manual_seed(3), "class "
    for _ in range(40):
        with torch.no_grad():
            likely = functional.softmax(model(encode(written)[None])[:, -1] / 0.7, dim=-1)
        written += CHARACTERS[int(torch.multinomial(likely, 1, generator=generator))]
    assert found == written
    assert sample(model, "class ", length=40, seed=4) != written


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4])
def test_caches_hold_the_kv_heads(num_kv_heads: int) -> None:
    model = GPT(num_kv_heads=num_kv_heads)
    with torch.no_grad():
        caches = model.new_caches()
        model(encode("import headwise")[None], caches)
    assert [cache.key.shape for cache in caches] == [(1, num_kv_heads, 15, HEAD_DIM)] * LAYERS
    whole = sum(cache.nbytes for cache in caches)
    assert whole == 2 * LAYERS * num_kv_heads * HEAD_DIM * 4 * caches[0].capacity


def reached(model: GPT, tokens: Tensor) -> list[int]:
    """Return the places whose logits change with the first token, in any bit."""
    other = tokens.clone()
    other[0, 0] = (tokens[0, 0] + 1) % len(CHARACTERS)
    with torch.no_grad():
        changed = (model(tokens) != model(other)).any(dim=-1)[0]
    return changed.nonzero().flatten().tolist()


def test_a_window_is_all_that_a_layer_sees() -> None:
    tokens = encode(TEXT[:CONTEXT])[None]
    # Each layer hands a token on to the next window - 1 places.
    assert reached(GPT(window=8), tokens) == list(range(LAYERS * 7 + 1))
    assert reached(GPT(), tokens) == list(range(CONTEXT))


def test_no_token_sees_a_later_one() -> None:
    tokens = encode(TEXT[:CONTEXT])[None]
    other = tokens.clone()
    other[0, 60:] = 0
    model = GPT()
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :60], model(other)[:, :60], rtol=0, atol=1e-6)


def test_a_seed_repeats_a_run_to_the_bit() -> None:
    tokens = encode(TEXT)
    runs = []
    for seed in (5, 5, 6):
        torch.manual_seed(5)
        runs.append(train(GPT(window=32), tokens, steps=3, seed=seed))
    assert runs[0] == runs[1] != runs[2]


def test_the_loss_held_out_is_that_of_whole_pieces() -> None:
    model, tokens = GPT(), encode(TEXT[: 3 * CONTEXT + 1])
    each = [loss_of(model, piece[None]).item() for piece in tokens[:-1].split(CONTEXT)]
    assert held_out_loss(model, tokens) == pytest.approx(sum(each) / 3, abs=1e-5)
    assert unigram_entropy(encode("abab")) == pytest.approx(log(2))
