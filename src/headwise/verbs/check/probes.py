"""The questions that are asked: small inputs on which the known faults differ.

Sizes of batch and lengths are primes that no size of the subject equals, so that axes taken for one another
show, or raise. Inputs are normal, in three spreads of the scores: about 1; peaked, about 4; and scores of
hundreds or more, where 16-bit numbers and exponentials overflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headwise.verbs.check.asking import Form, Inputs, Projections, Role, Sizes, Subject
from headwise.verbs.check.expected import Expected
from headwise.verbs.check.recipe import Computation, Recipe

SPREAD, PEAKED, HOT, HUGE = 1.0, 4.0, 150.0, 30_000.0
WINDOW, SOFTCAP, SCALE = 3, 1.5, 0.37


@dataclass(frozen=True, eq=False)
class Probe:
    """One question.

    - name: its id; what: what is asked, in words
    - past: an earlier call, whose cache is handed on, or None
    - must_count: whether a recipe must fix some rows of the answer, so that none is taken for a match unseen
    - only_decided: whether only rows count that one key decides, since rounding decides the others
    - skips_empty: whether rows that see no key do not count
    - parts: the probes that ask for the same things one by one; only where they are answered is this asked,
      since a causal flag that is refused alone is but a hint beside a mask
    """

    name: str
    what: str
    inputs: Inputs
    past: Inputs | None = None
    must_count: bool = False
    only_decided: bool = False
    skips_empty: bool = False
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counts:
    """The sizes of the tokens of probes."""

    batch: int
    short: int
    long: int


def counts_beside(sizes: Sizes) -> Counts:
    """Return primes that are none of the subject's sizes."""
    taken = set(vars(sizes).values())
    batch = next(prime for prime in (2, 3, 5, 11, 13, 17) if prime not in taken)
    short, long = [prime for prime in (5, 7, 11, 13, 17, 19, 23) if prime not in taken | {batch}][:2]
    return Counts(batch, short, long)


class ProbeMaker:
    """Makes inputs of the subject's form whose scores have a chosen spread.

    What is declared is handed over in every question, where there is an argument for it.
    """

    def __init__(
        self, subject: Subject, readings: tuple[Projections, ...], expected: Expected, seed: int
    ) -> None:
        self.form, self.sizes, self.takes = subject.form, subject.sizes, subject.takes
        self._readings = readings
        self.counts = counts_beside(subject.sizes)
        self.random = torch.Generator().manual_seed(seed)
        self.dtype = readings[0].query.weight.dtype if readings else torch.float32
        unasked = {
            Role.CAUSAL: False,
            Role.DROPOUT: 0.0,
            Role.SCALE: expected.scale,
            Role.SOFTCAP: expected.softcap,
            Role.WINDOW: expected.window,
        }
        self._always = {
            role: value for role, value in unasked.items() if role in self.takes and value is not None
        }
        self._unit = 1.0
        if self.form is Form.PROJECTED:
            self._unit = self._unit_of_rows()

    @property
    def is_short(self) -> bool:
        """Whether it computes in 16 bits, in which scores of hundreds have no digits behind the point."""
        return torch.finfo(self.dtype).bits == 16

    def inputs(
        self,
        options: Mapping[Role, Any] | None = None,
        *,
        spread: float = SPREAD,
        seq_len: int | None = None,
        kv_len: int | None = None,
    ) -> Inputs:
        """Return normal inputs; the lengths are equal, unless `kv_len` is given."""
        seq_len = seq_len or self.counts.long
        query = self._drawn(Role.QUERY, seq_len)
        key = value = query
        separate = kv_len is not None or Role.KEY in self.takes
        if separate:
            key = value = self._drawn(Role.KEY, kv_len or seq_len)
            if Role.VALUE in self.takes:
                value = self._drawn(Role.VALUE, kv_len or seq_len)
        root = self._unit * spread**0.5
        query, key = query * root, (key * root if separate else query * root)
        if Role.VALUE not in self.takes:
            value = key
        query, key, value = (rows.to(self.dtype) for rows in (query, key, value))
        return Inputs(query, key, value, {**self._always, **(options or {})})

    def flags(self, *shape: int) -> Tensor:
        """Return random booleans with at least one True and one False in each row of the last axis."""
        drawn = torch.rand(*shape, generator=self.random)
        order = drawn.argsort(dim=-1)
        return (drawn > 0.45).scatter(-1, order[..., :1], True).scatter(-1, order[..., -1:], False)

    def added(self, length: int) -> Tensor:
        """Return a square float mask; each row has normal numbers, zeros and -inf."""
        kinds = torch.rand(length, length, generator=self.random).argsort(dim=-1) % 3
        numbers = self.normal(length, length)
        return numbers.masked_fill(kinds == 1, 0.0).masked_fill(kinds == 2, -torch.inf)

    def normal(self, *shape: int) -> Tensor:
        """Return normal numbers."""
        return torch.randn(*shape, generator=self.random)

    def _drawn(self, role: Role, length: int) -> Tensor:
        sizes, batch = self.sizes, self.counts.batch
        if self.form is Form.PROJECTED:
            maps = self._readings[0]
            of_role = {Role.QUERY: maps.query, Role.KEY: maps.key, Role.VALUE: maps.value}
            return self.normal(batch, length, of_role[role].weight.shape[1])
        heads = sizes.num_heads if role is Role.QUERY else sizes.num_kv_heads
        width = sizes.value_head_dim if role is Role.VALUE else sizes.head_dim
        if self.form is Form.HEADS:
            return self.normal(batch, heads, length, width)
        return self.normal(batch, length, heads * width)

    def _unit_of_rows(self) -> float:
        """Return what normal rows are multiplied by so that the scores have a spread of 1."""
        query = self._drawn(Role.QUERY, 64)
        key = self._drawn(Role.KEY, 64) if Role.KEY in self.takes else query
        value = self._drawn(Role.VALUE, 64) if Role.VALUE in self.takes else key
        plain = Inputs(query, key, value)
        computation = Computation(form=self.form, sizes=self.sizes, readings=self._readings, inputs=plain)
        spread = float(computation.products(Recipe()).std()) * self.sizes.head_dim**-0.5
        return spread**-0.5 if spread > 0 else 1.0


def probes_for(subject: Subject, expected: Expected, make: ProbeMaker) -> list[Probe]:
    """Return every question that a subject can be asked, the plainest first."""
    found = [
        Probe("plain", "normal inputs, as many keys as queries", make.inputs(), must_count=True),
        Probe("peaked", "scores with a spread of 4", make.inputs(spread=PEAKED)),
        Probe("hot", "scores of hundreds", make.inputs(spread=HOT), only_decided=make.is_short),
        Probe("huge", "query . key beyond the range of float16", make.inputs(spread=HUGE), only_decided=True),
    ]
    if expected.window is not None:
        longer = make.inputs(seq_len=expected.window + make.counts.short)
        found.append(Probe("beyond the window", "more keys than the window that was declared", longer))
    differ = subject.lengths_may_differ and Role.KEY in subject.takes
    if differ:
        found.append(Probe("more keys", "more keys than queries", _uneven(make, {})))
    found += _of_position(make, differ)
    found += _of_masks(make, differ)
    found += _of_scores(make)
    found += _mixed(make)
    found += _cached(make)
    return found


def _uneven(make: ProbeMaker, options: Mapping[Role, Any], *, seq_len: int | None = None) -> Inputs:
    return make.inputs(options, seq_len=seq_len or make.counts.short, kv_len=make.counts.long)


def _of_position(make: ProbeMaker, differ: bool) -> Iterator[Probe]:
    if Role.CAUSAL in make.takes:
        causal = {Role.CAUSAL: True}
        yield Probe("causal", "the causal flag", make.inputs(causal))
        if differ:
            yield Probe("causal, more keys", "the causal flag, more keys than queries", _uneven(make, causal))
            one = _uneven(make, causal, seq_len=1)
            yield Probe("causal, one query", "the causal flag, one query and many keys", one)
    if Role.WINDOW in make.takes:
        window = {Role.WINDOW: WINDOW, **_causal_if_taken(make)}
        yield Probe("window", f"a window of {WINDOW} keys", make.inputs(window))


def _causal_if_taken(make: ProbeMaker) -> dict[Role, Any]:
    return {Role.CAUSAL: True} if Role.CAUSAL in make.takes else {}


def _of_masks(make: ProbeMaker, differ: bool) -> Iterator[Probe]:
    short, long, batch = make.counts.short, make.counts.long, make.counts.batch
    if Role.MASK in make.takes:
        yield Probe("mask", "a boolean mask", make.inputs({Role.MASK: make.flags(long, long)}))
        added = make.inputs({Role.MASK: make.added(long)})
        yield Probe("float mask", "a float mask of numbers, zeros and -inf", added)
        if differ:
            uneven = _uneven(make, {Role.MASK: make.flags(short, long)})
            yield Probe("mask, more keys", "a boolean mask, more keys than queries", uneven)
        each = make.inputs({Role.MASK: make.flags(batch, 1, long, long)})
        yield Probe("mask of each text", "a boolean mask for each batch element", each)
    if Role.PADDING in make.takes:
        yield Probe("padding", "padded keys", make.inputs({Role.PADDING: make.flags(batch, long)}))


def _of_scores(make: ProbeMaker) -> Iterator[Probe]:
    long, sizes = make.counts.long, make.sizes
    if Role.BIAS in make.takes:
        bias = make.normal(1, sizes.num_heads, long, long)
        yield Probe("bias", "a bias of the scores", make.inputs({Role.BIAS: bias}))
    if Role.SCALE in make.takes:
        yield Probe("scale", f"a scale of {SCALE}", make.inputs({Role.SCALE: SCALE}))
    if Role.SOFTCAP in make.takes:
        yield Probe("softcap", f"scores bounded by {SOFTCAP}", make.inputs({Role.SOFTCAP: SOFTCAP}))


def _mixed(make: ProbeMaker) -> Iterator[Probe]:
    """Yield options that are handed over together, two at a time: their order shows."""
    long, batch, sizes = make.counts.long, make.counts.batch, make.sizes
    given: dict[str, dict[Role, Any]] = {
        "causal": {Role.CAUSAL: True},
        "mask": {Role.MASK: make.flags(long, long)},
        "padding": {Role.PADDING: make.flags(batch, long)},
        "bias": {Role.BIAS: make.normal(1, sizes.num_heads, long, long)},
        "softcap": {Role.SOFTCAP: SOFTCAP},
    }
    names = [name for name, options in given.items() if options.keys() <= make.takes]
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            both = make.inputs({**given[one], **given[other]})
            yield Probe(
                f"{one} and {other}", f"{one} and {other} at once", both, skips_empty=True, parts=(one, other)
            )


def _cached(make: ProbeMaker) -> Iterator[Probe]:
    if Role.CACHE not in make.takes:
        return
    for name, what, new in (
        ("one token, cached", "one token behind a cache", 1),
        ("three tokens, cached", "three tokens behind a cache", 3),
    ):
        whole = make.inputs(_causal_if_taken(make))
        old = _rows(whole, slice(None, -new))
        yield Probe(
            name,
            what,
            _rows(whole, slice(-new, None)),
            past=replace(old, options={**old.options, Role.CACHE: None}),
        )


def _rows(inputs: Inputs, kept: slice) -> Inputs:
    query, key, value = (rows[..., kept, :] for rows in (inputs.query, inputs.key, inputs.value))
    return replace(inputs, query=query, key=key, value=value)
