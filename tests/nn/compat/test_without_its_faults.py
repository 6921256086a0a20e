"""Faults that users of `torch.nn.MultiheadAttention` have reported, each with the right behaviour here.

`repository#n` is an issue or pull request on GitHub; most of those named here are open.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headwise.nn.compat import TorchMultiheadAttention

from .pairs import in_float64, pair

ASKED: tuple[dict[str, Any], ...] = (
    {"need_weights": False},
    {"need_weights": True},
    {"need_weights": True, "average_attn_weights": False},
)
every_mode = pytest.mark.parametrize(
    ("training", "with_grad"), [(True, True), (True, False), (False, True), (False, False)]
)


def module(embed_dim: int = 8, num_heads: int = 2, **options: Any) -> TorchMultiheadAttention:
    return pair(embed_dim, num_heads, **{"batch_first": True, **options}).ours


def test_one_empty_row_leaves_every_gradient_finite_and_is_the_output_bias() -> None:
    # pytorch#41508, open since 2020
    ours = module(1, 1, batch_first=False)
    given = torch.rand(4, 2, 1)
    padding = torch.tensor([[False] * 4, [False, False, True, True]])
    barred = torch.tensor([[0.0, 1, 1, 1], [0, 0, 1, 1], [1, 0, 0, 1], [1, 1, 0, 0]])
    barred = barred.masked_fill(barred.bool(), -torch.inf)
    output, weights = ours(given, given, given, key_padding_mask=padding, attn_mask=barred)
    assert torch.equal(output[3, 1], ours.out_proj.bias)
    assert torch.equal(weights[1, 3], torch.zeros(4))
    output[:2].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


@every_mode
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_a_fully_padded_element_is_the_bias_in_every_mode(
    training: bool, with_grad: bool, asked: dict[str, Any]
) -> None:
    # pytorch PR#190486, #160064: NaN in the fast path, 0 in another; #81077: lengths of 0
    ours, given = module().train(training), torch.randn(2, 3, 8)
    padding = torch.tensor([[False] * 3, [True] * 3])
    with torch.set_grad_enabled(with_grad):
        output, weights = ours(given, given, given, key_padding_mask=padding, **asked)
        alone = ours(given[:1], given[:1], given[:1])[0]
    assert torch.equal(output[1], ours.out_proj.bias.expand(3, 8))
    torch.testing.assert_close(output[:1], alone)
    assert weights is None or (weights[1] == 0).all()


def test_masks_and_dropout_together_give_no_nan() -> None:
    # pytorch#152028
    ours, given = module(dropout=0.5), torch.randn(2, 5, 8)
    padding = torch.tensor([[False] * 5, [True] * 5])
    output, weights = ours(given, given, given, key_padding_mask=padding, is_causal=True)
    assert output.isfinite().all()
    assert weights.isfinite().all()
    (output.sum() + weights.sum()).backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


@every_mode
def test_the_output_is_the_same_bits_whatever_weights_are_asked_for(training: bool, with_grad: bool) -> None:
    # torch has two ways, chosen by need_weights; dropout has to draw the same numbers too
    ours, given = module(dropout=0.4).train(training), torch.randn(2, 7, 8)
    masked = {"attn_mask": torch.randn(7, 7), "key_padding_mask": torch.rand(2, 7) < 0.3}
    found = []
    with torch.set_grad_enabled(with_grad):
        for asked in ASKED:
            torch.manual_seed(5)
            found.append(ours(given, given, given, **masked, **asked)[0])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_gradients_are_the_same_whatever_weights_are_asked_for() -> None:
    ours, given = module(dropout=0.4), torch.randn(2, 7, 8)
    found = []
    for asked in ASKED:
        torch.manual_seed(5)
        output, _ = ours(given, given, given, is_causal=True, **asked)
        found.append(torch.autograd.grad((output**2).sum(), list(ours.parameters())))
    for first, *others in zip(*found, strict=True):
        assert all(torch.equal(first, other) for other in others)


def test_returned_weights_sum_to_one_in_training_too() -> None:
    # pytorch#42929, #27968: after dropout they do not
    ours, given = module(dropout=0.5), torch.randn(2, 5, 8)
    for average in (True, False):
        weights = ours(given, given, given, average_attn_weights=average)[1]
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def test_dropout_drops_weights_in_training_and_nothing_in_evaluation() -> None:
    # pytorch#124464, #99293
    ours, given = module(dropout=0.9), torch.randn(2, 5, 8)
    assert not torch.equal(ours(given, given, given)[0], ours(given, given, given)[0])
    ours.eval()
    assert torch.equal(ours(given, given, given)[0], ours(given, given, given)[0])
    without = TorchMultiheadAttention(8, 2, batch_first=True)
    without.load_state_dict(ours.state_dict())
    assert torch.equal(ours(given, given, given)[0], without(given, given, given)[0])


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize(
    "added", [{}, {"add_bias_kv": True}, {"add_zero_attn": True, "add_bias_kv": True}], ids=str
)
def test_is_causal_alone_is_enough_and_composes_with_padding(
    added: dict[str, Any], asked: dict[str, Any]
) -> None:
    # pytorch#99282, #100709, #118972, #172338: refused, ignored, or a hint; with added keys another result
    two = pair(8, 2, batch_first=True, **added)
    given = torch.randn(2, 5, 8)
    upper = torch.ones(5, 5, dtype=torch.bool).triu(1)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    for masks in ({}, {"key_padding_mask": padding}):
        found = two.ours(given, given, given, is_causal=True, **masks, **asked)
        as_mask = two.ours(given, given, given, attn_mask=upper, **masks, **asked)
        both = two.ours(given, given, given, attn_mask=upper, is_causal=True, **masks, **asked)
        theirs = two.exact(
            *[given.double()] * 3,
            attn_mask=in_float64(upper),
            **{name: in_float64(mask) for name, mask in masks.items()},
            **asked,
        )
        for one, two_, three, exact in zip(found, as_mask, both, theirs, strict=True):
            if exact is not None:
                torch.testing.assert_close(one.double(), exact, rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(one, two_)
                torch.testing.assert_close(one, three)


def test_is_causal_beside_another_mask_obeys_both() -> None:
    # torch obeys the flag or the mask, depending on need_weights
    ours, given = module(), torch.randn(2, 5, 8)
    barred = torch.eye(5, dtype=torch.bool)
    barred[0, 0] = False
    both = barred | torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = ours(given, given, given, attn_mask=both)
    for asked in ASKED[:2]:
        found = ours(given, given, given, attn_mask=barred, is_causal=True, **asked)
        torch.testing.assert_close(found[0], expected[0])


def test_causal_order_leaks_nothing() -> None:
    # keras#23038, xformers#103: dropped with dropout, with weights asked for, or without a mask
    ours, given = module(dropout=0.3), torch.randn(1, 5, 8, requires_grad=True)
    for asked in ASKED:
        output, _ = ours(given, given, given, is_causal=True, **asked)
        (gradient,) = torch.autograd.grad(output[0, 2].sum(), given)
        assert (gradient[0, 3:] == 0).all()
        assert (gradient[0, :3] != 0).any(-1).all()


def test_a_rectangle_in_causal_order_is_aligned_to_the_upper_left_as_torchs_flag_is() -> None:
    ours, query, key = module(), torch.randn(1, 2, 8), torch.randn(1, 5, 8)
    weights = ours(query, key, key, is_causal=True)[1]
    assert (weights[0] > 0).tolist() == [
        [True, False, False, False, False],
        [True, True, False, False, False],
    ]
    weights = ours(key, query, query, is_causal=True)[1]
    assert (weights[0] > 0).tolist() == [[True, False], *[[True, True]] * 4]


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (2, 4, 4)])
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_a_mask_means_the_same_in_training_and_evaluation(shape: tuple[int, ...], kind: str) -> None:
    # pytorch#107084: a float mask became boolean in the fast path; #97409, #97605: rank 3 crashed in one mode
    ours, given = module(), torch.randn(2, 4, 8)
    mask = torch.randn(shape) if kind == "float" else torch.rand(shape) < 0.4
    trained = ours.train()(given, given, given, attn_mask=mask)
    with torch.no_grad():
        evaluated = ours.eval()(given, given, given, attn_mask=mask)
    for one, other in zip(trained, evaluated, strict=True):
        torch.testing.assert_close(one, other)


def test_the_lowest_number_is_a_bias_and_two_of_them_still_are() -> None:
    # pytorch#110213, Automodel PR#2658, transformers PR#17306: finfo.min + finfo.min = -inf
    ours, given = module(), torch.randn(1, 4, 8)
    lowest = torch.full((4, 4), torch.finfo(torch.float32).min)
    expected = ours(given, given, given)
    found = ours(given, given, given, attn_mask=lowest, key_padding_mask=lowest[:1])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_padding_may_hold_nan() -> None:
    # pytorch#101967: 0 * NaN
    ours, query, key = module(), torch.randn(1, 3, 8), torch.randn(1, 5, 8)
    expected = ours(query, key[:, :3], key[:, :3])[0]
    key[:, 3:] = torch.nan
    padding = torch.tensor([[False, False, False, True, True]])
    torch.testing.assert_close(ours(query, key, key, key_padding_mask=padding)[0], expected)


def test_the_forward_of_the_output_projection_is_called() -> None:
    # peft#761, pytorch#118165
    ours, given, called = module(), torch.randn(2, 5, 8), []
    ours.out_proj.register_forward_hook(lambda *_: called.append("out_proj"))
    for training in (True, False):
        with torch.no_grad():
            ours.train(training)(given, given, given)
    assert called == ["out_proj"] * 2


def test_weights_can_be_differentiated_twice_and_so_can_the_output() -> None:
    # pytorch#116350: no double backward without weights
    ours, given = module().double(), torch.randn(1, 3, 8, dtype=torch.float64, requires_grad=True)

    def both(each: Tensor) -> tuple[Tensor, Tensor]:
        return ours(each, each, each, is_causal=True)

    assert torch.autograd.gradcheck(both, [given])
    assert torch.autograd.gradgradcheck(both, [given])
    assert torch.autograd.gradgradcheck(
        lambda each: ours(each, each, each, is_causal=True, need_weights=False)[0], [given]
    )


def test_batch_first_is_the_same_as_length_first_transposed() -> None:
    # OmDet#19, pytorch#122959, #63560: attended across the batch
    ours, given = module(), torch.randn(2, 5, 8)
    other = TorchMultiheadAttention(8, 2)
    other.load_state_dict(ours.state_dict())
    turned = given.transpose(0, 1)
    torch.testing.assert_close(other(turned, turned, turned)[0].transpose(0, 1), ours(given, given, given)[0])
    alone = torch.cat([ours(each, each, each)[0] for each in given.split(1)])
    torch.testing.assert_close(ours(given, given, given)[0], alone)


def test_torchs_own_module_still_has_the_faults_that_matter_most() -> None:
    """If this fails, torch has mended them, and what the documentation says of it needs a look."""
    theirs, given = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 3, 8)
    padding = torch.tensor([[False] * 3, [True] * 3])
    assert theirs(given, given, given, key_padding_mask=padding)[0].isnan().any()
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        theirs(given, given, given, is_causal=True)
