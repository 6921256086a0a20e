"""Which layout fits: every one that the shapes allow is run on an input and held to the output."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from headwise.counts import checked_size
from headwise.errors import ArgumentError
from headwise.masks import Causal
from headwise.nn.layouts.conversion import as_tensor, check_state
from headwise.nn.layouts.detection import Detection, LayoutFit
from headwise.nn.layouts.forward import attend
from headwise.nn.layouts.judged import check_finite, checked_inputs, checked_output, checked_tolerance
from headwise.nn.layouts.layout import ROLES
from headwise.nn.layouts.reading import Given, read
from headwise.nn.layouts.table import LAYOUTS
from headwise.nn.layouts.weights import HeadWeights
from headwise.rope import Rope

_SKIPPED = {name for layout in LAYOUTS.values() for name in layout.skipped}
_ROLE_OF = {
    **{f"{role}{end}": f"{role}{end}" for role in ROLES for end in ("", "_bias")},
    **{name: role for layout in LAYOUTS.values() for role, name in layout.names.items()},
}


def detect_layout(
    weights: Mapping[str, Any],
    inputs: Any,
    output: Any,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    mask: Any = None,
    bias: Any = None,
    scale: float | None = None,
    rope: Rope | None = None,
    tolerance: float | None = None,
) -> Detection:
    """Say which layouts some weights can have, by what the layer gave for an input.

    The names decide nothing but the part a parameter plays: `query_key_value.weight` is tried as GPT-NeoX's,
    as Falcon's and as three blocks one after another. Each reading runs through `headwise.attention` in
    float64, with and without a causal mask.

    Args:
        weights: name to tensor or array, as in `read_weights`; other names than those of a known layout are
            renamed to the part they play: `query key value qkv out`, a bias `query_bias` and so on.
        inputs: what the layer was given, a tensor or array `[batch, seq_len, d_model]`; three for query, key
            and value.
        output: what it gave, after the output projection, `[batch, seq_len, out_dim]`.
        num_heads: query heads.
        num_kv_heads: held against what the shapes say, if given.
        mask: the mask the layer had, as in `headwise.attention`; None to try none and causal.
        bias: what was added to the scores, such as ALiBi, as in `headwise.attention`.
        scale: of the scores; `head_dim ** -0.5` by default.
        rope: rotary positions of the layer, of which base and rotary_dim count and the pairing is looked for;
            without it no layout is tried that keeps rotary pairs as neighbours.
        tolerance: largest error that fits, as a share of the largest number that the heads put into the
            output; by default the square root of the epsilon of the coarsest dtype given, 3.5e-4 for float32.

    Raises:
        ArgumentError: a name has no known part, a shape of inputs or output does not fit, or the output is
            nothing but the output bias, NaN or infinity.

    Example:
        >>> import torch
        >>> from headwise.nn.layouts import detect_layout
        >>> _ = torch.manual_seed(0)
        >>> layer = torch.nn.MultiheadAttention(12, 3, batch_first=True)
        >>> given = torch.randn(2, 5, 12)
        >>> found = detect_layout(layer.state_dict(), given, layer(given, given, given)[0], num_heads=3)
        >>> found.only().layouts, found.only().causal
        (('torch', 'phi3'), False)

    """
    if rope is not None and not isinstance(rope, Rope):
        raise ArgumentError(
            f"rope={rope!r} is a {type(rope).__name__}; pass a Rope, such as Rope(base=10000.0)"
        )
    given = _by_role(weights)
    three, output = checked_inputs(inputs), checked_output(output)
    size = _size_of_heads_share(output, given)
    dtypes = [tensor.dtype for tensor in (*three, output, *given.tensors.values())]
    coarsest = max(torch.finfo(dtype).eps for dtype in dtypes)
    limit = coarsest**0.5 if tolerance is None else checked_tolerance(tolerance)
    readings, refused = _readings(
        given,
        num_heads=checked_size("num_heads", num_heads),
        num_kv_heads=num_kv_heads,
        rope=rope,
    )
    masks = {None: mask} if mask is not None else {False: None, True: Causal()}
    tried: list[LayoutFit] = []
    for names, reading in readings:
        _check_inputs(reading, three, output)
        exact = reading.mapped(Tensor.double)
        for causal, tried_mask in masks.items():
            found = attend(
                exact,
                (three[0].double(), three[1].double(), three[2].double()),
                mask=tried_mask,
                bias=bias,
                scale=scale,
                rope=rope,
            )
            error = float((found - output.double()).abs().max()) / size
            tried.append(LayoutFit(tuple(names), causal, error, reading))
    tried.sort(key=lambda one: one.error)
    return Detection(tuple(tried), MappingProxyType(refused), limit)


def _by_role(weights: Mapping[str, Any]) -> Given:
    check_state("weights", weights)
    unknown = sorted(set(weights) - set(_ROLE_OF) - _SKIPPED)
    if unknown:
        raise ArgumentError(
            f"{', '.join(unknown)} belong to no known layout; rename each to the part it plays: "
            f"{', '.join(ROLES)}, or one of these with _bias"
        )
    names: dict[str, str] = {}
    for name in weights:
        role = _ROLE_OF.get(name)
        if role in names:
            raise ArgumentError(
                f"{names[role]} and {name} play the same part, {role}; give one layer's weights"
            )
        if role is not None:
            names[role] = name
    tensors = {role: as_tensor(name, weights[name]) for role, name in names.items()}
    for role, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ArgumentError(f"{names[role]} holds {tensor.dtype}; give the weights dequantised")
        check_finite(names[role], tensor)
    return Given(tensors, names)


def _readings(
    given: Given, *, num_heads: int, num_kv_heads: int | None, rope: Rope | None
) -> tuple[list[tuple[list[str], HeadWeights]], dict[str, str]]:
    """Return the different readings, each with the layouts that read so, and why others cannot."""
    readings: list[tuple[list[str], HeadWeights]] = []
    refused: dict[str, str] = {}
    for layout in LAYOUTS.values():
        if layout.interleaved_rotary and rope is None:
            refused[layout.name] = (
                f"layout {layout.name!r}: rotary pairs are neighbours, which only rope can show"
            )
            continue
        try:
            found = read(
                layout,
                given,
                num_heads=num_heads,
                num_kv_heads=num_kv_heads,
                rotary_dim=None if rope is None else rope.rotary_dim,
            )
        except ArgumentError as problem:
            refused[layout.name] = str(problem)
            continue
        same = next((names for names, reading in readings if reading.identical(found)), None)
        if same is None:
            readings.append(([layout.name], found))
        else:
            same.append(layout.name)
    return readings, refused


def _check_inputs(reading: HeadWeights, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    widths = (reading.d_model, reading.key.shape[2], reading.value.shape[2])
    found = tuple(given.shape[2] for given in inputs)
    if found != widths:
        raise ArgumentError(f"inputs are {found} wide, and the weights read {widths} (query, key, value)")
    wanted = (*inputs[0].shape[:2], reading.out.shape[2])
    if tuple(output.shape) != wanted:
        raise ArgumentError(
            f"output has shape {tuple(output.shape)}; from these inputs and weights it is {wanted}"
        )


def _size_of_heads_share(output: Tensor, given: Given) -> float:
    """Return the largest number that the heads put into the output; a large bias must not hide errors."""
    bias = given.tensors.get("out_bias")
    if bias is not None and tuple(bias.shape) != tuple(output.shape[2:]):
        name = given.names["out_bias"]
        raise ArgumentError(f"{name} has shape {tuple(bias.shape)}, and the output is {output.shape[2]} wide")
    share = output.double() if bias is None else output.double() - bias.double()
    size = float(share.abs().max())
    if size == 0:
        raise ArgumentError(
            "output is nothing but the output bias, which every layout gives; use a larger input"
        )
    return size
