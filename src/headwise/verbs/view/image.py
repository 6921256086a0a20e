"""An image as a vision model takes it, and what stands at each place of the sequence it becomes."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoImageProcessor, PreTrainedModel

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.opening.opened_model import OpenedModel
from headwise.models.quiet import quiet_libraries
from headwise.models.short_cause import short_cause
from headwise.models.tokens import Token

DESCRIPTIONS = ("preprocessor_config.json", "processor_config.json")
"""Where a model's folder says how an image becomes numbers."""
Grid = tuple[int, int]


def read_image(opened: OpenedModel, path: Path) -> torch.Tensor:
    """Return an image as the model's own processor prepares it, `[1, channels, height, width]`.

    Raises:
        ArgumentError: the file is missing, no image, or far too large.
        ModelError: the model's folder does not say how an image is prepared.
        UnsupportedError: Pillow, which reads image files, is not installed.

    """
    if importlib.util.find_spec("PIL") is None:
        raise UnsupportedError(
            "reading an image needs Pillow, which is not installed; pip install pillow, or headwise[images]"
        )
    prepare = _processor(opened)
    image = _opened(path)
    try:
        with quiet_libraries():
            pixels: torch.Tensor = prepare(images=image, return_tensors="pt")["pixel_values"]
    except Exception as error:
        raise ModelError(
            f"the image processor of {opened.name} failed on {path}: {short_cause(error)}"
        ) from error
    return pixels


def patch_grid(model: PreTrainedModel, pixels: torch.Tensor) -> Grid | None:
    """Return rows and columns of the patches that `model` cuts an image into, None where it names none."""
    config = model.get_encoder().config if model.config.is_encoder_decoder else model.config
    size = getattr(config, "patch_size", None)
    sides = (size, size) if isinstance(size, int) else size
    if not isinstance(sides, list | tuple) or len(sides) != 2 or pixels.ndim != 4:
        return None
    return pixels.shape[2] // int(sides[0]), pixels.shape[3] // int(sides[1])


def patch_tokens(grid: Grid | None, places: int) -> tuple[tuple[Token, ...], Grid | None]:
    """Say what stands at each of the places that an image became: class token and the like, then patches.

    Args:
        grid: rows and columns of patches, or None where the model names none.
        places: how many places there are.

    Returns:
        One token for each place, and the grid; None for the grid where the places are no patches, as after a
        pooling.

    Example:
        >>> tokens, grid = patch_tokens((1, 2), 3)
        >>> [token.text for token in tokens]
        ['[class]', '0,0', '0,1']

    """
    extra = -1 if grid is None else places - grid[0] * grid[1]
    if grid is None or extra < 0:
        return tuple(Token(place, f"place {place}", "text") for place in range(places)), None
    names = [("[class]" if place == 0 else f"[extra {place}]", True) for place in range(extra)]
    names += [(f"{row},{column}", False) for row in range(grid[0]) for column in range(grid[1])]
    return tuple(
        Token(place, name, "special" if special else "text") for place, (name, special) in enumerate(names)
    ), grid


def _processor(opened: OpenedModel) -> Callable[..., Any]:
    if not any((opened.folder / name).is_file() for name in DESCRIPTIONS):
        raise ModelError(
            f"{opened.folder} has no {DESCRIPTIONS[0]}, which says how an image becomes numbers; copy it "
            "there from where the model came"
        )
    try:
        with quiet_libraries():
            # By Pillow, which is checked for, whether or not torchvision is there: the same image, the same
            # numbers.
            found: Callable[..., Any] = AutoImageProcessor.from_pretrained(
                opened.folder, local_files_only=True, trust_remote_code=False, backend="pil"
            )
    except Exception as error:
        raise ModelError(
            f"the image processor of {opened.folder} cannot be opened: {short_cause(error)}"
        ) from error
    return found


def _opened(path: Path) -> Any:
    # Pillow is no dependency: only whoever gives an image needs it.
    from PIL import Image, ImageOps  # noqa: PLC0415 - an extra, which only images need

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                return ImageOps.exif_transpose(image).convert("RGB")
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise ArgumentError(
            f"image={path} has more than {Image.MAX_IMAGE_PIXELS:,} pixels, and a model reads some 100,000; "
            "make it smaller"
        ) from error
    except (OSError, ValueError, SyntaxError) as error:
        cause = getattr(error, "strerror", None) or short_cause(error)
        raise ArgumentError(
            f"image={path} cannot be read: {cause}; give an image file, such as a PNG or a JPEG"
        ) from error
