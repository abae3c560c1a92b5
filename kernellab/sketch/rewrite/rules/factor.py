"""Factors that a sum has in every term, taken out of it: a product a row instead of one an element."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, rank_of, ranked
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes

#: types whose sums are kept in their own precision
_EXACT = frozenset(("f32", "f64"))


def factor(setting: Setting) -> Iterator[Change]:
    """``sum(a * s)`` becomes ``sum(a) * s`` where ``s`` is one number for the whole tile.

    Multiplication distributes over the sum up to rounding. What is left in the sum is of float32 or float64, so that
    no integer's sum and no narrow one runs over.
    """
    for number, sketch, known in ranked(setting.tree):
        exact = _exact(sketch)
        for call in nodes(sketch.body):
            made = _factored(call, known, exact) if isinstance(call, tree.Call) else None
            if made is not None:
                new, names = made
                body = edit.instead(sketch.body, call, new)
                why = f"took {' and '.join(names)} out of a sum in {sketch.name}"
                yield edit.with_launch(setting.tree, number, replace(sketch, body=body)), why


def _factored(call: tree.Call, known: dict[str, int], exact: set[str]) -> tuple[tree.Expr, list[str]] | None:
    if call.func != "reduce_sum" or not call.args:
        return None
    inside: list[tree.Expr] = []
    outside: list[tree.Name] = []
    for term in _terms(call.args[0]):
        single = isinstance(term, tree.Name) and known.get(term.id) == 0 and term.id in exact
        (outside if single else inside).append(term)  # type: ignore[arg-type]
    if not outside or not inside or not any(_is_exact(term, exact) for term in inside):
        return None
    try:
        if max(rank_of(term, known) for term in inside) != rank_of(call.args[0], known):
            return None
    except Unknown:
        return None
    product = inside[0]
    for term in inside[1:]:
        product = tree.Binary("*", product, term)
    total: tree.Expr = replace(call, args=(product, *call.args[1:]))
    for name in outside:
        total = tree.Binary("*", total, name)
    return total, [name.id for name in outside]


def _terms(expr: tree.Expr) -> list[tree.Expr]:
    """The factors of a product, left to right."""
    if isinstance(expr, tree.Binary) and expr.op == "*":
        return [*_terms(expr.left), *_terms(expr.right)]
    return [expr]


def _exact(sketch: tree.Sketch) -> set[str]:
    """Tiles that are loaded from tensors of an exact type, and written nowhere else."""
    dtypes = {i.name: i.dtype for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)}
    loaded, other = set[str](), set[str]()
    for node in nodes(sketch.body):
        if isinstance(node, tree.Assign):
            other |= {target.id for target in node.targets}
        elif isinstance(node, tree.Move) and isinstance(node.dest, tree.Name):
            of = dtypes.get(node.source.name) if isinstance(node.source, tree.Subscript) else None
            (loaded if of in _EXACT else other).add(node.dest.id)
    return loaded - other


def _is_exact(term: tree.Expr, exact: set[str]) -> bool:
    if isinstance(term, tree.Name):
        return term.id in exact
    cast = isinstance(term, tree.Call) and term.func == "cast" and len(term.args) == 2
    return cast and isinstance(term.args[1], tree.Name) and term.args[1].id in _EXACT  # type: ignore[union-attr]
