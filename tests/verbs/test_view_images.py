"""`view` on models that read an image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    BertConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.opening.opened_model import OpenedModel
from headwise.verbs.view import view
from headwise.verbs.view.image import patch_tokens
from headwise.verbs.view.render_page import page_data

from .small_models import (
    SIZES,
    TOKENS,
    VISION,
    describe_images,
    eager,
    opened,
    small_model,
    word_tokenizer,
    write_image,
)

TEXT = "the cat sat on the mat"


@pytest.fixture
def vit(tmp_path: Path) -> OpenedModel:
    describe_images(tmp_path)
    return opened(small_model("ViTModel", VISION), tmp_path, None)


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


def test_an_encoder_decoder_without_a_tokenizer_cannot_be_named(vit: OpenedModel) -> None:
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
        view(replace(vit, model=Model()), image=image, decoder_text="le chat")
