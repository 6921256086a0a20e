"""`view` on models whose layers are not all alike, or not all attention."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import ArgumentError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.view import View, compute, view
from headwise.verbs.view.parts import layers_of
from headwise.verbs.view.render_json import to_json
from headwise.verbs.view.render_page import page_data

from .small_models import (
    HYBRID,
    SIZES,
    TOKENS,
    opened,
    small_model,
    word_tokenizer,
)

TEXT = "the cat sat on the mat"


def test_numbers_without_a_token_are_never_named_as_next(tmp_path: Path) -> None:
    settings = {**SIZES, **TOKENS, "max_position_embeddings": 64, "vocab_size": 997}
    model = small_model("LlamaForCausalLM", settings)
    found = view(opened(model, tmp_path, word_tokenizer(ends=False)), TEXT)
    assert len(found.next_tokens) == 5
    assert sum(token.probability for token in found.next_tokens) < 0.5


def test_a_hybrid_keeps_its_layers_numbers_and_names_what_is_not_recorded(tmp_path: Path) -> None:
    model = opened(small_model("JambaForCausalLM", HYBRID), tmp_path, word_tokenizer(ends=False))
    found = view(model, TEXT, layer=3)
    assert [(maps.layer, maps.name) for maps in found.layers] == [
        (1, "model.layers.1.self_attn"), (3, "model.layers.3.self_attn"),
    ]  # fmt: skip
    assert [module.name for module in found.unseen] == ["model.layers.0.mamba", "model.layers.2.mamba"]
    assert (found.facts.layers, found.focus_layer) == (4, 3)
    document = to_json(found)
    assert [layer["layer"] for layer in document["attention_layers"]] == [1, 3]
    assert document["not_recorded"][0] == {
        "name": "model.layers.0.mamba", "reason": "computes no softmax attention",
    }  # fmt: skip
    with pytest.raises(
        ArgumentError, match=r"layer=2 does not exist; small-jamba has attention heads in layers 1, 3"
    ):
        view(model, TEXT, layer=2)


def test_layers_of_different_head_counts_stand_beside_each_other(tmp_path: Path) -> None:
    found = uneven(tmp_path)
    assert [(maps.num_heads, maps.num_kv_heads) for maps in found.layers] == [(4, 2), (2, 1)]
    assert [(head.layer, head.head, head.kv_head) for head in found.heads] == [
        (0, 0, 0), (0, 1, 0), (0, 2, 1), (0, 3, 1), (1, 0, 0), (1, 1, 0),
    ]  # fmt: skip
    assert (found.facts.num_heads, found.facts.num_kv_heads) == (4, 2)
    header, blocks = page_data(found)
    assert [blocks[f"thumbnails/{layer['layer']}"].shape[0] for layer in header["layers"]] == [4, 2]


def uneven(folder: Path) -> View:
    """A model whose second layer lost half of its heads, as after pruning."""
    settings = {**SIZES, **TOKENS, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64}
    model = small_model("LlamaForCausalLM", settings)
    attention = model.model.layers[1].self_attn
    for name, kept in (("q_proj", 16), ("k_proj", 8), ("v_proj", 8)):
        projection = getattr(attention, name)
        projection.weight = torch.nn.Parameter(projection.weight[:kept])
    attention.o_proj.weight = torch.nn.Parameter(attention.o_proj.weight[:, :16])
    return view(opened(model, folder, word_tokenizer(ends=False)), TEXT)


@pytest.mark.parametrize(
    ("names", "kinds", "message"),
    [
        (
            ("text.layers.0.a", "vision.layers.0.a"),
            "self self",
            r"several stacks .* are both layer 0\).*attach",
        ),
        (("layers.0.a", "layers.1.a"), "self cross", r"layers\.1\.a looks at another sequence.*attach\(\)"),
    ],
)
def test_layers_that_no_one_view_can_show_are_refused(
    names: tuple[str, str], kinds: str, message: str, minilm: OpenedModel
) -> None:
    numbers = [int(name.split(".")[-2]) for name in names]
    layers = [
        AttachedLayer(number, name, 4, 4, 8, 8, kind)  # type: ignore[arg-type]
        for number, name, kind in zip(numbers, names, kinds.split(), strict=True)
    ]
    with pytest.raises(UnsupportedError, match=message):
        layers_of(minilm, layers, None)


def test_layers_that_do_not_read_all_tokens_are_refused(
    minilm: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*given: Any) -> Any:
        return tokens_of(*given)[0][:-1], None, None

    tokens_of = compute._tokens
    monkeypatch.setattr(compute, "_tokens", too_many)
    message = (
        r"encoder\.layer\.0\.attention\.self of minilm-l6 works on 4 places where there are 3 tokens.*attach"
    )
    with pytest.raises(UnsupportedError, match=message):
        view(minilm, "The bank")
