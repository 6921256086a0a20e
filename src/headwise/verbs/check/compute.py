"""From the attention that is to be examined to a `CheckResult`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwise.counts import checked_size
from headwise.rope import Rope
from headwise.verbs.check.asking import Subject
from headwise.verbs.check.cautions import cautions_of
from headwise.verbs.check.comparing import worst
from headwise.verbs.check.conventions import Seen, conventions_of, see
from headwise.verbs.check.declared import undeclared
from headwise.verbs.check.examined import Examined
from headwise.verbs.check.examining import examine
from headwise.verbs.check.expected import Axes, Causal, Expected, MaskMeans
from headwise.verbs.check.faults import ENTRIES
from headwise.verbs.check.naming import Naming
from headwise.verbs.check.recipe import Recipe
from headwise.verbs.check.result import CheckResult, Departure, Explanation, Fault, ProbeResult
from headwise.verbs.check.subject import subject_of
from headwise.verbs.check.unseen import unseen_faults

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


def check_subject(subject: Subject, expected: Expected, *, seed: int = 0) -> CheckResult:
    """Return what is found of a subject that is ready to be asked."""
    examined = examine(subject, expected, seed)
    naming = None
    recipe = examined.search.closest_right() if examined.solution is None else examined.solution.recipe
    found = recipe
    if examined.solution is None and examined.steadiness.is_steady:
        naming = examined.search.named(ENTRIES)
        # What it does apart from its faults is seen with them.
        found = naming.explanations[0][1] if naming.explanations else recipe
    otherwise = undeclared(examined, expected) if examined.steadiness.is_steady else None
    if otherwise is not None:
        found = otherwise.recipe
    seen = see(examined, found)
    unseen = unseen_faults(examined, recipe, seen)
    departures = () if otherwise is None else otherwise.departures
    return _result(examined, _Findings(recipe, found, seen, naming, unseen, departures))


class _Findings(NamedTuple):
    """What is known of a subject.

    - right: the right recipe that comes nearest; found: the one that gives its numbers, faults and all
    """

    right: Recipe
    found: Recipe
    seen: Seen
    naming: Naming | None
    unseen: tuple[Fault, ...]
    departures: tuple[Departure, ...]


def _result(examined: Examined, findings: _Findings) -> CheckResult:
    right, found, seen, naming, unseen, departures = findings
    distances = examined.search.distances(right)
    furthest = worst(distances)
    subject = examined.subject
    return CheckResult(
        name=subject.name,
        form=subject.form,
        sizes=subject.sizes,
        is_right=examined.solution is not None and not unseen,
        error=furthest.error,
        allowed=furthest.allowed,
        conventions=conventions_of(examined, found, seen),
        cautions=cautions_of(examined, found, seen),
        explanations=_explanations(naming, unseen, examined),
        nearest=naming.nearest if naming is not None else None,
        searched=naming.searched if naming is not None else 0,
        probes=tuple(
            ProbeResult(question.probe.name, question.probe.what, *distance)
            for question, distance in zip(examined.questions, distances, strict=True)
        ),
        departures=departures,
    )


def _explanations(
    naming: Naming | None, unseen: tuple[Fault, ...], examined: Examined
) -> tuple[Explanation, ...]:
    """Return what explains the answers, each with the faults that no recipe computes beside it."""
    if naming is not None:
        return tuple(
            Explanation((*each.faults, *unseen), each.error, each.allowed) for each, _ in naming.explanations
        )
    if not unseen:
        return ()
    solution = examined.solution
    error, allowed = (0.0, 0.0) if solution is None else solution.distance
    return (Explanation(unseen, error, allowed),)
