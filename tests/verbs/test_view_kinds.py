"""`view` on models that are no plain decoder or encoder of text, held against their own eager attention."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    BertConfig,
    PreTrainedTokenizerFast,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.attachment import AttachedLayer
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.view import View, view
from headwise.verbs.view.image import patch_tokens
from headwise.verbs.view.parts import layers_of
from headwise.verbs.view.render_json import to_json
from headwise.verbs.view.render_page import page_data

from .small_models import (
    HYBRID,
    MARIAN,
    SIZES,
    T5,
    TOKENS,
    VISION,
    describe_images,
    opened,
    small_model,
    word_tokenizer,
    write_image,
)

TEXT, WRITTEN = "the cat sat on the mat", "le chat dort bien"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer(ends=True)


@pytest.fixture(scope="module")
def marian(tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> OpenedModel:
    return opened(small_model("MarianMTModel", MARIAN), tmp_path_factory.mktemp("marian"), tokenizer)


@pytest.fixture
def vit(tmp_path: Path) -> OpenedModel:
    describe_images(tmp_path)
    return opened(small_model("ViTModel", VISION), tmp_path, None)


def eager(found: OpenedModel, **inputs: torch.Tensor) -> Any:
    before = found.model.config._attn_implementation
    found.model.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            return found.model(**inputs, output_attentions=True)
    finally:
        found.model.set_attn_implementation(before)


@pytest.mark.parametrize(
    ("kind", "settings"), [("MarianMTModel", MARIAN), ("T5ForConditionalGeneration", T5)]
)
@pytest.mark.parametrize(
    ("part", "attentions", "module"),
    [
        ("encoder", "encoder_attentions", ("self_attn", "SelfAttention")),
        ("decoder", "decoder_attentions", ("self_attn", "SelfAttention")),
        ("cross", "cross_attentions", ("encoder_attn", "EncDecAttention")),
    ],
)
def test_each_part_of_an_encoder_decoder_is_shown_under_its_own_name(
    *,
    kind: str,
    settings: dict[str, Any],
    part: Any,
    attentions: str,
    module: tuple[str, str],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    model = opened(small_model(kind, settings), tmp_path, tokenizer)
    found = view(model, TEXT, decoder_text=WRITTEN, part=part, rows=[-1, 1])
    read, written = [token.id for token in found.key_tokens or found.tokens], [0, 10, 11, 12, 13]
    ids = torch.tensor([read if part != "decoder" else [4, 5, 6, 7, 4, 9, 2]])
    outputs = eager(model, input_ids=ids, decoder_input_ids=torch.tensor([written]))
    expected = getattr(outputs, attentions)
    assert [maps.layer for maps in found.layers] == list(range(len(expected)))
    for maps, weights in zip(found.layers, expected, strict=True):
        assert maps.name.endswith(module)
        assert ("encoder" if part == "encoder" else "decoder") in maps.name
        np.testing.assert_allclose(maps.weights, weights[0].numpy(), atol=1e-5)
        np.testing.assert_allclose(
            maps.exact_weights, weights[0].numpy()[:, [1, found.exact_rows[1]]], atol=1e-5
        )
    texts = ["the", " cat", " sat", " on", " the", " mat", "</s>"]
    decoded = ["<pad>", "le", " chat", " dort", " bien"]
    assert [token.text for token in found.tokens] == (texts if part == "encoder" else decoded)
    assert (found.key_tokens is not None) == (part == "cross")
    assert [token.text for token in found.key_tokens or ()] == (texts if part == "cross" else [])
    assert (found.part, found.facts.causal) == (part, part == "decoder")
    probabilities = outputs.logits[0, -1].softmax(-1)
    assert found.next_tokens[0].probability == pytest.approx(float(probabilities.max()), abs=1e-5)
    header, blocks = page_data(found)
    assert (header["seq_len"], header["kv_len"]) == expected[0].shape[2:]
    assert blocks["thumbnails/0"].shape == expected[0].shape[1:]
    assert json.loads(json.dumps(to_json(found), allow_nan=False))["part"] == part


def test_cross_attention_is_shown_where_nothing_else_is_asked_for(marian: OpenedModel) -> None:
    found = view(marian, TEXT, decoder_text=WRITTEN)
    assert found.part == "cross"
    # Keys and values of 3 layers x 2 heads of 16, 2 bytes each, for one more token that is read.
    assert found.facts.kv_bytes_per_token == 3 * 2 * 2 * 16 * 2
    assert view(marian, TEXT, decoder_text=WRITTEN, part="encoder").facts.kv_bytes_per_token == 0


def test_without_a_text_the_decoder_reads_what_the_model_writes(marian: OpenedModel) -> None:
    said: list[str] = []
    found = view(marian, TEXT, part="decoder", notify=said.append)
    with torch.inference_mode():
        ids = torch.tensor([[4, 5, 6, 7, 4, 9, 2]])
        written = marian.model.generate(input_ids=ids, max_new_tokens=32, do_sample=False, num_beams=1)
    assert [token.id for token in found.tokens] == [token for token in written[0].tolist() if token != 2]
    assert said[:2] == ["small-marian writes up to 32 tokens", "running small-marian on 7 tokens"]


def test_a_model_that_cannot_write_is_told_with_the_way_out(
    marian: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**inputs: Any) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(marian.model, "generate", fail)
    with pytest.raises(
        ModelError, match=r"could not write a text of its own \(list index .*give its decoder a"
    ):
        view(marian, TEXT)


def test_a_decoder_text_that_is_too_long_is_refused_with_both_numbers(marian: OpenedModel) -> None:
    with pytest.raises(
        ArgumentError, match=r"for the decoder has 51 tokens and small-marian has positions for 41"
    ):
        view(marian, TEXT, decoder_text="le " * 50)
    with pytest.raises(ArgumentError, match=r"for the decoder: text is empty"):
        view(marian, TEXT, decoder_text="")


def test_a_decoder_without_a_start_is_refused(marian: OpenedModel) -> None:
    unsaid = {**T5, "decoder_start_token_id": None, "bos_token_id": None}
    model = small_model("T5ForConditionalGeneration", unsaid)
    with pytest.raises(ModelError, match=r"does not say what its decoder starts with: .*add it there"):
        view(replace(marian, model=model), TEXT, decoder_text=WRITTEN)


def test_tokens_beyond_the_vocabulary_of_the_decoder_are_refused(
    marian: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marian.model.config, "decoder_vocab_size", 11)
    with pytest.raises(
        ModelError, match=r"makes token 13 of the text for the decoder, and the model knows 11"
    ):
        view(marian, "the cat", decoder_text=WRITTEN)


def test_parts_and_decoder_texts_belong_to_encoder_decoders(minilm: OpenedModel) -> None:
    with pytest.raises(ArgumentError, match=r"part=cross was asked for, and minilm-l6 is no encoder-decoder"):
        view(minilm, TEXT, part="cross")
    with pytest.raises(
        ArgumentError, match=r"text for the decoder was given, and minilm-l6 is no encoder-dec"
    ):
        view(minilm, TEXT, decoder_text=WRITTEN)
    with pytest.raises(ArgumentError, match=r"part='middle' is none of encoder, decoder, cross"):
        view(minilm, TEXT, part="middle")  # type: ignore[arg-type]


def test_an_encoder_decoder_without_a_tokenizer_cannot_be_named(
    marian: OpenedModel, vit: OpenedModel
) -> None:
    class Config:
        is_encoder_decoder = True
        patch_size = 8

    class Model:
        main_input_name = "pixel_values"
        config = Config()

        def get_encoder(self) -> Any:
            return vit.model

    image = write_image(vit.folder / "image.png")
    with pytest.raises(
        UnsupportedError, match=r"has no tokenizer, so that what its decoder reads has no names"
    ):
        view(replace(vit, model=Model()), image=image, decoder_text=WRITTEN)


def test_an_image_becomes_a_class_token_and_patches_row_by_row(vit: OpenedModel) -> None:
    image = write_image(vit.folder / "image.png")
    found = view(vit, image=image, rows=[-1])
    assert found.image_grid == (3, 3)
    assert [token.text for token in found.tokens] == [
        "[class]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2", "2,0", "2,1", "2,2",
    ]  # fmt: skip
    assert [token.kind for token in found.tokens] == ["special"] + 9 * ["text"]
    # What the processor must have made of it, by hand: resized, to [0, 1], to [-1, 1].
    resized = Image.open(image).resize((24, 24), Image.Resampling.BILINEAR)
    pixels = torch.from_numpy(np.asarray(resized).astype(np.float32)).permute(2, 0, 1)[None] / 127.5 - 1
    for maps, weights in zip(found.layers, eager(vit, pixel_values=pixels).attentions, strict=True):
        np.testing.assert_allclose(maps.weights, weights[0].numpy(), atol=1e-4)
        np.testing.assert_allclose(maps.exact_weights, weights[0].numpy()[:, [9]], atol=1e-4)
    assert (found.text, found.exact_rows, found.next_tokens) == (str(image), (9,), ())
    assert page_data(found)[0]["image_grid"] == [3, 3]


def test_a_text_written_on_an_image_looks_at_its_patches(vit: OpenedModel) -> None:
    decoder = BertConfig(**SIZES, **TOKENS, is_decoder=True, add_cross_attention=True)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**VISION), decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    torch.manual_seed(3)
    model = VisionEncoderDecoderModel(config).eval()
    both = replace(vit, model=model, tokenizer=word_tokenizer(ends=True))
    image = write_image(vit.folder / "image.png")
    cross = view(both, image=image, decoder_text="le chat", rows=[-1])
    assert [token.text for token in cross.tokens] == ["<s>", "le", " chat"]
    assert [token.text for token in cross.key_tokens or ()][:3] == ["[class]", "0,0", "0,1"]
    assert (cross.image_grid, cross.layers[0].exact_weights.shape) == ((3, 3), (4, 1, 10))
    encoder = view(both, image=image, decoder_text="le chat", part="encoder")
    assert (encoder.image_grid, encoder.key_tokens, len(encoder.tokens)) == ((3, 3), None, 10)


def test_numbers_without_a_token_are_never_named_as_next(tmp_path: Path) -> None:
    settings = {**SIZES, **TOKENS, "max_position_embeddings": 64, "vocab_size": 997}
    model = small_model("LlamaForCausalLM", settings)
    found = view(opened(model, tmp_path, word_tokenizer(ends=False)), TEXT)
    assert len(found.next_tokens) == 5
    assert sum(token.probability for token in found.next_tokens) < 0.5


def test_the_tower_that_reads_what_was_given_is_shown(tmp_path: Path) -> None:
    describe_images(tmp_path)
    text = {**SIZES, **TOKENS, "max_position_embeddings": 64}
    model = small_model("CLIPModel", {"text_config": text, "vision_config": VISION, "projection_dim": 16})
    both = opened(model, tmp_path, word_tokenizer(ends=True))
    seen = view(both, image=write_image(tmp_path / "image.png"))
    assert (seen.image_grid, len(seen.tokens), seen.facts.causal) == ((3, 3), 10, False)
    read = view(both, TEXT)
    assert (read.image_grid, len(read.tokens)) == (None, 7)


@pytest.mark.parametrize(
    ("grid", "places", "expected"),
    [
        ((1, 2), 2, (["0,0", "0,1"], (1, 2))),
        ((1, 1), 3, (["[class]", "[extra 1]", "0,0"], (1, 1))),
        ((2, 2), 3, (["place 0", "place 1", "place 2"], None)),
        (None, 1, (["place 0"], None)),
    ],
)
def test_places_of_an_image_are_named(grid: Any, places: int, expected: Any) -> None:
    tokens, found = patch_tokens(grid, places)
    assert ([token.text for token in tokens], found) == expected


def test_an_image_that_cannot_be_read_is_refused(vit: OpenedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    text = vit.folder / "text.png"
    text.write_text("no image", encoding="utf-8")
    with pytest.raises(ArgumentError, match=r"image=.*text\.png cannot be read: .*give an image file"):
        view(vit, image=text)
    with pytest.raises(ArgumentError, match=r"image=.*gone\.png cannot be read: No such file or directory"):
        view(vit, image=vit.folder / "gone.png")
    cut = write_image(vit.folder / "cut.png")
    cut.write_bytes(cut.read_bytes()[:-500])
    with pytest.raises(ArgumentError, match=r"image=.*cut\.png cannot be read: .*give an image file"):
        view(vit, image=cut)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    for width in (31, 62):  # a warning of Pillow's, and an error
        large = write_image(vit.folder / f"{width}.png", width=width)
        with pytest.raises(ArgumentError, match=r"has more than 500 pixels.*make it smaller"):
            view(vit, image=large)


def test_a_folder_that_does_not_say_how_to_read_images_is_refused(vit: OpenedModel) -> None:
    image = write_image(vit.folder / "image.png")
    described = vit.folder / "preprocessor_config.json"
    described.write_text('{"image_processor_type": "NoSuchProcessor"}', encoding="utf-8")
    with pytest.raises(ModelError, match=r"the image processor of .* cannot be opened: "):
        view(vit, image=image)
    describe_images(vit.folder)
    described.write_text(
        described.read_text(encoding="utf-8").replace("0.5, 0.5, 0.5", "0.5"), encoding="utf-8"
    )
    with pytest.raises(ModelError, match=r"the image processor of small-vit failed on .*image\.png: "):
        view(vit, image=image)
    described.unlink()
    with pytest.raises(
        ModelError, match=r"has no preprocessor_config\.json, which says how an image becomes"
    ):
        view(vit, image=image)


def test_without_pillow_an_image_is_refused_with_the_way_to_get_it(
    vit: OpenedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"needs Pillow, which is not installed; pip install pillow"):
        view(vit, image=vit.folder / "image.png")


def test_what_does_not_fit_the_model_is_refused(vit: OpenedModel, minilm: OpenedModel) -> None:
    image = vit.folder / "image.png"
    for model, given, message in (
        (vit, {"text": TEXT}, r"small-vit reads an image, not a text; give one with --image FILE"),
        (vit, {}, r"small-vit reads an image and none was given; give one with --image FILE"),
        (minilm, {"image": image}, r"image=.*image\.png was given, and minilm-l6 reads text"),
        (minilm, {}, r"minilm-l6 reads text and none was given"),
    ):
        with pytest.raises(ArgumentError, match=message):
            view(model, **given)

    class Model:
        main_input_name = "input_features"

        class config:  # noqa: N801 (it stands in for an attribute)
            is_encoder_decoder = False

    with pytest.raises(UnsupportedError, match=r"reads input_features, and view shows models .*attach\(\)"):
        view(replace(minilm, model=Model()), TEXT)


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
