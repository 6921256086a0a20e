"""Which keys each row sees, and what is added to the scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from headwise.verbs.check.asking import Role
from headwise.verbs.check.recipe.knobs import CannotComputeError, Recipe


class Shown(NamedTuple):
    """`visible` boolean and `added` float, both broadcastable to `[batch, num_heads, seq_len, kv_len]`."""

    visible: Tensor
    added: Tensor


class Lengths(NamedTuple):
    """The sizes of one question; `past` keys came with an earlier call."""

    batch: int
    seq_len: int
    kv_len: int
    past: int


def shown(lengths: Lengths, options: Mapping[Role, Any], recipe: Recipe, dtype: torch.dtype) -> Shown:
    """Return what a recipe lets each row see, when it is handed these options."""
    visible = torch.ones(1, 1, lengths.seq_len, lengths.kv_len, dtype=torch.bool)
    found = Shown(visible, torch.zeros(1, 1, 1, 1, dtype=dtype))
    found = _by_position(found, lengths, options, recipe)
    if options.get(Role.MASK) is not None and recipe.masking != "ignored":
        found = _by_mask(found, lengths, options[Role.MASK], recipe)
    if options.get(Role.PADDING) is not None and recipe.padding != "ignored":
        found = _by_padding(found, lengths, options[Role.PADDING], recipe)
    return found


def _by_position(found: Shown, lengths: Lengths, options: Mapping[Role, Any], recipe: Recipe) -> Shown:
    causal = recipe.causal or bool(options.get(Role.CAUSAL)) or recipe.causality == "always"
    causal = causal or (recipe.causal_behind_cache and lengths.past > 0)
    causal = causal and recipe.causality != "ignored"
    window = recipe.window or options.get(Role.WINDOW)
    if recipe.windowing == "ignored":
        window = None
    # A window that stands in the place of the causal mask reaches ahead as far as back.
    takes_its_place = window is not None and recipe.windowing == "not causal"
    causal = causal and not takes_its_place
    rows, keys = torch.arange(lengths.seq_len)[:, None], torch.arange(lengths.kv_len)
    # How far a key lies ahead of its row's own place.
    ahead = keys - rows - _offset(lengths, recipe)
    visible, added = found
    if causal:
        edge = {"one ahead": 1, "hides self": -1}.get(recipe.causality, 0)
        past_or_self = ahead <= edge
        if recipe.causality in ("added", "hidden added"):
            ones = past_or_self if recipe.causality == "added" else ~past_or_self
            added = added + ones.to(added.dtype)
        else:
            visible = visible & (~past_or_self if recipe.causality == "inverted" else past_or_self)
    if window is not None:
        width = window + {"one more": 1, "one less": -1}.get(recipe.windowing, 0)
        visible = visible & (ahead > -width)
        if takes_its_place or (recipe.window_sides == "both" and not causal):
            visible = visible & (ahead < width)
    return Shown(visible, added)


def _offset(lengths: Lengths, recipe: Recipe) -> int:
    """Return the place of the first row among the keys."""
    # Behind a cache there is no choice: the new tokens stand after the old ones.
    lower_right = lengths.past > 0 or recipe.alignment == "lower_right"
    return lengths.kv_len - lengths.seq_len if lower_right and not recipe.upper_left else 0


def _by_mask(found: Shown, lengths: Lengths, mask: Tensor, recipe: Recipe) -> Shown:
    mask = _four_axes(mask)
    if recipe.masking == "transposed":
        if lengths.seq_len != lengths.kv_len:
            raise CannotComputeError("a mask that is not square has no transpose to use")
        mask = mask.mT
    means = _meaning(mask, recipe)
    if means == "other":
        raise CannotComputeError("what such a mask says is open")
    is_boolean = mask.dtype == torch.bool
    inverted = recipe.masking == "inverted" or (recipe.masking == "boolean inverted" and is_boolean)
    if means == "add":
        return _added(found, _inverted(mask) if inverted else mask)
    shows = (mask if is_boolean else mask != 0) ^ (means == "ignore") ^ inverted
    return found._replace(visible=found.visible & shows)


def _meaning(mask: Tensor, recipe: Recipe) -> str:
    if recipe.masking == "added":
        return "add"
    if mask.dtype == torch.bool:
        return recipe.mask_means
    as_boolean = {"nonzero attends": "attend", "nonzero ignores": "ignore"}
    return as_boolean.get(recipe.masking, recipe.float_mask)


def _inverted(mask: Tensor) -> Tensor:
    """Return what is added by a mask that hides what it showed, and shows what it hid."""
    if mask.dtype == torch.bool:
        return ~mask
    return torch.where(mask == -torch.inf, 0.0, -torch.inf)


def _added(found: Shown, mask: Tensor) -> Shown:
    mask = mask.to(found.added.dtype)
    hidden = mask == -torch.inf
    return Shown(found.visible & ~hidden, found.added + mask.masked_fill(hidden, 0.0))


def _by_padding(found: Shown, lengths: Lengths, padding: Tensor, recipe: Recipe) -> Shown:
    means = recipe.padding_means
    if recipe.padding == "inverted":
        means = "attend" if means == "ignore" else "ignore"
    if recipe.padding == "on queries":
        if lengths.seq_len != lengths.kv_len:
            raise CannotComputeError("padding of the keys does not fit the queries")
        marked = padding[:, None, :, None]
    else:
        marked = padding[:, None, None, :]
    if recipe.padding == "added":
        return found._replace(added=found.added + marked.to(found.added.dtype))
    return found._replace(visible=found.visible & (marked if means == "attend" else ~marked))


def check_fit(options: Mapping[Role, Any], shape: tuple[int, ...]) -> None:
    """Refuse what does not broadcast to the scores: axes were taken for one another.

    Raises:
        CannotComputeError: a mask, padding or bias has another size than the scores have there.

    """
    for role in (Role.MASK, Role.BIAS, Role.PADDING):
        given = options.get(role)
        if given is None:
            continue
        sizes = given[:, None, None, :].shape if role is Role.PADDING else _four_axes(given).shape
        for size, full in zip(sizes, shape, strict=True):
            if size not in (1, full):
                raise CannotComputeError(f"a {role.value} of {tuple(sizes)} does not fit {tuple(shape)}")


def _four_axes(mask: Tensor) -> Tensor:
    """Return a mask of `[q, k]`, `[b, q, k]` or four axes with all four."""
    return mask[:, None] if mask.dim() == 3 else mask.reshape((1,) * (4 - mask.dim()) + mask.shape)
