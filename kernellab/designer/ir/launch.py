"""One launch of the plan: its axes, what it reduces, scans or multiplies, and what it stores."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from kernellab.designer.ir.axes import Axis
from kernellab.designer.ir.dtypes import FLOAT8, item_bytes
from kernellab.designer.ir.expr import Attend, Chain, Dot, Expr, Iota, Leaf, Op, Red, Scan, Win, walk
from kernellab.designer.ir.normal import EACH, Layout, Output, Purpose


class LaunchKind(Enum):
    """The kind of a launch, set by the pass that creates it."""

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


#: the title of a launch that stores outputs of the graph
RESULT_TITLE = "finish"


@dataclass(eq=False)
class Launch:
    """``par`` axes in parallel, ``reds``, ``scans`` or ``dot`` over ``red`` in passes, then ``outs``.

    A COPY stores outputs of one index, along its axes; its ``red`` axes are taps that run one after another. ``title``
    is the suffix of its sketch's name, set when the launch is created.
    """

    kind: LaunchKind
    par: frozenset[Axis]
    red: frozenset[Axis]
    reds: list[Red] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    dot: Dot | None = None
    #: further products of a CHAIN, with the same rows and the same summed axis
    others: list[Chain] = field(default_factory=list)
    outs: list[Output] = field(default_factory=list)
    title: str = "statistics"

    @property
    def chunk(self) -> Axis | None:
        """The axis of the pieces if each program reduces or scans one piece."""
        shared: list[Red | Scan | Attend] = [*self.reds, *self.scans]
        shared += [self.dot] if isinstance(self.dot, Attend) else []
        return next((e.chunk for e in shared if e.chunk is not None), None)

    @property
    def purposes(self) -> frozenset[Purpose]:
        """The purposes of its outputs."""
        return frozenset(o.purpose for o in self.outs)

    @property
    def stored_axes(self) -> list[Axis]:
        """The axes of the outputs' indices."""
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
        """Whether it is a product of float8 for float8 tensor cores. Within a step they accumulate with 14 bits, which
        suffices for a narrow result."""
        narrow = all(item_bytes(o.dtype) <= 2 for o in self.outs)
        return self.dot is not None and self.dot.a.dtype in FLOAT8 and narrow

    @property
    def loads(self) -> list[Leaf]:
        """Every element that the launch reads, operands first."""
        visited: dict[int, object] = {}
        return [e for root in self.roots for e in walk(root, visited) if isinstance(e, Leaf)]

    @property
    def routed(self) -> bool:
        """Whether it multiplies rows by each matrix, and stores those whose index selects the matrix."""
        return self.dot is not None and any(o.put == EACH for o in self.outs)

    @property
    def streams(self) -> bool:
        """Whether the factors of a product pass through its loop."""
        return self.dot is not None and (not isinstance(self.dot, Win) or self.dot.packed or self.dot.turned)

    @property
    def early(self) -> list[Output]:
        """The outputs along a reduced axis that depend on no reduction: stored while the reductions read their
        elements."""
        reduction_ids = {id(r) for r in self.reds}
        along = [o for o in self.outs if self._runs_along(o)] if self.kind is LaunchKind.REDUCTION else []
        return [o for o in along if not any(id(e) in reduction_ids for e in walk(o.expr))]

    @property
    def varies(self) -> bool:
        """Whether an output is stored along a reduced axis, which is then traversed again."""
        early = self.early
        return any(self._runs_along(o) and o not in early for o in self.outs)

    def _runs_along(self, o: Output) -> bool:
        return any(leaf in self.red for ix in o.index for leaf in ix.leaves())

    @property
    def in_place(self) -> bool:
        """Whether a tile's rows begin at an offset that a table has, one value picks their matrix, and the result is
        written at those rows."""
        if not isinstance(self.dot, Dot) or not self.routed or len(self.outs) != 1:
            return False
        sides = (self.dot.a, self.dot.b)
        at_by_side = [at for side in sides if isinstance(side, Leaf) for at in side.operands]
        one = [at for at in at_by_side if isinstance(at, Leaf)]
        run = [at for at in at_by_side if isinstance(at, Op) and at.op == "add" and _is_run(at.args)]
        return len(at_by_side) == 2 and len(one) == len(run) == 1

    @property
    def gathers(self) -> bool:
        """Whether a factor of the product is read at indices that are values, or in reverse."""
        sides = (self.dot.a, self.dot.b) if self.dot is not None else ()
        leaves = (e for side in sides for e in walk(side) if isinstance(e, Leaf))
        return any(e.operands or any(ix.sign == -1 for ix in e.index) for e in leaves)


def _is_run(parts: tuple[Expr, ...]) -> bool:
    """Return whether their sum is a number from a table and a position along one axis."""
    return isinstance(parts[0], Leaf) and isinstance(parts[1], Iota) and parts[1].index.plain


@dataclass(frozen=True)
class Plan:
    """The launches of one sketch file, in the order in which they run, and the views of all their tensors.

    A pass returns another plan: it replaces launches, and modifies its own layout (``layout.copied()``).
    """

    launches: tuple[Launch, ...]
    layout: Layout
