"""What runs in a model: which attention layers there are, and whether each one goes through the interface.

Nothing here knows a family. During one forward every module entry, every call of the attention function and
every softmax outside it are written down; from that record follow the layers, their numbers, and the layers
that compute attention behind the interface's back.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.errors import UnsupportedError
from headwise.models.attachment.layer_call import LayerCall

Kind = Literal["self", "cross"]
SOFTMAX_OPERATORS = re.compile(
    r"aten::(_safe_softmax|_softmax|_scaled_dot_product|_flash_attention|_efficient_attention"
    r"|_native_multi_head|_transformer_encoder_layer)"
)
PATH_NUMBER = re.compile(r"(?:^|(?<=\.))\d+(?=\.|$)")
"""A module's number in a path, as in `layers.3.self_attn`."""
CROSS_ARGUMENTS = ("encoder_hidden_states", "key_value_states")


@dataclass(frozen=True)
class AttachedLayer:
    """One attention layer that is recorded.

    - layer: its `layer_idx`, or where the family has none, the number in its path, or its place in its stack
    - name: the path of its module in the model
    - num_heads, num_kv_heads, head_dim, value_head_dim: as they arrive at the attention call
    - kind: `"self"`, or `"cross"` where keys come from another sequence
    """

    layer: int
    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    kind: Kind

    @property
    def group_size(self) -> int:
        """The number of query heads that read one KV head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True)
class Unseen:
    """A module that mixes tokens, or could, and is not recorded: its path and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SeenCall:
    """One call of the attention function: the path of its module, and its sizes."""

    name: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int
    kind: Kind


class Trace:
    """The record of one forward of `model`."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = dict(model.named_modules())
        self.entered: Counter[str] = Counter()
        self.calls: list[SeenCall] = []
        self.foreign: dict[str, str] = {}
        self._names = {module: name for name, module in self.modules.items()}
        self._stack: list[str] = []
        self._cross: set[str] = set()
        self._answering = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record what runs inside."""
        with ExitStack() as cleanup:
            for module in self.modules.values():
                for handle in (
                    module.register_forward_pre_hook(self._enter, with_kwargs=True),
                    module.register_forward_hook(self._leave, always_call=True),
                ):
                    cleanup.callback(handle.remove)
            cleanup.enter_context(_SoftmaxWatch(self))
            yield

    @contextmanager
    def answering(self, module: nn.Module, call: LayerCall) -> Iterator[None]:
        """Record one call of the attention function; what runs inside is ours."""
        name = self._names[module]
        rectangular = call.query.shape[2] != call.key.shape[2]
        self.calls.append(
            SeenCall(
                name,
                num_heads=call.query.shape[1],
                num_kv_heads=call.key.shape[1],
                head_dim=call.query.shape[3],
                value_head_dim=call.value.shape[3],
                kind="cross" if rectangular or name in self._cross else "self",
            )
        )
        self._answering = True
        try:
            yield
        finally:
            self._answering = False

    def saw_softmax(self, operator: str) -> None:
        """Record a softmax that ran outside the attention function, in the attention module around it."""
        if self._answering:
            return
        around = next((name for name in reversed(self._stack) if self.is_attention(name)), None)
        if around is not None:
            self.foreign.setdefault(around, operator)

    def is_attention(self, name: str) -> bool:
        """Return whether the module's class calls itself attention."""
        return "attention" in type(self.modules[name]).__name__.lower()

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = self._names[module]
        self.entered[name] += 1
        self._stack.append(name)
        if any(kwargs.get(argument) is not None for argument in CROSS_ARGUMENTS):
            self._cross.add(name)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._stack.pop()


class _SoftmaxWatch(TorchDispatchMode):
    """Tells a trace about every softmax, whoever computes it."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if SOFTMAX_OPERATORS.match(func.name()):
            self._trace.saw_softmax(func.name())
        return func(*args, **(kwargs or {}))


def survey(family: str, trace: Trace) -> tuple[tuple[AttachedLayer, ...], tuple[Unseen, ...]]:
    """Return the attention layers in the order in which they ran, and what else may mix tokens.

    Raises:
        UnsupportedError: an attention layer never called the attention function, or called it in pieces.

    """
    called = Counter(call.name for call in trace.calls)
    bypasses = {
        name: operator for name, operator in trace.foreign.items() if not _has_call_inside(name, called)
    }
    poolers = {name for name in bypasses if not PATH_NUMBER.search(name)}
    _refuse_bypasses(family, {name: bypasses[name] for name in bypasses if name not in poolers}, called)
    for name, count in called.items():
        if count != trace.entered[name]:
            raise UnsupportedError(
                f"{family} cuts the input of {name} into pieces ({count} attention calls in "
                f"{trace.entered[name]} forwards of it); headwise records layers that attend once in each"
            )
    unseen = [
        Unseen(name, "attention outside the numbered layers, behind the interface")
        for name in sorted(poolers)
    ]
    return _numbered(trace), (*unseen, *_other_mixers(trace, called, poolers))


def _refuse_bypasses(family: str, bypasses: dict[str, str], called: Counter[str]) -> None:
    if bypasses:
        name, operator = next(iter(bypasses.items()))
        raise UnsupportedError(
            f"{family} computes attention outside transformers' attention interface: {len(bypasses)} "
            f"modules, among them {name} ({operator.removeprefix('aten::')}), never called the attention "
            f"function ({len(called)} others did); their heads cannot be recorded"
        )
    if not called:
        raise UnsupportedError(
            f"{family} never called the attention function on the probe: none of its layers goes through "
            "transformers' attention interface"
        )


def _has_call_inside(name: str, called: Counter[str]) -> bool:
    return any(other == name or other.startswith(f"{name}.") for other in called)


def _other_mixers(trace: Trace, called: Counter[str], known: set[str]) -> Iterator[Unseen]:
    """Yield the layers that are no attention, and the attention layers that did not run."""
    for name, module in trace.modules.items():
        numbered = isinstance(getattr(module, "layer_idx", None), int)
        if not (numbered or trace.is_attention(name)) or _has_call_inside(name, called | Counter(known)):
            continue
        if any(name.startswith(f"{other}.") for other in called):
            continue
        inner = any(isinstance(getattr(child, "layer_idx", None), int) for child in _descendants(module))
        if not inner:
            ran = trace.entered[name]
            yield Unseen(name, "computes no softmax attention" if ran else "did not run on the probe")


def _descendants(module: nn.Module) -> Iterator[nn.Module]:
    return (child for child in module.modules() if child is not module)


def _numbered(trace: Trace) -> tuple[AttachedLayer, ...]:
    stacks: defaultdict[str, list[SeenCall]] = defaultdict(list)
    for call in trace.calls:
        stacks[_stack_of(call.name)].append(call)
    numbers = {stack: iter(_numbers(trace, calls)) for stack, calls in stacks.items()}
    return tuple(AttachedLayer(next(numbers[_stack_of(call.name)]), **vars(call)) for call in trace.calls)


def _stack_of(name: str) -> str:
    """Return what the modules of one stack have in common: their path without the numbers in it."""
    return PATH_NUMBER.sub("*", name)


def _numbers(trace: Trace, calls: Sequence[SeenCall]) -> list[int]:
    """Return `layer_idx` of each call's module, or the number in its path, or the order of the calls.

    The first of these that tells the calls apart: hybrids that set no `layer_idx` still number all their
    layers in the path, and the order would count the attention layers only.
    """
    own = [getattr(trace.modules[call.name], "layer_idx", None) for call in calls]
    if all(isinstance(number, int) for number in own) and len(set(own)) == len(own):
        return [number for number in own if number is not None]
    columns = list(zip(*([int(n) for n in PATH_NUMBER.findall(call.name)] for call in calls), strict=True))
    telling = columns if len(columns) == 1 else [column for column in columns if len(set(column)) > 1]
    if len(telling) == 1 and len(set(telling[0])) == len(calls):
        return list(telling[0])
    return list(range(len(calls)))
