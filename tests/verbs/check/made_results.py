"""Results of `check` made by hand, for the tests of what shows and carries them."""

from headwise.verbs.check.asking import Form, Sizes
from headwise.verbs.check.result import (
    Caution,
    CheckResult,
    Convention,
    Explanation,
    Fault,
    Nearest,
    ProbeResult,
)

SCALE = Fault(
    "scale-missing",
    "The scores are not divided by sqrt(head_dim).",
    "Multiply query . key by head_dim ** -0.5 before the softmax.",
)
TILED = Fault(
    "kv-heads-tiled",
    "KV heads are repeated as a whole, so query head h reads KV head h % num_kv_heads.",
    "Repeat each KV head in place: key.repeat_interleave(group_size, dim=1).",
)
PROBES = (
    ProbeResult("plain", "normal numbers, no mask", 3.1e-7, 2.9e-6),
    ProbeResult("peaked", "peaked scores", 1.4e-6, 3.5e-6),
)
RIGHT = CheckResult(
    name="mha",
    form=Form.HEADS,
    sizes=Sizes(num_heads=4, num_kv_heads=2, head_dim=7, value_head_dim=5, d_model=28),
    is_right=True,
    error=1.4e-6,
    allowed=3.5e-6,
    conventions=(Convention("causal alignment", "lower_right"), Convention("empty rows", "0")),
    cautions=(Caution("empty-rows-nan", "A row that sees no key gives NaN.", "Give 0 there."),),
    explanations=(),
    nearest=None,
    searched=0,
    probes=PROBES,
)
WRONG = CheckResult(
    name="Attention",
    form=Form.PROJECTED,
    sizes=Sizes(num_heads=4, num_kv_heads=1, head_dim=7, value_head_dim=7, d_model=28),
    is_right=False,
    error=0.83,
    allowed=3.5e-6,
    conventions=(Convention("causal", "no"),),
    cautions=(),
    explanations=(Explanation((SCALE, TILED), 2.2e-7, 3.1e-6),),
    nearest=None,
    searched=412,
    probes=(PROBES[0], ProbeResult("peaked", "peaked scores", 0.83, 3.5e-6)),
)
UNKNOWN = CheckResult(
    name="odd",
    form=Form.WIDTH,
    sizes=Sizes(num_heads=4, num_kv_heads=4, head_dim=7, value_head_dim=7, d_model=28),
    is_right=False,
    error=float("inf"),
    allowed=3.5e-6,
    conventions=(),
    cautions=(),
    explanations=(),
    nearest=Nearest((SCALE,), 1, 0.4, 2.9e-6),
    searched=1412,
    probes=(ProbeResult("plain", "normal numbers, no mask", float("inf"), 2.9e-6), PROBES[1]),
)
