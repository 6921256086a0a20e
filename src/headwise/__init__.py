"""headwise: see, test and trust every attention head.

An exact multi-head attention operator (MHA, GQA, MQA), and a workbench for the heads of real models. The
names below are loaded when first used, so that `import headwise` costs nothing and what needs no torch loads
none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwise.errors import ArgumentError, HeadwiseError, MismatchError, ModelError, UnsupportedError
from headwise.version import __version__

if TYPE_CHECKING:
    from headwise.cache import KVCache, RollingKVCache
    from headwise.evidence import Collect, Evidence
    from headwise.layout import HeadLayout
    from headwise.masks import Causal, CausalFrom, Dense, Lengths, Packed, Prefix, Window
    from headwise.models.attachment import attach
    from headwise.models.head_scores import head_scores
    from headwise.models.opening.opened_model import open_model
    from headwise.nn import MultiHeadAttention, compat
    from headwise.ops import attention, attention_with_logsumexp, choose, merge, observe
    from headwise.rope import Rope
    from headwise.verbs.bench.compute import bench
    from headwise.verbs.check import CheckResult, check
    from headwise.verbs.check_machine import check_machine
    from headwise.verbs.check_model import check_model
    from headwise.verbs.explain import explain_two_heads
    from headwise.verbs.explain.bank import explain_bank
    from headwise.verbs.explain_model import explain_model
    from headwise.verbs.plan import plan
    from headwise.verbs.view import view

_HOME_OF = {
    **dict.fromkeys(("Collect", "Evidence"), "headwise.evidence"),
    "HeadLayout": "headwise.layout",
    **dict.fromkeys(
        ("Causal", "CausalFrom", "Dense", "Lengths", "Packed", "Prefix", "Window"), "headwise.masks"
    ),
    **dict.fromkeys(("attention", "attention_with_logsumexp", "choose", "merge", "observe"), "headwise.ops"),
    **dict.fromkeys(("KVCache", "RollingKVCache"), "headwise.cache"),
    **dict.fromkeys(("MultiHeadAttention", "compat"), "headwise.nn"),
    "Rope": "headwise.rope",
    "attach": "headwise.models.attachment",
    "head_scores": "headwise.models.head_scores",
    "open_model": "headwise.models.opening.opened_model",
    "bench": "headwise.verbs.bench.compute",
    **dict.fromkeys(("CheckResult", "check"), "headwise.verbs.check"),
    "check_machine": "headwise.verbs.check_machine",
    "check_model": "headwise.verbs.check_model",
    "plan": "headwise.verbs.plan",
    "explain_bank": "headwise.verbs.explain.bank",
    "explain_model": "headwise.verbs.explain_model",
    "explain_two_heads": "headwise.verbs.explain",
    "view": "headwise.verbs.view",
}

__all__ = [
    "ArgumentError",
    "Causal",
    "CausalFrom",
    "CheckResult",
    "Collect",
    "Dense",
    "Evidence",
    "HeadLayout",
    "HeadwiseError",
    "KVCache",
    "Lengths",
    "MismatchError",
    "ModelError",
    "MultiHeadAttention",
    "Packed",
    "Prefix",
    "RollingKVCache",
    "Rope",
    "UnsupportedError",
    "Window",
    "__version__",
    "attach",
    "attention",
    "attention_with_logsumexp",
    "bench",
    "check",
    "check_machine",
    "check_model",
    "choose",
    "compat",
    "explain_bank",
    "explain_model",
    "explain_two_heads",
    "head_scores",
    "merge",
    "observe",
    "open_model",
    "plan",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
