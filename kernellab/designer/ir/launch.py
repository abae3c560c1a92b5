"""One launch of the plan: which axes run, what is reduced, scanned or multiplied, and what is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kernellab.designer.ir.dtypes import FLOAT8, item_bytes
from kernellab.designer.ir.expr import Attend, Axis, Chain, Dot, Expr, Leaf, Red, Scan, Win, walk
from kernellab.designer.ir.normal import EACH, Layout, Output, Purpose


class LaunchKind(Enum):
    """What a launch does; said by the pass that makes it."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    SCAN = "scan"
    SORT = "sort"
    PRODUCT = "product"
    WINDOW = "window"
    ATTENTION = "attention"
    CHAIN = "chain"
    COPY = "copy"
    SCATTER = "scatter"
    STEPS = "steps"


#: the title of a launch that stores what leaves the graph
RESULT_TITLE = "finish"


@dataclass(eq=False)
class Launch:
    """``par`` axes in parallel, ``reds``, ``scans`` or ``dot`` over ``red`` in passes, then ``outs``.

    A COPY stores outputs of one index, along the axes of that; its ``red`` are taps that run one after another.
    ``title`` is what its sketch is called behind the task's name; whoever makes the launch sets it.
    """

    kind: LaunchKind
    par: frozenset[Axis]
    red: frozenset[Axis]
    reds: list[Red] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    dot: Dot | None = None
    #: further products of a CHAIN, over the same rows and the same summed axis
    others: list[Chain] = field(default_factory=list)
    outs: list[Output] = field(default_factory=list)
    title: str = "statistics"

    @property
    def chunk(self) -> Axis | None:
        """The axis of the pieces, where programs reduce or scan one piece each."""
        shared: list[Red | Scan | Attend] = [*self.reds, *self.scans]
        shared += [self.dot] if isinstance(self.dot, Attend) else []
        return next((e.chunk for e in shared if e.chunk is not None), None)

    @property
    def purposes(self) -> frozenset[Purpose]:
        """What its outputs are for."""
        return frozenset(o.purpose for o in self.outs)

    @property
    def stored_axes(self) -> list[Axis]:
        """The axes that the outputs' indices run along."""
        return [a for o in self.outs for ix in o.index for a in ix.leaves()]

    @property
    def product(self) -> Dot:
        """The product of a PRODUCT, WINDOW or ATTENTION."""
        assert self.dot is not None, self.kind
        return self.dot

    @property
    def window(self) -> Win:
        """The product of a WINDOW."""
        assert isinstance(self.dot, Win), self.kind
        return self.dot

    @property
    def attention(self) -> Attend:
        """The product of an ATTENTION."""
        assert isinstance(self.dot, Attend), self.kind
        return self.dot

    @property
    def chains(self) -> list[Chain]:
        """The products of a CHAIN."""
        assert isinstance(self.dot, Chain), self.kind
        return [self.dot, *self.others]

    @property
    def roots(self) -> list[Expr]:
        """Every expression that the launch computes."""
        dot = [self.dot, *self.others] if self.dot is not None else []
        return [*self.reds, *self.scans, *dot, *(o.expr for o in self.outs)]

    @property
    def of_float8(self) -> bool:
        """Is it a product of float8 that float8 tensor cores may make? Within a step they add up with 14 bits, which
        a narrow result does not show."""
        narrow = all(item_bytes(o.dtype) <= 2 for o in self.outs)
        return self.dot is not None and self.dot.a.dtype in FLOAT8 and narrow

    @property
    def loads(self) -> list[Leaf]:
        """Every element that the launch reads, operands first."""
        seen: dict[int, object] = {}
        return [e for root in self.roots for e in walk(root, seen) if isinstance(e, Leaf)]

    @property
    def routed(self) -> bool:
        """Does it multiply rows by each matrix, and store those whose index names the matrix?"""
        return self.dot is not None and any(o.put == EACH for o in self.outs)

    @property
    def streams(self) -> bool:
        """Do the factors of a product pass through its loop?"""
        return self.dot is not None and (not isinstance(self.dot, Win) or self.dot.packed or self.dot.turned)

    @property
    def early(self) -> list[Output]:
        """The outputs along a reduced axis that need none of the reductions: stored as these read their elements."""
        mine = {id(r) for r in self.reds}
        along = [o for o in self.outs if self._runs_along(o)] if self.kind is LaunchKind.REDUCTION else []
        return [o for o in along if not any(id(e) in mine for e in walk(o.expr))]

    @property
    def varies(self) -> bool:
        """Is an output stored along a reduced axis, which then runs again?"""
        early = self.early
        return any(self._runs_along(o) and o not in early for o in self.outs)

    def _runs_along(self, o: Output) -> bool:
        return any(leaf in self.red for ix in o.index for leaf in ix.leaves())

    @property
    def gathers(self) -> bool:
        """Does a factor of the product read at indices that are values, or backwards?"""
        sides = (self.dot.a, self.dot.b) if self.dot is not None else ()
        leaves = (e for side in sides for e in walk(side) if isinstance(e, Leaf))
        return any(e.operands or any(ix.sign == -1 for ix in e.index) for e in leaves)


@dataclass(frozen=True)
class Plan:
    """The launches of one sketch file, in the order in which they run, and the views of all their tensors.

    A pass makes another plan of it: it replaces launches, and writes into its own layout (``layout.copied()``).
    """

    launches: tuple[Launch, ...]
    layout: Layout
