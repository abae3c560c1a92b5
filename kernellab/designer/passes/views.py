"""Launches that see one tensor in different shapes, such as rows in one and a flat range of memory in another."""

from __future__ import annotations

from dataclasses import replace

from kernellab.designer.ir.expr import Expr, Leaf
from kernellab.designer.ir.normal import Layout, Output
from kernellab.designer.passes.rewrite import Rewrite


def join(outputs: list[Output], own: Layout, layout: Layout) -> tuple[list[Output], Layout]:
    """Rename ``outputs`` to the names of ``layout``, and extend ``layout`` by their views (``own``).

    A tensor that was seen in another shape before gets a second name inside the Designer.
    """
    views, dtypes, seconds = dict(layout.views), dict(layout.dtypes), dict(layout.seconds)
    names: dict[str, str] = {}
    for tensor, view in own.views.items():
        names_so_far = [tensor, *(n for n, t in seconds.items() if t == tensor)]
        name = next((n for n in names_so_far if views.get(n, view) == view), None)
        if name is None:
            name = f"{tensor}_seen{len(names_so_far)}"
            seconds[name] = tensor
        names[tensor] = name
        views[name] = view
        dtypes[name] = own.dtypes[tensor]

    def change(e: Expr) -> Expr | None:
        if isinstance(e, Leaf) and names[e.tensor] != e.tensor:
            return replace(e.rebuilt([visit(a) for a in e.operands]), tensor=names[e.tensor])
        return None

    visit = Rewrite(change)
    outputs = [replace(o, tensor=names[o.tensor], expr=visit(o.expr)) for o in outputs]
    return outputs, replace(layout, views=views, dtypes=dtypes, seconds=seconds)
