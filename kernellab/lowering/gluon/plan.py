"""The plan of an asynchronous kernel: what of a sketch's kernel is loaded, multiplied, and stored by whom.

A kernel is its parallel loops (the grid), statements ``before``, one ``loop`` over loaded tiles, statements ``after``:

    for i in range(0, M, BM):                 loops; BM is ``tile_rows``
        q = load(Q[i:i+BM, :])                before: ``resident``, since products read it
        for k in range(0, N, BN):             loop
            kt = load(K[k:k+BN, :])           one of ``streams``
            s = dot(q, transpose(kt))         a Product that overwrites its result
            ...
        store(...)                            after

planner.py makes plans, or says why there is none; roles.py and multiply.py write them as Gluon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernellab.lowering.gluon.shares import whole_tile
from kernellab.sketch.program.ints import IntExpr, IntKind
from kernellab.sketch.program.program import (
    Apply,
    Assign,
    Gemm,
    If,
    Kernel,
    Load,
    Loop,
    Read,
    Statement,
    Store,
    Tile,
    Value,
)
from kernellab.sketch.program.walk import statements, subvalues

#: the narrowest width of a head for which groups multiply
_NARROW = 64


@dataclass(frozen=True)
class Operand:
    """A factor of a product: a loaded tile, transposed or not, or (``tile`` is None) a value in registers."""

    value: Value
    tile: Tile | None = None
    transposed: bool = False


@dataclass(frozen=True)
class Product:
    """``acc += a @ b``, or ``acc = a @ b`` if it overwrites."""

    stmt: Statement
    acc: Tile
    a: Operand
    b: Operand
    overwrites: bool

    @property
    def loaded(self) -> list[Tile]:
        """The factors that are loaded tiles."""
        return [operand.tile for operand in (self.a, self.b) if operand.tile is not None]


@dataclass(frozen=True)
class Plan:
    """The parts of a kernel, and the numbers that its hints and the chip decide."""

    kernel: Kernel
    #: parallel loops, outermost first
    loops: list[Loop]
    before: tuple[Statement, ...]
    loop: Loop
    #: a loop that contains only ``loop``: the loader and the groups run both as one loop
    outer: Loop | None
    after: tuple[Statement, ...]
    #: rows of a tile: the step of a parallel loop, or a product of several
    tile_rows: IntExpr
    #: groups of warps that multiply, and the warps of all of them
    groups: int
    warps: int
    #: buffers of each streamed tile
    stages: int
    #: of each thread that multiplies; 0: as many as there are
    registers: int
    #: a program computes several tiles
    persistent: bool
    #: groups compute whole tiles in turn, instead of shares of one tile
    in_turn: bool
    #: the hint ``ahead``: products are in flight while other statements run
    ahead: bool
    products: tuple[Product, ...] = ()
    #: loads of the loop in the order in which products need them; those that one product needs arrive together
    streams: tuple[tuple[Load, ...], ...] = ()
    #: loads before the loop that products read
    resident: tuple[Load, ...] = ()
    #: tiles of several dimensions that are loaded after the loop, as matrices with the products' rows, by uid
    matrices: Mapping[str, Tile] = field(default_factory=dict)
    #: the store through the copy engine
    async_store: Store | None = None
    #: parts of a result's columns that leave through two buffers in turn; 1: the whole result has a buffer
    store_parts: int = 1
    shared_bytes: int = 0
    #: blocks of a cluster, each with a share of its rows; what all of them load is multicast
    cluster: int = 1
    #: loads before the loop of one integer that its loads' places contain, by the name in the place
    offsets: Mapping[str, Load] = field(default_factory=dict)

    @property
    def buffered(self) -> list[Load]:
        """Loads that the copy engine makes, those before the loop first."""
        return [*self.resident, *(load for group in self.streams for load in group)]

    @property
    def rows_name(self) -> str:
        """The name of the constexpr with the rows of a tile, which groups may share; "" if several constexprs give
        them."""
        return self.tile_rows.name if self.tile_rows.kind is IntKind.CONSTEXPR else ""

    @property
    def shares_rows(self) -> bool:
        """Does each group have a share of a tile's rows?"""
        return self.groups > 1 and not self.in_turn

    @property
    def row_loop(self) -> Loop | None:
        """The parallel loop that steps by a tile's rows; None if several loops do so together."""
        return next((lp for lp in self.loops if lp.step == self.tile_rows), None)

    def seen_from_shares(self) -> Loop:
        """The loop with its range in terms of the rows of the whole tile; in a group the row variable and step are
        those of its share."""
        rows, loop = self.row_loop, self.loop
        assert rows is not None
        start, stop = (whole_tile(end, rows, self.groups) for end in (loop.start, loop.stop))
        return replace(loop, start=start, stop=stop)

    @property
    def early(self) -> Product | None:
        """The product that is issued an iteration before its result is read, with the hint ``ahead``: the one that
        waits for no other product. Of two, each is in flight while the other is, and products finish in the order of
        issue."""
        first, *others = self.products
        alone = first.overwrites and first.a.tile is not None and others and all(q.a.tile is None for q in others)
        return first if self.ahead and alone else None

    @property
    def late(self) -> Product | None:
        """The product of a step that is issued after the next step's ``early`` one: what is done with that one's result
        overlaps it, and one result of ``early`` is held, not two.

        Measured on an H200, bf16, 4096 keys, full attention: width 128 0.883 ms (0.970 in the order of the steps, cuDNN
        0.967), width 64 with turns 0.320 (0.341; without turns 0.338; cuDNN 0.303); with turns width 128 0.917. Not
        measured: a condition in the loop and other widths, which keep the order of the steps; additive masks, soft caps
        and other statements between the products, which do not.
        """
        if self.early is None or self.outer is not None or len(self.products) != 2 or not self.shares_rows:
            return None
        last, body = self.products[1], self.loop.body
        width = last.acc.shape[-1]
        is_measured = width.kind is IntKind.NUM and width.value in (_NARROW, 2 * _NARROW) and self.groups == 2
        is_plain = not any(isinstance(s, If) for s in body) and not self.persistent and not last.overwrites
        return last if is_measured and is_plain and _is_last_use(last, body) else None

    @property
    def alternates(self) -> bool:
        """Do the groups issue their products in turn, so that one's statements run during the other's products?"""
        return self.late is not None and self.late.acc.shape[-1].value == _NARROW

    @property
    def accumulates(self) -> bool:
        """Does the loop only add products to accumulators that it carries?"""
        sums = all(not p.overwrites and p.a.tile is not None for p in self.products)
        others = [s for s in self.loop.body if not isinstance(s, (Load, Gemm)) and not is_view(s)]
        return sums and not others and len(self.streams) == 1


def _is_last_use(product: Product, body: tuple[Statement, ...]) -> bool:
    """Do the statements of ``body`` after the product neither read its result nor change its left factor?"""
    at = next(i for i, stmt in enumerate(body) if stmt is product.stmt)
    after = list(statements(body[at + 1 :]))
    read = {v.tile for stmt in after for root in stmt.values for v in subvalues(root) if isinstance(v, Read)}
    written = {stmt.tile for stmt in after if isinstance(stmt, (Assign, Load))}
    left = {v.tile for v in subvalues(product.a.value) if isinstance(v, Read)}
    return product.acc not in read and not left & written


def is_view(stmt: Statement) -> bool:
    """Is the statement the transpose of a tile?"""
    return isinstance(stmt, Assign) and isinstance(stmt.value, Apply) and stmt.value.op == "transpose"


__all__ = ["Operand", "Plan", "Product", "is_view"]
