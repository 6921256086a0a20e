"""What an attention does where attention may do one thing or another is measured, and reported."""

from __future__ import annotations

from math import log

import pytest
import torch
from torch import Tensor

from headwise.errors import SubjectError
from headwise.rope import Rope
from headwise.verbs.check import check
from headwise.verbs.check.asking import Answer, Inputs, Role
from headwise.verbs.check.compute import check_subject
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.recipe import Recipe

from .made_subject import MadeSubject
from .recipe_subject import CACHED_CASE, EQUAL_SIZES, INPUTS, OPTIONS, ROWS_CASE, projections, subject_by


def found(subject, expected=None):
    result = check_subject(subject, expected or Expected())
    assert result.is_right, result
    return {convention.name: convention.value for convention in result.conventions}


def cautions(subject, expected=None):
    return {caution.name for caution in check_subject(subject, expected or Expected()).cautions}


@pytest.mark.parametrize("alignment", ["lower_right", "upper_left"])
def test_alignment(alignment):
    subject = subject_by(Recipe(alignment=alignment), takes=OPTIONS)
    assert found(subject)["causal"] == "by its flag"
    assert found(subject)["causal alignment"] == alignment
    assert ("causal-upper-left" in cautions(subject)) == (alignment == "upper_left")


@pytest.mark.parametrize("means", ["attend", "ignore"])
@pytest.mark.parametrize("padding", ["attend", "ignore"])
def test_polarity(means, padding):
    conventions = found(subject_by(Recipe(mask_means=means, padding_means=padding), takes=OPTIONS))
    assert conventions["boolean mask"].startswith(f"True means {means}")
    assert conventions["padding mask"].startswith(f"True means {padding}")
    assert conventions["float mask"].startswith("added to the scores")


def test_boolean_mask_of_one_who_adds():
    subject = subject_by(Recipe(mask_means="add"), takes=INPUTS | {Role.MASK})
    assert found(subject)["boolean mask"].startswith("added as 1")
    assert "mask-added-as-one" in cautions(subject)


@pytest.mark.parametrize(("reading", "words"), [("attend", "what is not 0 is seen"), ("ignore", "is hidden")])
def test_float_mask_read_as_boolean(reading, words):
    recipe = Recipe(mask_means=reading, float_mask=reading)
    subject = subject_by(recipe, takes=INPUTS | {Role.MASK})
    assert words in found(subject)["float mask"]
    assert "float-mask-as-boolean" in cautions(subject)


@pytest.mark.parametrize(
    ("empty", "words"), [("zero", "0"), ("nan", "NaN"), ("mean", "the mean of all values")]
)
@pytest.mark.parametrize("takes", [Role.MASK, Role.PADDING])
def test_rows_that_see_no_key(empty, words, takes):
    subject = subject_by(Recipe(empty=empty), takes=INPUTS | {takes})
    assert found(subject)["rows that see no key"] == words
    assert ("empty-rows-nan" in cautions(subject)) == (empty == "nan")


def test_rows_that_see_no_key_and_get_something_else():
    def ask(inputs: Inputs) -> Tensor:
        return plain(inputs, hidden_score=-1e4, adds=True)

    assert found(MadeSubject(ask, takes=INPUTS | {Role.MASK}))["rows that see no key"] == "another number"


def plain(inputs: Inputs, *, hidden_score: float = -torch.inf, adds: bool = False) -> Tensor:
    group = inputs.query.shape[1] // inputs.key.shape[1]
    key, value = (rows.repeat_interleave(group, dim=1) for rows in (inputs.key, inputs.value))
    scores = inputs.query @ key.mT * inputs.query.shape[-1] ** -0.5
    mask = inputs.options.get(Role.MASK)
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    elif mask is not None:
        scores = scores + ~mask * hidden_score if adds else scores.masked_fill(~mask, hidden_score)
    return torch.softmax(scores, dim=-1) @ value


def without_hidden(inputs: Inputs) -> Tensor:
    mask = inputs.options.get(Role.MASK)
    if mask is None or mask.dtype != torch.bool or mask.dim() != 2:
        return plain(inputs)
    seen = mask.any(dim=0)
    options = {**inputs.options, Role.MASK: mask[:, seen]}
    return plain(Inputs(inputs.query, inputs.key[..., seen, :], inputs.value[..., seen, :], options))


@pytest.mark.parametrize(("ask", "comes"), [(plain, True), (without_hidden, False)])
def test_nan_at_hidden_keys(ask, comes):
    subject = MadeSubject(ask, takes=INPUTS | {Role.MASK})
    words = "comes through" if comes else "does not come through"
    assert found(subject)["NaN at hidden keys"] == words
    assert ("masked-values-leak" in cautions(subject)) == comes


def test_axes_and_kv_heads():
    subject = subject_by(Recipe(), takes=INPUTS)
    assert found(subject)["axes"] == "[batch, heads, tokens, width]"
    assert found(subject)["KV heads"] == "query head h reads KV head h // 2"
    turned = MadeSubject(lambda inputs: subject.answer(inputs, axes="bqhd").output)
    assert found(turned)["axes"] == "[batch, tokens, heads, width]"


def test_scale_softcap_window_and_positions():
    described, _, _ = ROWS_CASE
    rope = Rope(pairing="interleaved")
    recipe = Recipe(causal=True, window=4, softcap=50.0, rope=rope)
    conventions = found(subject_by(recipe, **described))
    assert conventions["causal"] == "always"
    assert conventions["window"] == "4 keys, the row's own among them"
    assert conventions["softcap"] == "50"
    assert conventions["rotary positions"] == "interleaved, base 10000"
    assert conventions["scale"] == "head_dim ** -0.5"
    assert conventions["causal alignment"].startswith("not asked")


def test_fused_maps_and_the_order_of_heads():
    described, _, _ = ROWS_CASE
    fused = {**described, "readings": (projections(EQUAL_SIZES, "per head"),)}
    conventions = found(subject_by(Recipe(head_order="width major"), **fused))
    assert conventions["heads in a row"] == "interleaved"
    assert conventions["projections"] == "one, taken apart head by head"
    assert conventions["output projection"] == "one"


def test_causal_only_behind_a_cache():
    described, _, _ = CACHED_CASE
    conventions = found(subject_by(Recipe(causal_behind_cache=True), **described))
    assert conventions["causal"] == "no, but behind a cache"


def returning(base: float, mean: bool):
    def ask(inputs: Inputs) -> Answer:
        group = inputs.query.shape[1] // inputs.key.shape[1]
        scores = inputs.query @ inputs.key.repeat_interleave(group, dim=1).mT
        scores = scores * inputs.query.shape[-1] ** -0.5
        weights = torch.softmax(scores, dim=-1)
        output = weights @ inputs.value.repeat_interleave(group, dim=1)
        return Answer(
            output, weights.mean(dim=1) if mean else weights, torch.logsumexp(scores, dim=-1) / base
        )

    return MadeSubject(ask)


@pytest.mark.parametrize(("base", "words"), [(1.0, "natural"), (log(2.0), "base 2"), (3.0, "another number")])
@pytest.mark.parametrize("mean", [False, True])
def test_what_is_returned(base, words, mean):
    conventions = found(returning(base, mean))
    assert conventions["returned logsumexp"] == f"{words}, [batch, heads, queries]"
    kind = "the weights, their mean over the heads" if mean else "the weights of each head"
    assert conventions["returned weights"].startswith(kind)


def test_float16():
    assert found(MadeSubject(plain))["in float16"].startswith("overflows")

    def careful(inputs: Inputs) -> Tensor:
        rows = (rows.float() for rows in (inputs.query, inputs.key, inputs.value))
        return plain(Inputs(*rows, inputs.options)).to(inputs.query.dtype)

    assert found(MadeSubject(careful))["in float16"] == "no overflow"


class TestDropout:
    """A module whose weights are dropped from."""

    @staticmethod
    def subject(*, in_eval: bool = False, returns_dropped: bool = False, own: bool = False) -> MadeSubject:
        def dropped(weights: Tensor, training: bool) -> Tensor:
            if own and training:
                return weights * (torch.rand(weights.shape) > 0.4) / 0.6
            return torch.nn.functional.dropout(weights, 0.4, training)

        def ask(inputs: Inputs) -> Answer:
            key, value = (rows.repeat_interleave(2, dim=1) for rows in (inputs.key, inputs.value))
            weights = torch.softmax(inputs.query @ key.mT * inputs.query.shape[-1] ** -0.5, dim=-1)
            used = dropped(weights, inputs.training or in_eval)
            return Answer(used @ value, used if returns_dropped else weights)

        return MadeSubject(ask, is_module=True)

    def test_in_training_alone(self):
        conventions = found(self.subject())
        assert conventions["dropout in evaluation"] == "off"
        assert conventions["dropout in training"] == "at work"

    @pytest.mark.parametrize("own", [False, True])
    def test_in_evaluation(self, own):
        result = check_subject(self.subject(in_eval=True, own=own), Expected())
        assert result.fault_names == ("dropout-in-eval",)
        assert not result.is_right

    def test_returned_weights(self):
        result = check_subject(self.subject(returns_dropped=True), Expected())
        assert result.fault_names == ("weights-after-dropout",)

    def test_beside_another_fault(self):
        inner = self.subject(in_eval=True)

        def ask(inputs: Inputs) -> Answer:
            root = inputs.query.shape[-1] ** 0.5
            return inner.ask(Inputs(inputs.query * root, inputs.key, inputs.value, inputs.options))

        result = check_subject(MadeSubject(ask, is_module=True), Expected())
        assert result.fault_names == ("scale-missing and dropout-in-eval",)

    def test_other_randomness(self):
        def ask(inputs: Inputs) -> Tensor:
            return plain(inputs) + torch.rand(1)

        assert check_subject(MadeSubject(ask), Expected()).fault_names == ("unrepeatable",)


def test_heads_that_hold_the_same_numbers():
    described, expected, right = ROWS_CASE
    maps = projections(EQUAL_SIZES)
    for one in (maps.query, maps.key, maps.value):
        heads = one.weight.unflatten(0, (EQUAL_SIZES.num_heads, -1))
        heads[:] = heads[:1].clone()
    subject = subject_by(right, **{**described, "readings": (maps,)})
    assert check_subject(subject, expected).fault_names == ("heads-share-weights",)


def test_what_it_refuses_and_what_it_writes_into():
    def ask(inputs: Inputs) -> Answer:
        if Role.PADDING in inputs.options:
            raise SubjectError("made raised ValueError: no padding\nat all")
        return Answer(plain(inputs), changed=("query",))

    subject = MadeSubject(ask, takes=INPUTS | {Role.PADDING})
    result = check_subject(subject, Expected())
    assert result.is_right
    told = {caution.name: caution.what for caution in result.cautions}
    assert told["inputs-changed"] == "It writes into what it is given: query."
    assert told["question-refused"].endswith("padded keys: made raised ValueError: no padding")


def test_one_that_cannot_be_asked_at_all():
    def ask(inputs: Inputs) -> Tensor:
        raise SubjectError("made raised ValueError: never")

    with pytest.raises(SubjectError, match="never"):
        check_subject(MadeSubject(ask), Expected())


def test_a_flag_that_is_but_a_hint_beside_a_mask():
    layer = torch.nn.MultiheadAttention(35, 5, kdim=13, vdim=17, batch_first=True)
    result = check(layer, mask_means="ignore")
    assert result.is_right, result
    conventions = {convention.name: convention.value for convention in result.conventions}
    assert conventions["causal"] == "refused where its flag is all there is"
    assert conventions["boolean mask"].startswith("True means ignore")
    assert conventions["returned weights"].startswith("the weights, their mean over the heads")
