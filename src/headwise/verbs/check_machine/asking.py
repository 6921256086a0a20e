"""One form of one case, executed as its line says, and judged."""

from __future__ import annotations

import warnings
from typing import Any

from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.case import Case
from headwise.verbs.check_machine.exact import Given, Results, by_convention, exact, given
from headwise.verbs.check_machine.judging import (
    IN_FLOAT32,
    LEAK,
    as_results,
    convention_of,
    furthest,
    leaks_only,
    with_rows,
)
from headwise.verbs.check_machine.result import Finding


class Question:
    """A case with its tensors and what is right, made once for all backends' forms."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.namespace: dict[str, Any] = {}
        execute("; ".join(case.setup()), self.namespace)
        self.given: Given = given(case, self.namespace)
        self.exact: Results = exact(case, self.given)

    def asked(self, backend: Backend, form: Form) -> Finding:
        """Return what came of one form."""
        namespace: dict[str, Any] = {}
        try:
            execute(form.source, namespace)
            found = as_results(namespace, self.exact)
        except backend.refusals as refusal:
            return self.finding(backend, form, verdict="cannot", reason=backend.gist(refusal))
        except Exception as fault:  # whatever a backend raises that is no refusal, it failed
            reason = f"raises {type(fault).__name__}: {backend.gist(fault)}"
            return self.finding(backend, form, verdict="wrong", reason=reason, line=form.source)
        finally:
            backend.tidy()
        return self._judged(backend, form, found)

    def finding(self, backend: Backend, form: Form, **told: Any) -> Finding:
        """Return a finding about this case."""
        return Finding(backend.name, self.case.group, self.case.name, form.name, **told)

    def _judged(self, backend: Backend, form: Form, found: Results) -> Finding:
        worst = furthest(found, self.exact, self.case.dtype)
        if worst.is_right:
            return self.finding(backend, form, verdict="right", error=worst.error, limit=worst.limit)
        convention = self._convention(found)
        return self.finding(
            backend,
            form,
            verdict="differs" if convention else "wrong",
            convention=convention,
            line=f"{form.source}; print({worst.printed})",
            found=worst.found,
            exact=worst.exact,
            error=worst.error,
            limit=worst.limit,
        )

    def _convention(self, found: Results) -> str | None:
        """Return the convention by which `found` is right, or None."""
        dtype = self.case.dtype
        if self.case.wants == "logsumexp":
            patched = with_rows(found, "logsumexp", self.given.empty, self.exact)
            if furthest(patched, self.exact, dtype).is_right:
                return "the logsumexp of an empty row is not -inf"
            found = patched
        convention = convention_of(found, by_convention(self.case, self.given, self.namespace), dtype)
        if convention is None and self.case.poisoned and leaks_only(found, self.exact, dtype):
            return LEAK
        if convention is None and dtype == "float64" and furthest(found, self.exact, "float32").is_right:
            return IN_FLOAT32
        return convention


def execute(source: str, namespace: dict[str, Any]) -> None:
    """Run a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what libraries say to their own users
        exec(source, namespace)  # noqa: S102 - what is run must be what is printed, and it is a constant of ours
