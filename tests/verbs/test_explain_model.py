"""What `explain MODEL` finds in two real models and a toy, held against eager attention and by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from headwise.errors import ArgumentError
from headwise.models.opening.opened_model import OpenedModel, open_model
from headwise.verbs.explain_model import ModelTrace, explain_model
from headwise.verbs.explain_model.render_json import to_json

from .explain_told import TEXT, told
from .small_models import eager


@pytest.fixture(scope="module")
def toy() -> OpenedModel:
    return open_model("toy-induction")


def by_eager(opened_model: OpenedModel, found: ModelTrace) -> Any:
    return eager(opened_model, input_ids=torch.tensor([[token.id for token in found.tokens]]))


@pytest.mark.parametrize("name", ["trace", "encoder"])
def test_weights_are_those_of_eager_attention(name: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(name)
    own = by_eager(request.getfixturevalue({"trace": "smollm2", "encoder": "minilm"}[name]), found)
    expected = own.attentions[found.layer][0, found.head, found.position]
    np.testing.assert_allclose(found.row.weights, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.row.weights.sum(), 1, rtol=0, atol=1e-12)
    assert found.row.output_difference < 1e-5


def test_queries_and_keys_are_those_after_the_rotation(smollm2: OpenedModel, trace: ModelTrace) -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb  # noqa: PLC0415 (slow)

    inner, kept = smollm2.model.model, []
    attention = inner.layers[20].self_attn
    hook = attention.register_forward_pre_hook(
        lambda _, args, kwargs: kept.append(kwargs["hidden_states"]), with_kwargs=True
    )
    by_eager(smollm2, trace)
    hook.remove()
    count = len(trace.tokens)
    with torch.inference_mode():
        cos, sin = inner.rotary_emb(kept[0], torch.arange(count)[None])
        q, k, v = (
            projection(kept[0]).reshape(1, count, -1, 64).transpose(1, 2)
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
    assert (trace.kv_head, trace.num_heads, trace.num_kv_heads) == (1, 9, 3)
    for mine, own in ((trace.query, q[0, 4]), (trace.key, k[0, 1]), (trace.value, v[0, 1])):
        np.testing.assert_allclose(mine, own, rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["trace", "encoder"])
def test_what_heads_add_sums_to_what_the_block_gives(name: str, request: pytest.FixtureRequest) -> None:
    found: ModelTrace = request.getfixturevalue(name)
    total = found.added.sum(axis=0) + (0 if found.bias is None else found.bias)
    np.testing.assert_allclose(total, found.block, rtol=0, atol=1e-4)
    assert found.sum_difference < 1e-4
    assert (found.bias is None) == (name == "trace")


def test_one_head_adds_what_the_block_loses_without_it(smollm2: OpenedModel, trace: ModelTrace) -> None:
    layer, blocks = smollm2.model.model.layers[20].self_attn, []
    hooks = [
        layer.o_proj.register_forward_pre_hook(
            lambda _, args: torch.cat([args[0][..., :256], 0 * args[0][..., 256:320], args[0][..., 320:]], -1)
        ),
        layer.o_proj.register_forward_hook(lambda _, args, output: blocks.append(output)),
    ]
    by_eager(smollm2, trace)
    for hook in hooks:
        hook.remove()
    np.testing.assert_allclose(trace.block - blocks[0][0, -1].numpy(), trace.added[4], rtol=0, atol=1e-4)


def test_next_tokens_are_the_models_own(smollm2: OpenedModel, trace: ModelTrace) -> None:
    logits = by_eager(smollm2, trace).logits[0, -1].double()
    likeliest = logits.softmax(-1).topk(5)
    assert [token.id for token in trace.next_tokens] == likeliest.indices.tolist()
    np.testing.assert_allclose(
        [token.probability for token in trace.next_tokens], likeliest.values, rtol=0, atol=1e-4
    )
    assert trace.next_tokens[0].text == smollm2.tokenizer.decode([trace.next_tokens[0].id])


def test_the_logit_of_a_real_model_is_the_sum_of_its_parts(trace: ModelTrace) -> None:
    parts = trace.logit
    assert parts is not None
    assert parts.logit == trace.next_tokens[0].logit
    assert abs(parts.difference) < 1e-4
    assert parts.total == pytest.approx(parts.logit, abs=1e-4)
    assert (len(parts.layers), parts.biases_total, parts.constant) == (30, 0.0, 0.0)
    assert parts.residual_difference < 1e-2


def test_a_heads_direct_contribution_by_hand(smollm2: OpenedModel, trace: ModelTrace) -> None:
    model, parts = smollm2.model, trace.logit
    assert parts is not None
    unembedding = model.lm_head.weight[trace.next_tokens[0].id].detach().double().numpy()
    gain = model.model.norm.weight.detach().double().numpy()
    last = by_eager_before_norm(smollm2, trace)
    scale = 1 / np.sqrt((last**2).mean() + model.config.rms_norm_eps)
    assert parts.norm_scale == pytest.approx(scale, rel=1e-5)
    np.testing.assert_allclose(
        parts.layers[20].heads, (trace.added * gain * scale) @ unembedding, rtol=0, atol=1e-5
    )


def by_eager_before_norm(smollm2: OpenedModel, found: ModelTrace) -> Any:
    kept: list[Any] = []
    hook = smollm2.model.model.norm.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    by_eager(smollm2, found)
    hook.remove()
    return kept[0][0, -1].double().numpy()


def test_an_encoder_shows_its_heads_and_says_that_it_predicts_nothing(encoder: ModelTrace) -> None:
    assert (encoder.next_tokens, encoder.logit) == ((), None)
    assert encoder.no_logit is not None
    assert encoder.no_logit.startswith("minilm-l6 is an encoder: it predicts no next token")
    assert encoder.projection == "encoder.layer.2.attention.output.dense"
    text = told(encoder)
    assert "4. What each head of the layer adds" in text
    assert "5. The logit, part by part\nLeft out: minilm-l6 is an encoder" in text
    assert "likeliest" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 6}, r"^layer=6 does not exist; the attention layers of minilm-l6 are 0 to 5$"),
        ({"layer": -1}, r"^layer=-1 must be at least 0$"),
        ({"head": 12}, r"^head=12 does not exist in layer 2, which has 12 query heads; give 0 to 11$"),
        ({"head": 1.5}, r"^head=1\.5 is a float; pass an integer$"),
        (
            {"query": 9},
            r"^query=9 does not exist; the text has 9 tokens: give 0 to 8, or -9 to -1 from the end$",
        ),
        ({"query": -10}, r"^query=-10 does not exist"),
        ({"query": 1.0}, r"^query=1\.0 does not exist"),
        ({"text": ""}, r"^text is empty; give at least one word$"),
        ({"text": " \n"}, r"^text is only whitespace \(2 characters\)"),
    ],
)
def test_what_does_not_exist_is_refused(minilm: OpenedModel, options: dict[str, Any], message: str) -> None:
    asked = {"text": TEXT, "layer": 2, "head": 5, **options}
    with pytest.raises(ArgumentError, match=message):
        explain_model(minilm, asked.pop("text"), **asked)


def test_the_model_is_left_as_it_was(minilm: OpenedModel, encoder: ModelTrace) -> None:
    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in minilm.model.modules())

    before = hooks()
    assert to_json(explain_model(minilm, TEXT, layer=2, head=5, query=-6)) == to_json(encoder)
    assert hooks() == before
    assert minilm.model.config._attn_implementation != "headwise"


def test_the_induction_head_is_seen_at_work(toy: OpenedModel) -> None:
    found = explain_model(toy, "a b c a b", layer=1, head=2)
    # After the second "b" it looks at what followed the first one, and names it.
    assert [token.text for token in found.tokens[3:5]] == ["b", " "]
    assert found.row.weights[4] > 0.999
    assert found.logit is not None
    heads = {(one.layer, head): amount for one in found.logit.layers for head, amount in enumerate(one.heads)}
    assert max(heads, key=heads.__getitem__) == (1, 2)
    assert found.next_tokens[0].text == " "
