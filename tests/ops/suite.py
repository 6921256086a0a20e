"""The cases that every way into the operator is held to, and that every mutant must fail."""

from functools import cache

import torch

from ..attention_cases import Case, all_cases, laid_out


@cache
def cases(dtype: torch.dtype = torch.float32) -> list[Case]:
    """Return every mask with every option, in memory that holds NaN all around."""
    return [
        Case(
            case.name,
            *(laid_out(tensor, "sliced") for tensor in (case.query, case.key, case.value)),
            case.options,
        )
        for case in all_cases(dtype)
    ]
