import dataclasses
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from headwise.errors import ArgumentError
from headwise.verbs.plan import Figure, Plan, plan
from headwise.verbs.plan.compute import BYTES_PER_ELEMENT
from headwise.verbs.plan.render_json import to_json
from headwise.verbs.plan.render_text import print_plan

EVERY_SIZE_DIFFERENT = {
    "d_model": 130,
    "num_heads": 6,
    "num_kv_heads": 2,
    "head_dim": 7,
    "value_head_dim": 11,
    "layers": 3,
    "context": 1301,
    "batch": 5,
    "dtype": "float32",
}
PLANS = [
    {"num_heads": 8, "d_model": 512, "context": 128},
    {"num_heads": 1, "d_model": 1, "context": 1, "dtype": "int8"},
    EVERY_SIZE_DIFFERENT,
    {**EVERY_SIZE_DIFFERENT, "bias": True},
    {"num_heads": 32, "num_kv_heads": 1, "head_dim": 128, "layers": 32, "dtype": "float8"},
]


def figures_of(part: Any) -> Iterator[Figure]:
    if isinstance(part, Figure):
        yield part
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from figures_of(getattr(part, field.name))


def evaluated(arithmetic: str) -> float:
    """Return what the arithmetic says, its words left out."""
    numbers_only = re.sub(r"[A-Za-z_]{2,}", "", re.sub(r"\bx\b", "*", arithmetic.replace(",", "")))
    assert re.fullmatch(r"[\d\s*+/()]+", numbers_only), numbers_only
    return eval(numbers_only)  # noqa: S307 - digits and operators only, as just asserted


def shown(planned: Plan, width: int = 80) -> str:
    stream = io.StringIO()
    print_plan(planned, Console(file=stream, width=width, markup=False, highlight=False, emoji=False))
    return stream.getvalue()


@pytest.mark.parametrize("sizes", PLANS)
def test_the_arithmetic_beside_each_number_gives_that_number(sizes: dict[str, Any]) -> None:
    figures = list(figures_of(plan(**sizes)))
    assert len(figures) == 23
    for figure in figures:
        assert evaluated(figure.arithmetic) == figure.value, figure


def test_numbers_of_the_published_example() -> None:
    planned = plan(num_heads=8, d_model=512, context=128)
    assert planned.parameters.query == Figure(262_144, "weights", "512 d_model x 8 heads x 64 head_dim")
    assert planned.parameters.one_layer == Figure(1_048_576, "weights", "4 x 262,144")
    assert planned.parameters.total.value == 1_048_576
    assert planned.query_key_products.dense.value == 8_388_608
    assert planned.query_key_products.causal.value == 512 * 128 * 129 // 2


def test_every_factor_of_the_totals() -> None:
    planned = plan(**EVERY_SIZE_DIFFERENT)
    assert planned.kind == "GQA"
    assert planned.parameters.total.value == 3 * 130 * (42 + 14 + 22 + 66)
    assert planned.query_key_products.dense.value == 3 * 5 * 42 * 1301**2
    assert planned.prefill_dense.projections.value == 2 * 3 * 5 * 1301 * 130 * (42 + 14 + 22 + 66)
    assert planned.prefill_causal.weighted_sum.value == 2 * 3 * 5 * 66 * (1301 * 1302 // 2)
    assert planned.decode_step.scores.value == 2 * 3 * 5 * 42 * 1301
    assert planned.kv_cache.bytes_per_token.value == 3 * 2 * (7 + 11) * 4
    assert planned.kv_cache.total.value == 3 * 2 * (7 + 11) * 4 * 1301 * 5


def test_flop_per_byte_is_what_a_decode_step_does_with_the_bytes_it_reads() -> None:
    planned = plan(**EVERY_SIZE_DIFFERENT)
    step = planned.decode_step
    done = step.scores.value + step.weighted_sum.value
    assert planned.decode_flop_per_byte.value == done / planned.kv_cache.total.value == 1.5


# FLOP on each byte of a 2-byte cache: published for these models.
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "expected"), [(32, 32, 1), (32, 8, 4), (64, 8, 8), (71, 1, 71)]
)
def test_flop_per_byte_of_real_models(num_heads: int, num_kv_heads: int, expected: int) -> None:
    planned = plan(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=64)
    assert planned.decode_flop_per_byte.value == expected


def test_biases_are_counted_in_the_parameters_only() -> None:
    without, with_biases = plan(**EVERY_SIZE_DIFFERENT), plan(**EVERY_SIZE_DIFFERENT, bias=True)
    assert with_biases.parameters.total.value - without.parameters.total.value == 3 * (42 + 14 + 22 + 130)
    assert with_biases.prefill_dense == without.prefill_dense


def test_the_width_follows_from_the_heads_when_it_is_not_given() -> None:
    planned = plan(num_heads=6, head_dim=7)
    assert planned.settings.d_model == 42
    assert planned.settings.derived == ("d_model", "num_kv_heads", "value_head_dim")
    assert plan(num_heads=6, d_model=42, num_kv_heads=6).settings.derived == ("head_dim", "value_head_dim")


@pytest.mark.parametrize(("dtype", "size"), BYTES_PER_ELEMENT.items())
def test_cache_bytes_follow_the_dtype(dtype: str, size: int) -> None:
    assert plan(num_heads=6, head_dim=7, dtype=dtype).kv_cache.bytes_per_token.value == 84 * size


def test_variants_set_other_kv_head_counts_side_by_side() -> None:
    planned = plan(num_heads=32, num_kv_heads=8, head_dim=128, layers=32, dtype="float16")
    found = {variant.num_kv_heads: variant for variant in planned.variants}
    assert list(found) == [32, 16, 8, 4, 2, 1]
    assert [variant.kind for variant in planned.variants] == ["MHA", "GQA", "GQA", "GQA", "GQA", "MQA"]
    assert [count for count, variant in found.items() if variant.is_planned] == [8]
    assert found[32].kv_bytes == 1_073_741_824
    assert found[8].kv_bytes == 268_435_456 == planned.kv_cache.total.value
    assert found[8].parameters == planned.parameters.total.value
    assert found[1].kv_bytes == 33_554_432
    assert found[1].kv_share == 1 / 32
    assert found[1].decode_flop_per_byte == 32


@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(5040, 9), (720_720, 1), (97, 97), (1, 1)])
def test_variants_stay_few_and_keep_both_ends_and_the_planned_one(num_heads: int, num_kv_heads: int) -> None:
    counts = [
        v.num_kv_heads for v in plan(num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=2).variants
    ]
    assert len(counts) <= 9
    assert {1, num_heads, num_kv_heads} <= set(counts)
    assert counts == sorted(set(counts), reverse=True)
    assert all(num_heads % count == 0 for count in counts)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_heads": 7, "d_model": 512}, r"num_heads=7 does not divide d_model=512.*use 4 .*or 8 "),
        ({"num_heads": 7}, r"neither d_model nor head_dim is given; pass d_model, or head_dim"),
        (
            {"num_heads": 8, "head_dim": 7, "num_kv_heads": 3},
            r"num_kv_heads=3 does not divide num_heads=8; use 1, 2",
        ),
        ({"num_heads": 8, "head_dim": 7, "layers": 0}, r"layers=0 must be at least 1"),
        ({"num_heads": 8, "head_dim": 7, "context": -1}, r"context=-1 must be at least 1"),
        ({"num_heads": 8, "head_dim": 7, "batch": 2.5}, r"batch=2\.5 is a float"),
        ({"num_heads": 8, "head_dim": 7, "context": 10**12}, r"context=1000000000000 is too large"),
        ({"num_heads": 2**20, "head_dim": 2**20}, r"d_model=1099511627776 is too large"),
        (
            {"num_heads": 8, "head_dim": 7, "dtype": "fp16"},
            r"dtype='fp16' is not known; use float64, float32, bfloat16, float16, float8 or int8",
        ),
    ],
)
def test_requests_that_make_no_sense_are_refused(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        plan(**sizes)


def test_json_holds_every_figure_with_its_arithmetic() -> None:
    planned = plan(**EVERY_SIZE_DIFFERENT)
    document = json.loads(json.dumps(to_json(planned)))
    assert document["layout"] == {
        "kind": "GQA",
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 7,
        "value_head_dim": 11,
        "group_size": 3,
    }
    assert document["settings"]["bytes_per_element"] == 4
    assert document["kv_cache"]["total"] == dataclasses.asdict(planned.kv_cache.total)
    assert document["prefill_flops"]["causal"]["scores"] == dataclasses.asdict(planned.prefill_causal.scores)
    assert [variant["num_kv_heads"] for variant in document["variants"]] == [6, 3, 2, 1]


@pytest.mark.parametrize("sizes", PLANS)
def test_the_terminal_shows_every_number_within_eighty_columns(sizes: dict[str, Any]) -> None:
    planned = plan(**sizes)
    text = shown(planned)
    assert max(map(len, text.splitlines())) <= 80
    one_layer_only = {planned.parameters.total} if planned.settings.layers == 1 else set()
    for figure in set(figures_of(planned)) - one_layer_only - {planned.decode_flop_per_byte}:
        assert f" {figure.value:,} " in text


def test_the_terminal_breaks_arithmetic_before_an_operator() -> None:
    wide = plan(num_heads=64, num_kv_heads=8, d_model=8192, layers=80, context=131_072, batch=16, bias=True)
    for line in shown(wide).split("Parameters")[1].split("The same attention")[0].splitlines():
        assert not line.rstrip().endswith((" x", " +", " /"))
        if line.startswith(" "):
            assert line.strip()[:2] in {"x ", "+ ", "/ "}


def test_the_terminal_names_what_was_assumed() -> None:
    text = shown(plan(num_heads=8, d_model=512, context=128))
    assert re.search(r"head_dim +64 +.*d_model / num_heads", text)
    assert re.search(r"layers +1 +default", text)
    assert re.search(r"context +128 *\n", text)
    assert re.search(r"dtype +bfloat16 \(2 B\) +default", text)
