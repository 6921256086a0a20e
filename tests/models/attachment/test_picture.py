"""Layers that have no part in the cached text, and what the steps of a text cost."""

import pytest
import torch
from torch import Tensor

from headwise.errors import UnsupportedError
from headwise.evidence import Collect
from headwise.models.attachment.discover import AttachedLayer
from headwise.models.attachment.growing import Growing
from headwise.models.attachment.layer_call import LayerCall
from headwise.models.attachment.picture import Picture

LAYER = AttachedLayer(3, "layers.3", 4, 2, 5, 5, "self")
CROSS = AttachedLayer(3, "cross.3", 4, 2, 5, 5, "cross")


class SomeCache:
    """As much of a cache as tells how long the text is, and whether it was touched."""

    def __init__(self, cached: int = 0) -> None:
        self.layers, self.cached = [self], cached

    def get_seq_length(self) -> int:
        return self.cached


def call(seq_len: int, kv_len: int) -> LayerCall:
    torch.manual_seed(5)
    query, key, value = (
        torch.randn(2, heads, length, 5) for heads, length in ((4, seq_len), (2, kv_len), (2, kv_len))
    )
    return LayerCall(query, key, value, None, None, None, None, None, 0.0)


def observe(picture: Picture, layer: AttachedLayer, seq_len: int, kv_len: int) -> None:
    picture.observe(layer, call(seq_len, kv_len), None, in_forward=True)


def picture_of(*layers: AttachedLayer, cached: int = 0) -> Picture:
    return Picture(
        dict.fromkeys(layers, Collect(received=True)), SomeCache(cached), torch.zeros(1, dtype=int)
    )


@pytest.mark.parametrize(("seq_len", "kv_len"), [(4, 4), (7, 3), (1, 13)])
def test_a_layer_that_does_not_read_the_cache_is_a_text_of_its_own(seq_len, kv_len):
    """A vision half beside a cache of 11 tokens, keys that were pooled, more keys than the text has."""
    picture = picture_of(LAYER, cached=11)
    observe(picture, LAYER, seq_len, kv_len)
    observe(picture, LAYER, seq_len, kv_len)
    found = picture[LAYER]
    assert (found.entropy.shape[2], found.received.shape[2]) == (seq_len, kv_len)
    assert not found.first_token.isnan().any()


def test_a_layer_whose_keys_are_no_one_sequence_is_refused():
    """As where a layer joins its own cache and another text's keys: where these stand changes by step."""
    picture = picture_of(CROSS)
    observe(picture, CROSS, 5, 11)
    assert picture[CROSS].entropy.shape[2] == 5
    picture.begin(SomeCache(5))
    observe(picture, CROSS, 1, 12)
    with pytest.raises(UnsupportedError, match="its keys, 11 and then 12, are not one sequence; run the"):
        picture[CROSS]


def test_a_tensor_grows_by_few_copies():
    first = torch.randn(2, 3, 5, 7)
    parts, grown, rooms = [first], Growing(first), set()
    for _ in range(300):
        parts.append(torch.randn(2, 3, 1, 7))
        grown.append(parts[-1])
        rooms.add(grown.whole().data_ptr())
    assert torch.equal(grown.whole(), torch.cat(parts, dim=2))
    assert len(rooms) < 8


def test_what_is_added_past_the_end_is_added_to_nothing():
    grown = Growing(torch.ones(1, 1, 2))
    grown.add(torch.full((1, 1, 7), 3.0))
    grown.add(torch.ones(1, 1, 3))
    expected: Tensor = torch.tensor([[[5.0, 5, 4, 3, 3, 3, 3]]])
    assert torch.equal(grown.whole(), expected)
