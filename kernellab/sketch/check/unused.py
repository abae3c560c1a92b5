"""Names that a sketch sets and nothing reads: mostly a misspelt use, or a remainder of an edit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kernellab.records import Diagnostic
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.messages import diagnostic_at
from kernellab.sketch.syntax.walk import destination, names, nodes, statements


def unused_names(file: tree.SketchFile) -> Iterator[Diagnostic]:
    """Yield a warning at the first assignment of each tile or index name that no statement reads, except to set it
    again."""
    for sketch in file.sketches:
        first: dict[str, tree.Name] = {}
        read: set[str] = set(_subscripted(sketch.body))
        for stmt in statements(sketch.body):
            targets, reads = _names_of(stmt)
            for target in targets:
                first.setdefault(target.id, target)
            read |= set(reads) - {t.id for t in targets}
        tensors = {i.name for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)}
        for name, target in first.items():
            if name not in read | tensors:
                yield diagnostic_at("unused-name", target.span, name=name)


def _names_of(stmt: tree.Stmt) -> tuple[tuple[tree.Name, ...], Iterable[str]]:
    """Return the names that a statement sets, and those that it reads; for a statement with a body, those of its
    header."""
    match stmt:
        case tree.For():
            return (), names(stmt.range)
        case tree.If():
            return (), names(stmt.cond)
        case tree.Assign():
            return stmt.targets, names(stmt.value)
        case tree.Move(dest=tree.Name() as tile):
            return (tile,), names((stmt.source, stmt.keywords))
        case tree.CallStmt() if isinstance(dest := destination(stmt.call), tree.Name):
            args = (*stmt.call.args, *(k.value for k in stmt.call.keywords))
            return (dest,), names(tuple(a for a in args if a is not dest))
        case _:
            return (), names(stmt)


def _subscripted(body: tuple[tree.Stmt, ...]) -> Iterator[str]:
    """``x`` in ``x[:, None]``."""
    return (n.name for n in nodes(body) if isinstance(n, tree.Subscript))
