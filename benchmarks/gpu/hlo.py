"""Kernels, launches and bytes of a compiled program, counted in XLA's text of it.

An instruction of the entry, of a loop or of a branch is one launch, unless it moves nothing: a parameter, a tuple, a
view. A loop counts its body as often as it runs, if XLA has that number, and a conditional its largest branch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

FREE = frozenset(
    """
    parameter constant get-tuple-element tuple bitcast after-all opt-barrier optimization-barrier partition-id
    replica-id copy-done async-done async-update all-gather-done all-reduce-done call while conditional
    """.split()  # noqa: SIM905 (twenty names in quotes of their own read worse)
)
WIDTHS = {"pred": 1, "token": 0, "bf16": 2, "c64": 8, "c128": 16}  # bytes of types without a number of bits at the end
_COMPUTATION = re.compile(r"^(ENTRY )?%(\S+) \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%(\S+) = (.*)$")
_ARRAY = re.compile(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CALLED = re.compile(r"\b(body|condition|calls|to_apply|true_computation|false_computation)=%([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")


class Instruction(NamedTuple):
    """One line of a computation."""

    name: str
    kind: str  # of its result: arrays with their shapes
    opcode: str
    operands: tuple[str, ...]
    rest: str  # attributes
    is_root: bool

    @property
    def called(self) -> dict[str, str]:
        """Computations by the attribute that names them."""
        return dict(_CALLED.findall(self.rest))

    @property
    def branches(self) -> list[str]:
        """Computations of a conditional."""
        if found := _BRANCHES.search(self.rest):
            return [name.strip().lstrip("%") for name in found[1].split(",")]
        return [name for attribute, name in _CALLED.findall(self.rest) if attribute.endswith("e_computation")]

    @property
    def trips(self) -> int | None:
        """Iterations of a loop; None if XLA does not know their number."""
        found = _TRIPS.search(self.rest)
        return int(found[1]) if found else None


class Cost(NamedTuple):
    """Costs of a program, or of a part of it."""

    launches: float = 0.0
    bytes: float = 0.0  # read and written
    conditionals: float = 0.0

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(*(x + y for x, y in zip(self, other, strict=True)))

    def times(self, number: float) -> Cost:
        """The cost of so many."""
        return Cost(*(number * x for x in self))


class Loop(NamedTuple):
    """A loop of a program."""

    depth: int  # 0 for one that is in no other
    trips: int | None
    kernels: int  # in an iteration, without those of loops inside
    copies: int  # of these kernels, those that only move
    conditionals: int  # in an iteration, likewise
    runs: float  # iterations in the whole program


class Program(NamedTuple):
    """A compiled program."""

    computations: dict[str, dict[str, Instruction]]
    entry: str

    @classmethod
    def parse(cls, text: str) -> Program:
        """Reads what `compiled.as_text()` gives."""
        computations, entry, current = dict[str, dict[str, Instruction]](), "", dict[str, Instruction]()
        for line in text.splitlines():
            if head := _COMPUTATION.match(line):
                current = computations.setdefault(head[2], {})
                entry = head[2] if head[1] else entry
            elif found := _INSTRUCTION.match(line):
                current[found[2]] = _instruction(found[2], re.sub(r"/\*.*?\*/", "", found[3]), bool(found[1]))
        return cls(computations, entry)

    def cost(self, name: str = "", *, unknown: Sequence[int] = (), depth: int = 0) -> Cost:
        """The cost of a computation, by default of the whole program.

        Args:
          name: of the computation.
          unknown: iterations of loops whose number XLA does not know, by depth; 1 where none is given.
          depth: loops around it.
        """
        total = Cost()
        for one in self.computations[name or self.entry].values():
            if one.opcode == "while":
                trips, called = one.trips, one.called
                inside = self.cost(called["body"], unknown=unknown, depth=depth + 1)
                if trips is None:  # then its condition is computed, and copied to the host
                    trips = unknown[depth] if depth < len(unknown) else 1
                    inside += self.cost(called["condition"], unknown=unknown, depth=depth + 1) + Cost(launches=1)
                total += inside.times(trips)
            elif one.opcode == "conditional":
                branches = [self.cost(branch, unknown=unknown, depth=depth) for branch in one.branches]
                total += max(branches) + Cost(conditionals=1)
            elif one.opcode == "call":
                total += self.cost(one.called["to_apply"], unknown=unknown, depth=depth)
            elif one.opcode not in FREE:
                total += Cost(1, self.bytes_of(one, self.computations[name or self.entry]))
        return total

    def loops(self, name: str = "", *, unknown: Sequence[int] = (), depth: int = 0, runs: float = 1.0) -> list[Loop]:
        """The loops of a computation, outer ones first; arguments as of `cost`, and how often it runs itself."""
        found = []
        for one in self._inside(name or self.entry):
            if one.opcode != "while":
                continue
            trips = one.trips
            times = runs * (trips if trips is not None else unknown[depth] if depth < len(unknown) else 1)
            body = list(self._inside(one.called["body"]))
            kernels = [x for x in body if x.opcode not in FREE]
            copies = sum(self._only_moves(x) for x in kernels)
            conditionals = sum(x.opcode == "conditional" for x in body)
            found.append(Loop(depth, trips, len(kernels), copies, conditionals, times))
            found += self.loops(one.called["body"], unknown=unknown, depth=depth + 1, runs=times)
        return found

    def bytes_of(self, one: Instruction, around: dict[str, Instruction]) -> float:
        """Bytes that a kernel reads and writes; of what it only takes a slice of, or updates in place, that part."""
        sizes = [bytes_of(around[operand].kind) if operand in around else 0 for operand in one.operands]
        if one.opcode in ("dynamic-slice", "slice", "gather"):
            return 2 * bytes_of(one.kind)
        if one.opcode == "dynamic-update-slice":
            return 2 * sizes[1]
        fused = self.computations.get(one.called.get("calls", ""))
        if not fused:
            return sum(sizes) + bytes_of(one.kind)
        number = {x.rest: x.name for x in fused.values() if x.opcode == "parameter"}
        read = sum(min(size, _read(fused, number[str(i)], size)) for i, size in enumerate(sizes))
        root = next(x for x in fused.values() if x.is_root)
        results = [fused[name] for name in root.operands] if root.opcode == "tuple" else [root]
        return read + sum(_written(fused, result) for result in results)

    def _inside(self, name: str) -> Iterator[Instruction]:
        """Instructions of a computation, with those of what it calls and of its branches."""
        for one in self.computations[name].values():
            yield one
            for called in one.branches if one.opcode == "conditional" else []:
                yield from self._inside(called)
            if one.opcode == "call":
                yield from self._inside(one.called["to_apply"])

    def _only_moves(self, one: Instruction) -> bool:
        if one.opcode in ("copy", "transpose", "copy-start"):
            return True
        fused = self.computations.get(one.called.get("calls", ""), {})
        moving = {"parameter", "bitcast", "copy", "transpose", "tuple", "reshape", "get-tuple-element"}
        return bool(fused) and all(x.opcode in moving for x in fused.values())


def bytes_of(kind: str) -> int:
    """Bytes of the arrays of a type such as `(f32[8,256]{0,1}, s32[])`."""
    return sum(
        _width(name) * math.prod(int(size) for size in shape.split(",") if size) for name, shape in _ARRAY.findall(kind)
    )


def _width(name: str) -> int:
    if name in WIDTHS:
        return WIDTHS[name]
    bits = re.search(r"(\d+)", name)
    return max(1, int(bits[1]) // 8) if bits else 0


def _instruction(name: str, text: str, is_root: bool) -> Instruction:
    """Takes `type opcode(operands), attributes` apart; a type may be a tuple in brackets."""
    end = _closing(text, 0) if text.startswith("(") else text.index(" ") - 1
    kind, text = text[: end + 1], text[end + 2 :]
    opcode = text.partition("(")[0]
    end = _closing(text, len(opcode))
    inside, rest = text[len(opcode) + 1 : end], text[end + 1 :].lstrip(", ")
    operands = tuple(re.findall(r"%([^\s,()]+)", inside))
    return Instruction(name, kind, opcode, operands, inside if opcode == "parameter" else rest, is_root)


def _closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if not depth:
            return i
    raise ValueError(f"text: got {text[:80]!r}; balanced brackets are needed")


def _read(fused: dict[str, Instruction], name: str, size: int) -> float:
    """Bytes that a fusion reads of one of its parameters, of `size` bytes."""
    total = 0.0
    for user in fused.values():
        if name not in user.operands:
            continue
        if user.opcode == "bitcast":
            total += _read(fused, user.name, size)
        elif user.opcode in ("dynamic-slice", "slice", "gather"):
            total += bytes_of(user.kind) if user.operands[0] == name else size
        elif user.opcode == "dynamic-update-slice" and user.operands[0] == name:
            continue
        else:
            return size
    return total


def _written(fused: dict[str, Instruction], result: Instruction) -> int:
    """Bytes that a fusion writes of a result."""
    while result.opcode == "bitcast" and result.operands[0] in fused:
        result = fused[result.operands[0]]
    if result.opcode == "dynamic-update-slice":
        return bytes_of(fused[result.operands[1]].kind)
    return bytes_of(result.kind)
