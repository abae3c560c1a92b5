"""The meaning of names while a sketch is resolved: declarations of the file, and the nested blocks of one body."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kernellab.operations.sketch import OPS
from kernellab.records import Diagnostic
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.program.program import Constexpr, DType, Statement, Tensor, Tile
from kernellab.sketch.resolve.operands import Operand
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.messages import Nearest, diagnostic_at, nearest

Item = TypeVar("Item")
Result = TypeVar("Result")


class Refused(Exception):
    """A statement is wrong; its diagnostic is already recorded and the statement is skipped."""


@dataclass
class TileEntry:
    """A visible tile. ``parallel`` counts the parallel loops around its declaration."""

    tile: Tile
    parallel: int
    written: bool
    line: int = 0


@dataclass
class LetEntry:
    """A name for an index expression: ``row = pid * BLOCK``."""

    expr: IntExpr


@dataclass
class LoopEntry:
    expr: IntExpr


@dataclass
class PoisonEntry:
    """A name whose declaration (in ``line``) was wrong, or that is unknown (0): its uses are not reported."""

    line: int


Entry = TileEntry | LetEntry | LoopEntry | PoisonEntry


@dataclass
class Names:
    """The declarations of one sketch."""

    symbols: dict[str, IntExpr] = field(default_factory=dict)
    constexprs: dict[str, Constexpr] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    opaques: dict[str, tree.OpaqueDecl] = field(default_factory=dict)
    #: a constexpr that is used as an index, or that has integer values
    index_constexprs: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Reading:
    """A resolved expression, with the meaning of each of its names then (a tile, an index, a constexpr)."""

    uses: tuple[tuple[str, object], ...]
    operand: Operand


class Readings:
    """A cache of at most ``most`` readings by content, which stay valid after edits of other lines."""

    def __init__(self, most: int = 8192) -> None:
        self._most = most
        self._readings: dict[tree.Expr, Reading] = {}

    def get(self, expr: tree.Expr) -> Reading | None:
        return self._readings.get(expr)

    def keep(self, expr: tree.Expr, reading: Reading) -> None:
        if len(self._readings) >= self._most:
            self._readings.clear()
        self._readings[expr] = reading


class Scope:
    """The state of resolving one body: its blocks, its diagnostics, and the tensors that it reads and writes.

    ``rules`` has the function for each kind of expression, ``readings`` the cache of earlier resolutions."""

    def __init__(
        self, names: Names, faults: list[Diagnostic], rules: Mapping[type, Rule], readings: Readings | None = None
    ) -> None:
        self.names = names
        self.faults = faults
        self.rules = rules
        self.readings = readings if readings is not None else Readings()
        #: names in the current expression, with their meanings
        self.uses: list[tuple[str, object]] = []
        #: inferred dtype of an alloc or a first assignment, by id of the statement
        self.dtypes: dict[int, DType] = {}
        #: would a parallel loop here be part of the grid?
        self.in_grid = True
        self.blocks: list[dict[str, Entry]] = [{}]
        #: names of tiles of closed blocks, for the message "unknown name"
        self.ended: dict[str, int] = {}
        #: the variables of the parallel loops, and of all loops, around the current statement
        self.parallel: list[str] = []
        self.loops: list[str] = []
        #: the line of the current statement
        self.line = 0
        #: statements that the current one needs before it
        self.pending: list[Statement] = []
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        #: opaque operations that are used
        self.opaque: set[str] = set()
        self._uids: set[str] = set()

    # -- faults

    def note(self, rule: str, span: tree.Span, **fields: object) -> None:
        self.faults.append(diagnostic_at(rule, span, **fields))

    def refuse(self, rule: str, span: tree.Span, **fields: object) -> Refused:
        """Record a diagnostic. Returns the exception to raise."""
        self.note(rule, span, **fields)
        return Refused()

    def each(self, items: Iterable[Item], read: Callable[[Item], Result]) -> list[Result]:
        """Return ``read`` of each item. A wrong one does not hide the others: all are read, then Refused is raised."""
        results, refused = [], False
        for item in items:
            try:
                results.append(read(item))
            except Refused:
                refused = True
        if refused:
            raise Refused
        return results

    # -- names

    def find(self, name: str) -> Entry | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def bind(self, name: str, entry: Entry) -> None:
        self.blocks[-1][name] = entry

    def poison(self, name: str, line: int = 0) -> None:
        if self.find(name) is None and self.declared_as(name) is None:
            # an unknown name is unknown everywhere, a tile ends with its block
            (self.blocks[-1] if line else self.blocks[0])[name] = PoisonEntry(line)

    def unknown(self, name: str, span: tree.Span) -> Refused:
        remedy: str | Nearest
        if name in self.ended:
            remedy = f"The tile of line {self.ended[name]} ended with its block: allocate it before the loop."
        else:
            visible = [*self._visible(), *self.names.symbols, *self.names.constexprs, *self.names.tensors]
            remedy = nearest(name, visible) or "Declare it, or assign to it first."
        return self.refuse("unknown-name", span, name=name, remedy=remedy)

    def unknown_operation(self, name: str, span: tree.Span) -> Refused:
        if (filled := _FILLED.get(name.rpartition(".")[2])) is not None:
            suggestion = f"Write full([...], {filled}), with the extents in the brackets."
            return self.refuse("unknown-operation", span, name=name, remedy=suggestion)
        if "." in name:
            return self.refuse("unknown-operation", span, name=name, remedy=_as_call(name) or _near_library(name))
        operations = [*OPS, "alloc", "load", "store", "atomic_add", *self.names.opaques]
        remedy: str | Nearest
        if reduced := reduction(name):
            remedy = f"Write {reduced}(tile, axis=...)."
        elif name in _OF_TORCH:
            remedy = f"Write {_OF_TORCH[name]}."
        else:
            remedy = nearest(name, operations) or f"Write {_UNKNOWN}"
        at = tree.Span(span.line, span.col, span.line, span.col + len(name))
        return self.refuse("unknown-operation", at, name=name, remedy=remedy)

    def declared_as(self, name: str) -> str | None:
        """Return the kind of declaration of ``name``; None if it is free for a tile."""
        if name in self.names.symbols:
            return "a symbol"
        if name in self.names.constexprs:
            return "a constexpr"
        if name in self.names.tensors:
            return "a tensor"
        entry = self.find(name)
        if isinstance(entry, LoopEntry):
            return "a loop variable"
        return "an index name" if isinstance(entry, LetEntry) else None

    def uid(self, name: str) -> str:
        uid, count = name, 1
        while uid in self._uids:
            count += 1
            uid = f"{name}_{count}"
        self._uids.add(uid)
        return uid

    @contextmanager
    def block(self, in_grid: bool = True) -> Iterator[None]:
        """Inside, names are those of an inner block; ``in_grid``: it may be a part of the grid, if the outer one is."""
        outer_in_grid = self.in_grid
        self.in_grid = outer_in_grid and in_grid
        self.blocks.append({})
        try:
            yield
        finally:
            self.in_grid = outer_in_grid
            self.ended.update(
                {n: e.line for n, e in self.blocks.pop().items() if isinstance(e, (TileEntry, PoisonEntry))}
            )

    @contextmanager
    def loop(self, var: str, is_parallel: bool) -> Iterator[None]:
        """Inside, ``var`` is the variable of one more loop."""
        with self.block(in_grid=is_parallel):
            self.bind(var, LoopEntry(IntExpr(IntKind.LOOP, name=var)))
            self.loops.append(var)
            if is_parallel:
                self.parallel.append(var)
            try:
                yield
            finally:
                self.loops.pop()
                if is_parallel:
                    self.parallel.pop()

    def _visible(self) -> list[str]:
        return [name for block in self.blocks for name in block]


def reduction(name: str) -> str:
    """Return the operation that reduces a tile as PyTorch's function ``name`` does; "" if there is none."""
    return next((op for op in (f"reduce_{name}", f"reduce_{name.removeprefix('a')}") if op in OPS), "")


def _as_call(name: str) -> str:
    """Return the operation for PyTorch's ``tile.sum()`` or ``torch.exp(tile)``; "" if there is none."""
    owner, _, method = name.partition(".")
    op = next((op for op in (reduction(method), method, _OF_TORCH.get(method, "")) if op in OPS), None)
    if op is None or f"{owner}." == PREFIX or method in LIBRARY:
        return ""
    arguments = ("tile" if owner in _LIBRARIES else owner) + (
        ", axis=..." if op.startswith("reduce_") else ", ..." * (OPS[op].arity > 1)
    )
    return f"Write {op}({arguments}): operations are called by their names alone."


def _near_library(name: str) -> str | Nearest:
    """Return the remedy for ``name``, which has a dot."""
    member = name.rpartition(".")[2]
    if not name.startswith(PREFIX) and member not in LIBRARY:
        return f"Operations are called by their names alone: write {_UNKNOWN}"
    similar = [member] if member in LIBRARY else difflib.get_close_matches(member, LIBRARY, n=3, cutoff=0.5)
    if len(similar) == 1:
        return Nearest(name, f"{PREFIX}{similar[0]}")
    if similar:
        return "Did you mean " + " or ".join(f"'{PREFIX}{op}'" for op in similar) + "?"
    return f"Known: {', '.join(f'{PREFIX}{op}' for op in LIBRARY)}."


#: functions of other libraries that fill a tile -> the number
_FILLED = {"zeros": "0.0", "zeros_like": "0.0", "ones": "1.0", "ones_like": "1.0", "full_like": "value"}
#: names of modules before a function
_LIBRARIES = ("torch", "np", "numpy", "math", "tl", "F")
#: functions of other libraries whose operations have other names
_OF_TORCH = {
    "t": "transpose", "permute": "transpose", "matmul": "dot", "mm": "dot", "to": "cast", "maximum": "max",
    "minimum": "min", "clip": "clamp", "cat": "concat", "view": "reshape", "expand": "broadcast",
}  # fmt: skip
_UNKNOWN = "it with known operations, or declare it: opaque: name(x[N]: f32) -> [N]: f32;"
#: resolves one kind of expression; for a wrong one it records a diagnostic and raises Refused
Rule = Callable[[Scope, Any], Operand]
