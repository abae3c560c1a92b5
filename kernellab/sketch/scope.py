"""What names mean while a sketch is resolved: declarations of the file, and the nested blocks of one body."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kernellab.records import Diagnostic
from kernellab.sketch import tree
from kernellab.sketch.ints import IntExpr, IntKind
from kernellab.sketch.messages import diagnostic, nearest
from kernellab.sketch.ops import OPS
from kernellab.sketch.program import Constexpr, DType, Statement, Tensor, Tile


class Refused(Exception):
    """A statement is wrong; its diagnostic is already noted and the statement is skipped."""


@dataclass
class TileEntry:
    """A tile in sight. ``parallel`` counts the parallel loops around its declaration."""

    tile: Tile
    parallel: int
    written: bool


@dataclass
class LetEntry:
    """A name for an index expression: ``row = pid * BLOCK``."""

    expr: IntExpr


@dataclass
class LoopEntry:
    expr: IntExpr


class PoisonEntry:
    """A name whose declaration was wrong: uses of it say nothing more."""


Entry = TileEntry | LetEntry | LoopEntry | PoisonEntry


@dataclass
class Names:
    """Declarations in force in one sketch."""

    symbols: dict[str, IntExpr] = field(default_factory=dict)
    constexprs: dict[str, Constexpr] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    opaques: dict[str, tree.OpaqueDecl] = field(default_factory=dict)
    #: a constexpr that stands where only an index can, or that has integer values
    index_constexprs: set[str] = field(default_factory=set)


class Scope:
    """One body being resolved: its blocks, its diagnostics, and what it reads and writes."""

    def __init__(self, names: Names, faults: list[Diagnostic], dtypes: dict[int, DType]) -> None:
        self.names = names
        self.faults = faults
        #: dtype found for an alloc or a first assignment, by id of the statement
        self.dtypes = dtypes
        self.blocks: list[dict[str, Entry]] = [{}]
        #: names of tiles of closed blocks, for a better "unknown name"
        self.ended: dict[str, int] = {}
        self.parallel: list[str] = []
        self.loops: list[str] = []
        self.pending: list[Statement] = []
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.opaque: set[str] = set()
        self._uids: set[str] = set()

    # -- faults

    def note(self, rule: str, span: tree.Span, **fields: object) -> None:
        self.faults.append(
            diagnostic(rule, span.line, span.col, end_line=span.end_line, end_col=span.end_col, **fields)
        )

    def refuse(self, rule: str, span: tree.Span, **fields: object) -> Refused:
        """Notes a diagnostic and gives the exception to raise."""
        self.note(rule, span, **fields)
        return Refused()

    # -- names

    def find(self, name: str) -> Entry | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def bind(self, name: str, entry: Entry) -> None:
        self.blocks[-1][name] = entry

    def poison(self, name: str) -> None:
        if self.find(name) is None:
            self.bind(name, PoisonEntry())

    def unknown(self, name: str, span: tree.Span) -> Refused:
        if name in self.ended:
            remedy = f"The tile of line {self.ended[name]} ended with its block: allocate it before the loop."
        else:
            known = [*self._visible(), *self.names.symbols, *self.names.constexprs, *self.names.tensors]
            remedy = nearest(name, known) or "Declare it, or assign to it first."
        return self.refuse("unknown-name", span, name=name, remedy=remedy)

    def unknown_operation(self, name: str, span: tree.Span) -> Refused:
        known = [*OPS, "alloc", "load", "store", "atomic_add", *self.names.opaques]
        remedy = (
            nearest(name, known)
            or "Write it with known operations, or declare it: opaque: name(x[N]: f32) -> [N]: f32;"
        )
        return self.refuse("unknown-operation", span, name=name, remedy=remedy)

    def declared_as(self, name: str) -> str | None:
        """What kind of declaration ``name`` is, None when it is free for a tile."""
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
    def block(self) -> Iterator[None]:
        self.blocks.append({})
        try:
            yield
        finally:
            self.ended.update({n: 0 for n, e in self.blocks.pop().items() if isinstance(e, TileEntry)})

    @contextmanager
    def loop(self, var: str, is_parallel: bool) -> Iterator[None]:
        with self.block():
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
