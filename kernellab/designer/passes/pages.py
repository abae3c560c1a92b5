"""Keys in pages: a row whose elements are selected page by page runs along one axis again, for attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernellab.designer.ir.axes import Axis, Free, Ix
from kernellab.designer.ir.expr import Dot, Expr, Iota, Leaf, Op, Red, mapped, walk
from kernellab.designer.ir.extents import times
from kernellab.designer.ir.normal import Output, number
from kernellab.designer.passes.rewrite import Rewrite


def without_pages(outputs: Sequence[Output]) -> list[Output]:
    """Rewrite each softmax over pages selected by values, and over positions in them, as one over a single axis."""
    free, visited = Free(), dict[int, object]()
    nodes = [e for o in outputs for e in walk(o.expr, visited)]
    chosen = {a for e in nodes if isinstance(e, Leaf) for ix in e.index if ix.at is not None for a in free(ix.at)}
    largest = dict.fromkeys(e.axes for e in nodes if isinstance(e, Red) and e.kind == "max")
    rows: dict[tuple[Axis, ...], Axis] = {}
    places: dict[tuple[Axis, ...], Expr] = {}
    for page, place in (axes for axes in largest if len(axes) == 2 and axes[0] in chosen):
        row = rows[page, place] = Axis(times([page.extent, place.extent]))
        parts = Iota(Ix((row,))), number(place.extent)  # type: ignore[arg-type]
        places |= {(page,): Op("floordiv", parts, "int64"), (place,): Op("mod", parts, "int64")}

    def moved(ix: Ix) -> Ix:
        axes = ix.leaves()
        return (
            ix.over((rows[axes],)) if axes in rows else replace(ix, axes=(), at=places[axes]) if axes in places else ix
        )

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Iota):
            ix = moved(e.index)
            return ix.at if ix.at is not None and ix.offset == 0 and ix.sign == 1 else replace(e, index=ix)
        e = mapped(e, visit)
        if isinstance(e, Leaf):
            return replace(e, index=tuple(map(moved, e.index)))
        if isinstance(e, Red) and e.axes in rows:
            return replace(e, over=(rows[e.axes],))
        return replace(e, over=rows[e.axes]) if type(e) is Dot and e.axes in rows else e

    visit = Rewrite(change)
    return [replace(o, expr=visit(o.expr)) for o in outputs] if rows else list(outputs)


__all__ = ["without_pages"]
