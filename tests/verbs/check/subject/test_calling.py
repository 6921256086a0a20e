"""One call: copies, modes, random numbers, warnings, axes and dtypes."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import ArgumentError
from headwise.verbs.check.asking import Inputs, Role

from .asking_it import inputs_for, subject
from .modules import NAMES, Named
from .test_forms import plain, tokens_first


def test_inputs_that_are_written_into_stay_as_they_were_and_it_is_told() -> None:
    def scales(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        query *= 2
        if mask is not None:
            mask.fill_(True)
        return plain(query, key, value)

    found = subject(scales)
    mask = torch.zeros(7, 11, dtype=torch.bool)
    inputs = inputs_for(found, mask=mask)
    before = inputs.query.clone()
    assert found.answer(inputs, axes="bhqd").changed == ("query", "mask")
    assert torch.equal(inputs.query, before)
    assert not mask.any()
    assert subject(plain).answer(inputs_for(subject(plain)), axes="bhqd").changed == ()


def test_nan_in_an_input_is_no_change() -> None:
    found = subject(plain)
    inputs = inputs_for(found)
    inputs.value[0, 0, 0] = torch.nan
    answer = found.answer(inputs, axes="bhqd")
    assert answer.changed == ()
    assert answer.output.isnan().any()


def test_modes_are_set_for_the_call_and_put_back() -> None:
    module = Named(NAMES[0])
    module.add_module("drop", nn.Dropout(0.5))
    module.register_forward_pre_hook(lambda this, given: modes.append((this.training, this.drop.training)))
    modes: list[tuple[bool, bool]] = []
    module.train()
    module.drop.eval()
    found = subject(module)
    modes.clear()
    inputs = inputs_for(found)
    found.answer(inputs, axes="bqd")
    found.answer(replace(inputs, training=True), axes="bqd")
    assert modes == [(False, False), (True, True)]
    assert (module.training, module.drop.training) == (True, False)


def test_no_gradient_is_kept() -> None:
    found = subject(Named(NAMES[0]))
    assert not found.answer(inputs_for(found), axes="bqd").output.requires_grad
    assert not found.projections()[0].query.weight.requires_grad


def noisy(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    noise = torch.rand(()) + np.random.rand() + random.random()  # noqa: NPY002, S311  # as users draw
    return plain(query, key, value) + noise.float()


def test_random_numbers_differ_from_call_to_call_and_are_the_same_the_next_time() -> None:
    def asked() -> list[float]:
        found = subject(noisy)
        inputs = inputs_for(found)
        return [float(found.answer(inputs, axes="bhqd").output.sum()) for _ in range(3)]

    first = asked()
    assert len(set(first)) == 3
    assert asked() == first


def test_the_random_states_of_others_are_left_alone() -> None:
    found = subject(noisy)
    inputs = inputs_for(found)
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002  # the global state is what is at stake
    random.seed(5)
    expected = (torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate())  # noqa: NPY002
    found.answer(inputs, axes="bhqd")
    assert torch.equal(torch.get_rng_state(), expected[0])
    assert np.array_equal(np.random.get_state()[1], expected[1])  # noqa: NPY002
    assert random.getstate() == expected[2]


def test_warnings_are_told_and_stop_nothing() -> None:
    def warns(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        warnings.warn("slow path", UserWarning, stacklevel=1)
        return plain(query, key, value)

    found = subject(warns)
    told = found.answer(inputs_for(found), axes="bhqd").warnings
    assert len(told) == 1
    assert told[0].startswith("UserWarning: slow path (")
    assert "test_calling.py:" in told[0]


def test_tensors_are_handed_over_in_the_axes_that_are_asked_for_and_turned_back() -> None:
    seen: list[tuple[int, ...]] = []

    def watches(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        seen.extend([tuple(q.shape), tuple(k.shape)])
        assert q.is_contiguous()
        return tokens_first(q, k, v)

    found = subject(watches)
    seen.clear()
    output = found.answer(inputs_for(found), axes="bqhd").output
    assert seen == [(2, 7, 6, 7), (2, 11, 2, 7)]
    assert output.shape == (2, 6, 7, 11)


@pytest.mark.parametrize(("axes", "form"), [("qbd", "heads"), ("bhqd", "projected")])
def test_axes_of_another_form_are_refused(axes: str, form: str) -> None:
    found = subject(plain if form == "heads" else Named(NAMES[0]))
    with pytest.raises(ArgumentError, match=rf"axes='{axes}' are not of .*use"):
        found.answer(inputs_for(found), axes=axes)


def test_an_option_that_is_not_taken_is_refused() -> None:
    found = subject(plain)
    with pytest.raises(ArgumentError, match=r"plain takes no causal, mask"):
        found.answer(inputs_for(found, mask=torch.ones(7, 11), causal=True), axes="bhqd")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_module_is_copied_into_the_dtype_of_what_it_is_asked(dtype: torch.dtype) -> None:
    module = Named(NAMES[0])
    found = subject(module)
    wide = inputs_for(found)
    inputs = Inputs(*(each.to(dtype) for each in (wide.query, wide.key, wide.value)))
    output = found.answer(inputs, axes="bqd").output
    assert output.dtype == dtype
    assert torch.allclose(output.float(), found.answer(wide, axes="bqd").output, atol=0.05)
    assert module.q_proj.weight.dtype == torch.float32


def test_a_module_that_refuses_to_be_copied_is_told() -> None:
    class Locked(Named):
        def __deepcopy__(self, memo: object) -> None:
            raise RuntimeError("locked")

    found = subject(Locked(NAMES[0]))
    inputs = inputs_for(found)
    with pytest.raises(Exception, match=r"copying Locked to torch.float64 raised RuntimeError: locked"):
        found.answer(replace(inputs, query=inputs.query.double()), axes="bqd")


def masks(*, rank: int) -> object:
    def attends(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if mask is not None:
            if mask.dim() != rank:
                raise ValueError(f"mask must have {rank} axes")
            scores = scores.masked_fill(~mask if rank == 4 else ~mask.unsqueeze(-3), -torch.inf)
        return scores.softmax(-1) @ value

    return attends


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_masks_are_handed_over_as_they_are(rank: int) -> None:
    found = subject(masks(rank=rank))
    assert Role.MASK in found.takes
    mask = torch.ones(7, 11, dtype=torch.bool).tril(2)
    shaped = {2: mask, 3: mask.expand(2, 7, 11), 4: mask.expand(2, 1, 7, 11)}
    answered = found.answer(inputs_for(found, mask=shaped[rank]), axes="bhqd")
    plain_mask = subject(masks(rank=2)).answer(inputs_for(found, mask=mask), axes="bhqd")
    assert torch.equal(answered.output, plain_mask.output)
    if rank != 2:
        with pytest.raises(Exception, match=rf"mask must have {rank} axes"):
            found.answer(inputs_for(found, mask=mask), axes="bhqd")


def test_a_mask_that_is_padding_is_told_from_one_over_queries_and_keys() -> None:
    def pads(x: Tensor, num_heads: int, mask: Tensor | None = None) -> Tensor:
        rows = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
        scores = rows @ rows.mT / rows.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -1e9)
        return (scores.softmax(-1) @ rows).transpose(1, 2).flatten(2)

    found = subject(pads)
    assert Role.PADDING in found.takes
    assert Role.MASK not in found.takes


@pytest.mark.parametrize("hides", [True, False])
def test_a_mask_that_must_be_given_hides_nothing_where_no_probe_has_one(hides: bool) -> None:
    def must(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return scores.masked_fill(mask if hides else ~mask, -1e9).softmax(-1) @ value

    found = subject(must)
    inputs = inputs_for(found)
    answered = found.answer(inputs, axes="bhqd").output
    assert torch.allclose(answered, plain(inputs.query, inputs.key, inputs.value), atol=1e-6)


def test_what_must_be_given_and_no_probe_has_says_nothing_of_the_kind() -> None:
    def strict(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, dropout_p: float, scale: float) -> Tensor:
        assert causal is False
        assert dropout_p == 0.0
        return torch.softmax(q @ k.mT * scale, -1) @ v

    found = subject(strict)
    inputs = inputs_for(found)
    assert torch.allclose(
        found.answer(inputs, axes="bhqd").output, plain(inputs.query, inputs.key, inputs.value), atol=1e-6
    )


def test_parameters_by_position_alone_and_sizes_of_the_call() -> None:
    seen: dict[str, object] = {}

    def positional(  # noqa: PLR0917  # a user's
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        head_dim: int,
        batch_size: int,
        seq_len: int,
        /,
        *,
        kv_len: int,
        n_rep: int,
        training: bool,
    ) -> Tensor:
        seen.update(
            mask=mask,
            head_dim=head_dim,
            batch=batch_size,
            tokens=(seq_len, kv_len),
            n_rep=n_rep,
            training=training,
        )
        return torch.softmax(q @ k.repeat_interleave(n_rep, 1).mT, -1) @ v.repeat_interleave(n_rep, 1)

    found = subject(positional)
    found.answer(replace(inputs_for(found), training=True), axes="bhqd")
    assert seen == {"mask": None, "head_dim": 7, "batch": 2, "tokens": (7, 11), "n_rep": 3, "training": True}
