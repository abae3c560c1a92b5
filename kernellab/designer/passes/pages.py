"""Keys in pages: a row whose elements are chosen page by page runs along one axis again, for attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.designer.ir.expr import Axis, Dot, Expr, Free, Iota, Ix, Leaf, Op, Red, mapped, walk
from kernellab.designer.ir.extents import times
from kernellab.designer.ir.normal import Output, number
from kernellab.designer.passes.plan import Rewrite


def without_pages(outputs: Sequence[Output]) -> list[Output]:
    """``outputs`` with each softmax over pages, which values choose, and places in them as one over one axis."""
    free, seen = Free(), dict[int, object]()
    nodes = [e for o in outputs for e in walk(o.expr, seen)]
    chosen = [free(ix.at) for e in nodes if isinstance(e, Leaf) for ix in e.index if ix.at is not None]
    rows: dict[tuple[Axis, ...], Axis] = {}
    places: dict[tuple[Axis, ...], Expr] = {}
    for e in nodes:
        if isinstance(e, Red) and e.kind == "max" and len(e.axes) == 2 and e.axes not in rows:
            page, place = e.axes
            if any(page in axes for axes in chosen):
                row = rows[e.axes] = Axis(times([page.extent, place.extent]))
                pair = Iota(Ix((row,))), number(place.extent)  # type: ignore[arg-type]
                places |= {(page,): Op("floordiv", pair, "int64"), (place,): Op("mod", pair, "int64")}

    def moved(ix: Ix) -> Ix:
        if ix.leaves() in rows:
            return ix.over((rows[ix.leaves()],))
        return replace(ix, axes=(), at=places[ix.leaves()]) if ix.leaves() in places else ix

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Iota):
            return (
                places[e.index.leaves()]
                if e.index.plain and e.index.leaves() in places
                else Iota(moved(e.index), e.dtype, e.line)
            )
        e = mapped(e, visit)
        if isinstance(e, Leaf):
            return replace(e, index=tuple(map(moved, e.index)))
        if isinstance(e, Red) and e.axes in rows:
            return replace(e, over=(rows[e.axes],))
        return replace(e, over=rows[e.axes]) if type(e) is Dot and e.axes in rows else e

    visit = Rewrite(change)
    return [replace(o, expr=visit(o.expr)) for o in outputs] if rows else list(outputs)


__all__ = ["without_pages"]
