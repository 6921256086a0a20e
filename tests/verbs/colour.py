"""Colour arithmetic for the page tests, written apart from the page's own."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

RGB = tuple[int, int, int]


def parsed(css: str) -> RGB:
    red, green, blue = (int(part) for part in re.findall(r"\d+", css)[:3])
    return red, green, blue


def linear(rgb: RGB) -> NDArray[np.float64]:
    coded = np.array(rgb) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def luminance(rgb: RGB) -> float:
    return float(linear(rgb) @ [0.2126, 0.7152, 0.0722])


def contrast(one: RGB, other: RGB) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def oklab(rgb: RGB) -> NDArray[np.float64]:
    """Lightness, a, b after Ottosson 2020."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    mixed = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return mixed @ np.cbrt(cones @ linear(rgb))
