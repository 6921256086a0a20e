"""Faults that users have reported of causal order, windows, heads and layout, each with the right value.

`repository#n` is an issue or pull request on GitHub. What belongs to the module is in `tests/nn`.
"""

import pytest
import torch
from torch import Tensor

from headwise import ops
from headwise.errors import ArgumentError
from headwise.masks import Causal, Lengths, Window

from ..naive import gradients
from .ways import Way, differentiable_ways, every_way, weights_of


def zeros(*shape: int) -> Tensor:
    return torch.zeros(shape)


# --- causal order, caches, windows


@every_way
def test_one_query_with_a_cache_sees_the_whole_cache(way: Way) -> None:
    # pytorch#108108, #103082, #144858: aligned to the upper left, it saw key 0 and nothing else
    query, key = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 5, 4)
    assert torch.equal(weights_of(way, query, key, mask=Causal()), weights_of(way, query, key))


@every_way
def test_causal_rectangles_in_either_alignment(way: Way) -> None:
    # flash-attention#951, #282, #1778; SageAttention PR#372: one alignment surprised half of the users
    def seen(seq_len: int, kv_len: int, mask: Causal) -> list[list[int]]:
        weights = weights_of(way, zeros(1, 1, seq_len, 3), zeros(1, 1, kv_len, 3), mask=mask)
        return (weights[0, 0] > 0).int().tolist()

    assert seen(2, 5, Causal()) == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert seen(5, 2, Causal()) == [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]
    assert seen(2, 5, Causal("upper_left")) == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


@every_way
def test_token_by_token_equals_the_whole(way: Way) -> None:
    # x-transformers#187, #311: cached and uncached differed by up to 0.5
    made = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    whole = way(*made, mask=Causal()).output
    for step in range(6):
        query, key, value = (
            made[0][:, :, step : step + 1],
            made[1][:, :, : step + 1],
            made[2][:, :, : step + 1],
        )
        found = way(query, key, value, mask=Causal()).output
        torch.testing.assert_close(found, whole[:, :, step : step + 1])


@differentiable_ways
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"sinks": zeros(1)}, {"bias": zeros(4, 4)}])
def test_no_row_depends_on_a_later_key_whatever_else_is_asked(way: Way, options: dict[str, object]) -> None:
    # keras#23038, xformers#103, pytorch#99282: causal order dropped when dropout, scores or a mask were there
    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return way(query, key, value, mask=Causal(), **options).output

    made = [torch.randn(1, 1, 4, 3) for _ in range(3)]
    for row in range(4):
        upstream = zeros(1, 1, 4, 3)
        upstream[:, :, row] = 1.0
        _, key, value = gradients(attend, made, upstream)
        assert (key[:, :, row + 1 :] == 0).all()
        assert (value[:, :, row + 1 :] == 0).all()


def test_dropout_leaves_causal_order_in_place() -> None:
    # keras#23038
    found = ops.attention(
        zeros(1, 1, 5, 5), zeros(1, 1, 5, 5), torch.eye(5)[None, None], mask=Causal(), dropout=0.2
    )
    assert torch.equal(found, found.tril())


@every_way
def test_causal_needs_no_tensor_and_composes_with_padding(way: Way) -> None:
    # pytorch#100709, #118972, #172338, #101531: the flag demanded a mask here and forbade one there
    weights = weights_of(way, zeros(2, 1, 3, 4), zeros(2, 1, 3, 4), mask=Causal() & Lengths([2, 3]))
    assert (weights[:, 0] > 0).int().tolist() == [
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]],
        [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
    ]


@every_way
def test_a_window_of_n_is_n_keys_the_current_one_among_them(way: Way) -> None:
    # transformers#29623, #39408, vllm#3385, Megatron-Bridge PR#2656, onnxruntime PR#25927: off by one
    weights = weights_of(way, zeros(1, 1, 6, 3), zeros(1, 1, 6, 3), mask=Window.of(3))[0, 0]
    assert (weights[5] > 0).int().tolist() == [0, 0, 0, 1, 1, 1]
    same = weights_of(way, zeros(1, 1, 6, 3), zeros(1, 1, 6, 3), mask=Window(left=2, right=0))[0, 0]
    assert torch.equal(same, weights)


# --- heads, scale and layout


@every_way
def test_kv_heads_are_grouped_and_not_tiled(way: Way) -> None:
    # onnx PR#7274, jax-js PR#180, axlearn PR#842, ml-hypercloning#1
    value = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1)
    found = way(torch.randn(1, 4, 1, 1), zeros(1, 2, 1, 1), value).output
    assert found.flatten().tolist() == [0.0, 0.0, 1.0, 1.0]


@every_way
@pytest.mark.parametrize("ratio", [1, 4, 7])
def test_every_kv_head_is_read_by_as_many_query_heads(way: Way, ratio: int) -> None:
    # ONNXim PR#34: index h / num_kv_heads left some KV heads unread and went past the end
    value = torch.arange(3.0).reshape(1, 3, 1, 1)
    found = way(torch.randn(1, 3 * ratio, 1, 1), zeros(1, 3, 1, 1), value).output.flatten().tolist()
    assert found == [0.0] * ratio + [1.0] * ratio + [2.0] * ratio


@every_way
def test_a_tensor_of_batch_seq_head_width_is_refused_where_it_shows(way: Way) -> None:
    # prime-rl PR#2681: heads repeated along the sequence, the layout being another
    query, key = torch.randn(2, 5, 4, 3), torch.randn(2, 7, 2, 3)
    with pytest.raises(ArgumentError, match=r"is the layout \[batch, heads, length, width\]\?"):
        way(query, key, key)


@every_way
def test_scale_comes_from_the_head_and_neither_from_the_model_nor_the_head_count(way: Way) -> None:
    # vit-pytorch#65, DL4Proteins#12, tt-metal PR#56789
    query = torch.ones(1, 8, 1, 64)
    assert way(query, query, query).logsumexp.flatten().tolist() == [8.0] * 8


@every_way
def test_batch_elements_do_not_see_each_other(way: Way) -> None:
    # OmDet#19, pytorch#122959, #63560: attention ran across the batch in a released model
    made = [torch.randn(2, 2, 5, 4) for _ in range(3)]
    both = way(*made, mask=Causal()).output
    for index in range(2):
        alone = way(*(tensor[index : index + 1] for tensor in made), mask=Causal()).output
        torch.testing.assert_close(both[index : index + 1], alone)


@every_way
@pytest.mark.parametrize("sizes", [(84, 3, 3, 64), (2, 7, 4, 8)])
def test_permuted_projections_equal_contiguous_ones(way: Way, sizes: tuple[int, ...]) -> None:
    # pytorch#112577, #181133 (off by 3.6), ROCm/pytorch#3230, FlagGems#5896, torch-spyre#4331
    permuted = [torch.randn(sizes).permute(0, 2, 1, 3) for _ in range(3)]
    found = way(*permuted).output
    torch.testing.assert_close(found, way(*(tensor.contiguous() for tensor in permuted)).output)


@differentiable_ways
def test_the_backward_pass_takes_any_strides(way: Way) -> None:
    # flash-attention#355, pytorch#133671: wrong query gradients for a non-contiguous incoming gradient
    made = [torch.randn(2, 3, 5, 4) for _ in range(3)]
    upstream = torch.randn(4, 5, 3, 2).permute(3, 2, 1, 0)
    found = gradients(lambda *leaves: way(*leaves).output, made, upstream)
    expected = gradients(lambda *leaves: way(*leaves).output, made, upstream.contiguous())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
