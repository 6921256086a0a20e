"""What the assembly of a function does inside its loops."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\s+(j\w+|b|b\.\w+|cbn?z|tbn?z)\s.*?(\.L\w+)$")
_END = re.compile(r"^\s+(?:retq?|jmpq?|b|br)\b(?!\.)")
_FMA = re.compile(r"^\s+(?:vfn?m(?:add|sub)\d+ps|fml[as]\s+v)")
_CALL = re.compile(r"^\s+(?:callq?|blr?)\s")
_VECTOR = re.compile(r"%[xyz]mm\d|\b[qvds]\d+\b")
_STACK = re.compile(r"\(%rsp|\[sp\b|\[x29\b")
_FRAME = re.compile(r"\(%rbp")
_FRAME_IS_KEPT = re.compile(r"^\s+movq\s+%rsp, %rbp", re.MULTILINE)


@dataclass(frozen=True)
class Loop:
    """A loop: how many vectors are multiplied and added, and the lines in which one passes by the stack."""

    fused: int
    spills: tuple[str, ...]


@dataclass
class _Block:
    """Lines that run one after the other, and the blocks that may come next."""

    lines: list[str] = field(default_factory=list)
    next: set[int] = field(default_factory=set)


def loops_of(assembly: str) -> list[Loop]:
    """Return the loops in which vectors are multiplied and added; nested ones count as one."""
    blocks = _blocks_of(assembly)
    reached = [_reached_from(blocks, number) for number in range(len(blocks))]
    found, done = [], set()
    for number in range(len(blocks)):
        if number in done or number not in reached[number]:
            continue
        members = [other for other in sorted(reached[number]) if number in reached[other]]
        done.update(members)
        lines = [line for member in members for line in blocks[member].lines]
        fused = sum(bool(_FMA.match(line)) for line in lines)
        if fused:
            by_stack = [
                line.strip() for line in lines if _is_on_stack(line, assembly) and _VECTOR.search(line)
            ]
            found.append(Loop(fused, tuple(by_stack)))
    return found


def calls_in(assembly: str) -> list[str]:
    """Return the lines that call something."""
    return [line.strip() for line in assembly.splitlines() if _CALL.match(line)]


def function_in(assembly: str, name: str) -> str:
    """Return the one function of this name."""
    return assembly.split(f"\n{name}:\n", 1)[1].split("\n.Lfunc_end", 1)[0]


def _is_on_stack(line: str, assembly: str) -> bool:
    if _STACK.search(line):
        return True
    return bool(_FRAME.search(line) and _FRAME_IS_KEPT.search(assembly))


def _blocks_of(assembly: str) -> list[_Block]:
    blocks, places, jumps = [_Block()], {}, []
    falls_through = True
    for line in assembly.splitlines():
        label = _LABEL.match(line)
        if label or (blocks[-1].lines and not falls_through) or (jumps and jumps[-1][0] == len(blocks) - 1):
            blocks.append(_Block())
            if falls_through:
                blocks[-2].next.add(len(blocks) - 1)
            falls_through = True
        if label:
            places[label[1]] = len(blocks) - 1
            continue
        blocks[-1].lines.append(line)
        if jump := _JUMP.match(line):
            jumps.append((len(blocks) - 1, jump[2]))
        if _END.match(line):
            falls_through = False
    for number, label in jumps:
        blocks[number].next.add(places[label])
    return blocks


def _reached_from(blocks: list[_Block], start: int) -> set[int]:
    """Return the blocks that may run after one, itself among them if it is in a loop."""
    found: set[int] = set()
    ahead = list(blocks[start].next)
    while ahead:
        number = ahead.pop()
        if number not in found:
            found.add(number)
            ahead.extend(blocks[number].next)
    return found
