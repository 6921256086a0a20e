"""Masks read as one run of keys per row: always the same visible keys, and runs wherever there are runs."""

import gc
import itertools
import weakref

import pytest
import torch
from torch import Tensor

from headwise import masks
from headwise.errors import ArgumentError
from headwise.models.attachment import attach, interface, mask_reading
from headwise.models.attachment.mask_reading import REMEMBERED, MaskMemory, MaskReading, Runs, read

from .families import DECODERS, VISUAL, Family, family
from .test_families import EQUAL, by_kind, probe_of

SEQ_LEN, KV_LEN = 5, 7
SHAPE = (2, 3, SEQ_LEN, KV_LEN)
SIZES = masks.Sizes(*SHAPE)
LOWEST = torch.finfo(torch.float32).min
PADDED = {
    "input_ids": torch.stack([torch.arange(3, 16), torch.arange(40, 53)]),
    "attention_mask": torch.tensor([[1] * 13, [0] * 4 + [1] * 9]),
}


def causal(offset: int = KV_LEN - SEQ_LEN) -> Tensor:
    return torch.ones(SEQ_LEN, KV_LEN, dtype=torch.bool).tril(offset)


def padding(*lengths: int, left: bool = False) -> Tensor:
    """Boolean `[batch, 1, 1, kv_len]`."""
    real = torch.arange(KV_LEN) < torch.tensor(lengths)[:, None]
    return (real.flip(-1) if left else real)[:, None, None]


def keys(*seen: int) -> Tensor:
    """Boolean `[1, 1, 1, kv_len]`."""
    return torch.tensor([key in seen for key in range(KV_LEN)])[None, None, None]


OF_RUNS = {
    "causal": causal()[None, None],
    "causal from the first key": causal(0)[None, None],
    "a window": (causal() & ~causal(0))[None, None],
    "rows before the window are empty": (causal(-1) & ~causal(-3))[None, None],
    "right padding": padding(7, 3),
    "left padding and empty rows": causal() & padding(7, 2, left=True),
    "padding of every row": padding(7, 3).expand(-1, 3, SEQ_LEN, -1),
    "one text of two, expanded": causal()[None, None].expand(2, 3, -1, -1),
    "a cache with empty places": keys(0, 1, 2, 3),
    "nothing": torch.zeros(2, 1, SEQ_LEN, KV_LEN, dtype=torch.bool),
}
NOT_OF_RUNS = {
    "a gap in one row": causal()[None, None] & keys(0, 1, 3, 4, 5, 6),
    "a gap of one text": torch.cat([causal()[None, None], causal()[None, None] & keys(0, 2, 3, 4, 5, 6)]),
    "a rolling cache that came round": keys(0, 1, 5, 6),
    "heads that differ": torch.stack([causal(), causal(0), causal()])[None],
}


def hiding(mask: Tensor) -> Tensor:
    """The same mask as floats, expanded where it is."""
    axes = tuple(slice(1) if stride == 0 else slice(None) for stride in mask.stride())
    return torch.zeros(mask[axes].shape).masked_fill(~mask[axes], LOWEST).expand(mask.shape)


def visible_of(mask: masks.Mask | Tensor | None, sizes: masks.Sizes) -> Tensor:
    """What a mask lets through, `[batch, num_heads, seq_len, kv_len]`."""
    full = (sizes.batch, sizes.num_heads, sizes.seq_len, sizes.kv_len)
    resolved = masks.resolve(mask, sizes)
    visible = torch.from_numpy(resolved.intervals.visible(sizes.kv_len))[:, None].expand(full)
    for dense in resolved.dense:
        visible = visible & dense.tensor
    return visible


@pytest.mark.parametrize("name", OF_RUNS)
@pytest.mark.parametrize("as_float", [False, True])
def test_masks_of_runs_are_read_as_runs(name, as_float):
    mask = OF_RUNS[name]
    visible, added = read(hiding(mask) if as_float else mask, SIZES)
    assert isinstance(visible, Runs)
    assert added is None
    assert torch.equal(visible_of(visible, SIZES), mask.expand(2, 3, SEQ_LEN, KV_LEN))


@pytest.mark.parametrize("name", NOT_OF_RUNS)
def test_other_masks_stay_tensors(name):
    mask = NOT_OF_RUNS[name]
    visible, added = read(mask, SIZES)
    assert added is None
    assert torch.equal(visible, mask)


def test_of_all_rows_of_six_keys_exactly_the_runs_are_runs():
    for row in itertools.product([False, True], repeat=6):
        mask = torch.tensor(row)[None, None, None]
        visible, _ = read(mask, masks.Sizes(1, 1, 1, 6))
        is_run = "".join("x" if seen else " " for seen in row).strip(" ").count(" ") == 0
        if all(row):
            assert visible is None
        else:
            assert isinstance(visible, Runs) == is_run
            assert torch.equal(visible_of(visible, masks.Sizes(1, 1, 1, 6)), mask)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_mask_that_hides_nothing_is_none(kind):
    hides_nothing = torch.ones(2, 1, SEQ_LEN, KV_LEN) if kind == torch.bool else torch.zeros(1, 1, 1, KV_LEN)
    assert read(hides_nothing.to(kind), SIZES) == MaskReading(None, None)


def test_what_a_float_mask_adds_is_kept_apart_from_what_it_hides():
    added = torch.arange(1.0, SEQ_LEN * KV_LEN + 1).reshape(SEQ_LEN, KV_LEN)
    found = read(added.masked_fill(~causal(), LOWEST)[None, None], SIZES)
    assert torch.equal(found.added, added.masked_fill(~causal(), 0.0)[None, None])
    assert torch.equal(visible_of(found.visible, SIZES)[0, 0], causal())


def test_one_entry_may_stand_for_every_key():
    """Then a row sees all or nothing, and the tensor goes on as it is."""
    rows = torch.tensor([1, 0, 1, 1, 0], dtype=torch.bool)[None, None, :, None]
    visible, _ = read(rows, SIZES)
    assert torch.equal(visible_of(visible, SIZES), rows.expand(2, 3, -1, KV_LEN))


@pytest.mark.parametrize("shape", [(1, 1, SEQ_LEN, 6), (3, 1, SEQ_LEN, KV_LEN), (1, 1, 4, KV_LEN)])
def test_a_mask_of_other_sizes_is_refused_whatever_it_hides(shape):
    with pytest.raises(ArgumentError, match=r"mask has shape \(.*\), but (batch|seq_len|kv_len) is"):
        read(torch.ones(shape, dtype=torch.bool), SIZES)


def test_runs_say_which_keys_any_row_sees():
    seen = read(causal() & padding(7, 3, left=True), SIZES).visible.seen_keys(KV_LEN)
    assert seen.tolist() == [[True] * 7, [False] * 4 + [True] * 3]


def test_a_mask_is_read_once_while_it_stays_the_same():
    memory, mask = MaskMemory(), causal()[None, None]
    first = memory.read(mask, SHAPE)
    assert memory.read(mask, SHAPE) is first
    mask[..., 0] = False
    second = memory.read(mask, SHAPE)
    assert torch.equal(visible_of(second.visible, SIZES)[0, 0], mask[0, 0])
    with pytest.raises(ArgumentError, match="kv_len is 8, not 7"):
        memory.read(mask, (2, 3, SEQ_LEN, KV_LEN + 1))
    assert memory.read(mask, SHAPE) is second


def test_a_mask_that_would_not_tell_of_a_change_is_read_each_time():
    memory = MaskMemory()
    with torch.inference_mode():
        mask = causal()[None, None] & True
        assert mask.is_inference()
        memory.read(mask, SHAPE)
        mask[..., 0] = False
        assert torch.equal(visible_of(memory.read(mask, SHAPE).visible, SIZES)[0, 0], mask[0, 0])


def test_few_masks_are_kept_and_none_after_the_forward():
    memory = MaskMemory()
    given = [causal()[None, None] for _ in range(REMEMBERED + 1)]
    alive = [weakref.ref(mask) for mask in given]
    for mask in given:
        memory.read(mask, SHAPE)
    del given, mask
    gc.collect()
    assert [reference() is None for reference in alive] == [True] + [False] * REMEMBERED
    memory.forget()
    assert all(reference() is None for reference in alive)


@pytest.mark.parametrize("inference", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("kind", "masks_made"), [("LlamaForCausalLM", 1), ("Gemma2ForCausalLM", 2)])
def test_the_layers_of_a_forward_share_the_reading_of_their_mask(kind, masks_made, inference, monkeypatch):
    model, read_masks = family(kind).build(num_hidden_layers=4), []
    with attach(model), inference():
        monkeypatch.setattr(mask_reading, "read", lambda *given: read_masks.append(given[0]) or read(*given))
        model(**PADDED)
        assert len(read_masks) == masks_made
        model(**PADDED)
        assert len(read_masks) == 2 * masks_made


def test_no_mask_is_kept_when_its_forward_is_over(monkeypatch):
    model, read_masks = family("LlamaForCausalLM").build(), []
    with attach(model), torch.no_grad():
        monkeypatch.setattr(
            mask_reading, "read", lambda *given: read_masks.append(weakref.ref(given[0])) or read(*given)
        )
        model(**PADDED)
        gc.collect()
        assert [reference() for reference in read_masks] == [None]


class Watch:
    """Holds what each layer is told to see to the mask tensor that transformers handed over."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[masks.Mask | Tensor | None] = []
        self._call, self._function = interface.LayerCall, interface.attention_function
        monkeypatch.setattr(interface, "LayerCall", self._make_call)
        monkeypatch.setattr(interface, "attention_function", self._attend)

    def _attend(self, module, query, key, value, attention_mask, **keywords):
        self._handed = attention_mask
        return self._function(module, query, key, value, attention_mask, **keywords)

    def _make_call(self, **terms):
        call = self._call(**terms)
        if self._handed is not None:
            sizes = masks.Sizes(*call.query.shape[:3], call.key.shape[2])
            shown = self._handed if self._handed.dtype == torch.bool else self._handed > LOWEST
            full = (sizes.batch, sizes.num_heads, sizes.seq_len, sizes.kv_len)
            assert torch.equal(visible_of(call.mask, sizes), shown.expand(full))
            self.seen.append(call.mask)
        return call


@pytest.mark.parametrize("given", EQUAL, ids=by_kind)
def test_every_family_sees_the_keys_of_its_mask_and_all_masks_are_runs(given: Family, monkeypatch):
    model = given.build()
    inputs = probe_of(model)
    watch = Watch(monkeypatch)
    with attach(model), torch.no_grad():
        watch.seen.clear()
        model(**inputs)
    assert not [mask for mask in watch.seen if isinstance(mask, Tensor)]
    assert watch.seen or given in VISUAL  # what reads pictures only hands over no mask


@pytest.mark.parametrize(
    ("kind", "cache"),
    [
        (each.kind, cache)
        for each, cache in itertools.product(DECODERS, ["dynamic", "static"])
        if (each.kind, cache) != ("MiniMaxForCausalLM", "static")  # its linear attention has none
    ],
)
def test_every_step_of_generate_sees_the_keys_of_its_mask(kind, cache, monkeypatch):
    model = family(kind).build()
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    watch = Watch(monkeypatch)
    with attach(model) as heads:
        watch.seen.clear()
        model.generate(**PADDED, **options, cache_implementation=cache)
    assert len(watch.seen) == 8 * len(heads.layers)
    # MiniMax, whose cache tells no length, makes the mask of a step for one key, and broadcasts it.
    assert not [mask for mask in watch.seen if isinstance(mask, Tensor) and mask.shape[3] > 1]
