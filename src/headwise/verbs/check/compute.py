"""From the attention that is to be examined to a `CheckResult`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwise.counts import checked_size, either
from headwise.errors import ArgumentError, SubjectError
from headwise.rope import Rope
from headwise.verbs.check.asking import Form, Subject
from headwise.verbs.check.choices import Choices
from headwise.verbs.check.comparing import Question, worst
from headwise.verbs.check.expected import Axes, Causal, Expected, MaskMeans
from headwise.verbs.check.faults import ENTRIES
from headwise.verbs.check.interview import Asked, interview, order_matters
from headwise.verbs.check.naming import Naming, Search, Solution
from headwise.verbs.check.probes import probes_for
from headwise.verbs.check.result import CheckResult, Explanation, Nearest, ProbeResult
from headwise.verbs.check.subject import subject_of

_AXES_OF = {Form.HEADS: ("bhqd", "bqhd"), Form.WIDTH: ("bqd", "qbd"), Form.PROJECTED: ("bqd", "qbd")}
_LARGEST_SEED = 2**32 - 1


def check(
    target: Any,
    *,
    num_heads: int | None = None,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    value_head_dim: int | None = None,
    d_model: int | None = None,
    axes: Axes | None = None,
    causal: bool | Causal | None = None,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    rope: Rope | None = None,
    mask_means: MaskMeans | None = None,
    arguments: Mapping[str, Any] | None = None,
    weights: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> CheckResult:
    """Hold an attention function or module against the reference, and name the fault if it is wrong.

    It is asked small questions, chosen so that the known faults differ on them. If its answers are right
    under some conventions, it is right, and they are reported. If not, every known fault, and then every pair
    of them, is put into the reference until the numbers are the same. What is left open may be anything; what
    is declared and not done is a fault.

    Args:
        target: a function, a module, or a class of modules.
        num_heads: query heads, where they cannot be seen; so are the other sizes.
        num_kv_heads: heads of key and value.
        head_dim: width of a head of query and key.
        value_head_dim: width of a head of value.
        d_model: width of a token's row.
        axes: order of the tensors' axes: `"bhqd"` or `"bqhd"` where it is given heads, `"bqd"` or `"qbd"`
            where it is given rows.
        causal: False, True (either alignment), `"lower_right"` or `"upper_left"`.
        window: how many keys a row sees, itself included.
        scale: multiplies `query . key`; `head_dim ** -0.5` by default.
        softcap: bound of the soft-capped scores.
        rope: rotary positions it applies itself.
        mask_means: what its mask says: True means `"attend"`, or `"ignore"`, or a float mask is added,
            `"add"`.
        arguments: what its parameters mean, by name, where their names do not tell: `{"m": "mask"}`.
        weights: the weights it is handed, by parameter name; drawn by default.
        seed: of the questions.

    Raises:
        ArgumentError: an argument is out of range, or the sizes cannot be found.
        SubjectError: the attention raised, or returned no tensor of the right shape.

    Example:
        >>> import torch
        >>> def unscaled(query, key, value):
        ...     return torch.softmax(query @ key.mT, dim=-1) @ value
        >>> check(unscaled, num_heads=4, head_dim=8).fault_names
        ('scale-missing',)

    """
    expected = Expected(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        value_head_dim=value_head_dim,
        d_model=d_model,
        axes=axes,
        causal=causal,
        window=window,
        scale=scale,
        softcap=softcap,
        rope=rope,
        mask_means=mask_means,
    )
    seed = checked_size("seed", seed, at_least=0, largest=_LARGEST_SEED)
    subject = subject_of(target, expected=expected, arguments=arguments, weights=weights)
    return check_subject(subject, expected, seed=seed)


@dataclass(frozen=True, eq=False)
class _Examined:
    """One subject asked in one order of axes."""

    axes: str
    asked: list[Asked]
    questions: list[Question]
    search: Search
    solution: Solution | None


def check_subject(subject: Subject, expected: Expected, *, seed: int = 0) -> CheckResult:
    """Return what is found of a subject that is ready to be asked."""
    examined = _examined(subject, expected, seed)
    naming = None
    if examined.solution is None:
        naming = examined.search.named(ENTRIES, subject.form)
    return _result(subject, examined, naming)


def _examined(subject: Subject, expected: Expected, seed: int) -> _Examined:
    """Ask in each order of axes that is possible, until the answers are right in one."""
    found: list[_Examined] = []
    refusals: list[SubjectError] = []
    for axes in _possible_axes(subject, expected):
        try:
            found.append(_asked_in(axes, subject, expected, seed))
        except SubjectError as fault:
            refusals.append(fault)
            continue
        if found[-1].solution is not None:
            return found[-1]
    if not found:
        raise refusals[0]
    return found[0]


def _possible_axes(subject: Subject, expected: Expected) -> tuple[str, ...]:
    known = _AXES_OF[subject.form]
    if expected.axes is not None:
        if expected.axes not in known:
            kinds = either([f'"{axes}"' for axes in known])
            raise ArgumentError(
                f'axes="{expected.axes}" does not fit {subject.name}, which is given '
                f"{'heads' if subject.form is Form.HEADS else 'rows'}; pass {kinds}"
            )
        return (expected.axes,)
    if subject.axes is not None:
        return (subject.axes,)
    # Rows come batch first unless something says otherwise; heads come in two orders, both in wide use.
    return known if subject.form is Form.HEADS else known[:1]


def _asked_in(axes: str, subject: Subject, expected: Expected, seed: int) -> _Examined:
    asked = interview(subject, probes_for(subject, expected, seed), axes)
    readings = subject.projections()
    questions = [
        Question(subject, readings, each.probe, each.answer.output)
        for each in asked
        if each.answer is not None
    ]
    boolean = any(question.probe.name == "mask" for question in questions)
    choices = Choices(
        subject,
        expected,
        readings=len(readings),
        boolean_masks=boolean,
        order_matters=order_matters(subject, asked[0].probe, axes),
    )
    search = Search(questions, choices)
    return _Examined(axes, asked, questions, search, search.right())


def _result(subject: Subject, examined: _Examined, naming: Naming | None) -> CheckResult:
    solution = examined.solution
    explanations: tuple[Explanation, ...] = ()
    nearest: Nearest | None = None
    recipe = solution.recipe if solution is not None else examined.search.closest_right()
    if naming is not None:
        explanations = tuple(explanation for explanation, _ in naming.explanations)
        nearest = naming.nearest
    distances = examined.search.distances(recipe)
    furthest = worst(distances)
    return CheckResult(
        name=subject.name,
        form=subject.form,
        sizes=subject.sizes,
        is_right=solution is not None,
        error=furthest.error,
        allowed=furthest.allowed,
        conventions=(),
        cautions=(),
        explanations=explanations,
        nearest=nearest,
        searched=naming.searched if naming else 0,
        probes=tuple(
            ProbeResult(question.probe.name, question.probe.what, *distance)
            for question, distance in zip(examined.questions, distances, strict=True)
        ),
    )
