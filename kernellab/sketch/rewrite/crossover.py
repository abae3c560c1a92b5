"""Children of two sketches of one task: launches of both, joined where what passes between them agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernellab.sketch.check import check
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Rewritten
from kernellab.sketch.rewrite.rules.tiles import LAUNCH
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.parse import parse
from kernellab.sketch.syntax.printer import format, format_expr
from kernellab.sketch.syntax.walk import library_call, nodes

NAME = "crossover"


def crossover(first: str, second: str) -> list[Rewritten]:
    """Children of two sketches that have no error, none twice, and none of them a parent.

    A child has the first's launches up to a boundary and the second's from one on, or the other way round, or one
    launch of the other; what a launch reads must have been written before it, in the same shape and dtype, and each
    output once. Last come the first's launches with the second's values of the tunables that both have. Names and
    shapes agree, so meaning may still differ: the gate tells.

    Raises:
        SketchError: one of the two cannot be read.
    """
    parents = parse(first), parse(second)
    seen = {format(p) for p in parents}
    found = []
    for file, why in _children(*parents):
        text = format(file)
        if text in seen:
            continue
        seen.add(text)
        if check(text, parent=first).program is not None:
            found.append(Rewritten(NAME, text, why))
    return found


@dataclass(frozen=True)
class _Boundary:
    """What a launch reads and writes: tensor -> its dtype and number of elements, as text."""

    reads: frozenset[tuple[str, str]]
    writes: frozenset[tuple[str, str]]


def _children(first: tree.SketchFile, second: tree.SketchFile) -> Iterator[tuple[tree.SketchFile, str]]:
    for (a, one), (b, other) in (((first, "first"), (second, "second")), ((second, "second"), (first, "first"))):
        for i in range(1, len(a.sketches)):
            for j in range(1, len(b.sketches)):
                joined = (*a.sketches[:i], *b.sketches[j:])
                if _whole(joined, a):
                    why = f"took {_launches(i)} of the {one} sketch and the {other}'s from {b.sketches[j].name} on"
                    yield _joined(a, joined), why
    for i, mine in enumerate(first.sketches):
        for theirs in second.sketches:
            if _boundary(mine) == _boundary(theirs) and len(first.sketches) > 1:
                joined = (*first.sketches[:i], theirs, *first.sketches[i + 1 :])
                yield _joined(first, joined), f"took {theirs.name} from the second sketch in place of {mine.name}"
    yield from _valued(first, second)


def _launches(count: int) -> str:
    return "the first launch" if count == 1 else f"the first {count} launches"


def _valued(first: tree.SketchFile, second: tree.SketchFile) -> Iterator[tuple[tree.SketchFile, str]]:
    child, taken = first, []
    theirs = edit.consts(second)
    for name, const in edit.consts(first).items():
        value = edit.value_of(tree.Name(name), theirs) if name in theirs else None
        if value in edit.integers(const.choices) and value != edit.value_of(tree.Name(name), {name: const}):
            assert value is not None
            child = edit.with_value(child, name, value)
            taken.append(f"{name} = {value}")
    if taken:
        yield child, f"took {', '.join(taken)} from the second sketch"


def _whole(sketches: tuple[tree.Sketch, ...], parent: tree.SketchFile) -> bool:
    """Is what each launch reads of others written before it, and each output of ``parent`` written once?"""
    temporary = {i.name for s in (*sketches, *parent.sketches) for i in _tensors(s) if i.role == "temp"}
    outputs = {name for s in parent.sketches for name, _ in _boundary(s).writes} - temporary
    ready: set[tuple[str, str]] = set()
    done: list[str] = []
    for sketch in sketches:
        edge = _boundary(sketch)
        if any(t[0] in temporary and t not in ready for t in edge.reads - edge.writes):
            return False
        ready |= edge.writes
        done += [name for name, _ in edge.writes if name not in temporary]
    return sorted(done) == sorted(outputs)


def _boundary(sketch: tree.Sketch) -> _Boundary:
    reads: set[str] = set()
    writes: set[str] = set()
    for node in nodes(sketch.body):
        if isinstance(node, tree.Move):
            into, side = (reads, node.source) if node.op in ("load", "gather") else (writes, node.dest)
            into.add(side.name if isinstance(side, tree.Subscript) else getattr(side, "id", ""))
        elif isinstance(node, tree.Assign) and library_call(node) is not None:
            reads |= edit.uses(node.value)
            writes |= {t.id for t in node.targets}
    shapes = {i.name: _extent(i) for i in _tensors(sketch)}
    return _Boundary(*(frozenset((n, shapes[n]) for n in names if n in shapes) for names in (reads, writes)))


def _extent(item: tree.TensorDecl) -> str:
    """The dtype and the number of elements: launches may see a tensor in several shapes."""
    known, rest = 1, []
    for dim in item.shape:
        if isinstance(dim, tree.Num) and isinstance(dim.value, int):
            known *= dim.value
        else:
            rest.append(format_expr(dim))
    return f"{item.dtype} {known} {' '.join(sorted(rest))}"


def _tensors(sketch: tree.Sketch) -> list[tree.TensorDecl]:
    return [i for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)]


def _joined(first: tree.SketchFile, sketches: tuple[tree.Sketch, ...]) -> tree.SketchFile:
    """One file of launches of two: a launch's name is new, and a constexpr that means two values has two names."""
    taken: set[str] = set()
    known: dict[str, tree.ConstDecl] = {}
    words = set().union(*(edit.used_names(s) for s in sketches))
    made = []
    for sketch in sketches:
        change: dict[str, tree.Expr] = {}
        for const in edit.consts(sketch).values():
            before = known.setdefault(const.name, const)
            if before != const and const.name not in LAUNCH:
                change[const.name] = tree.Name(edit.fresh(const.name, words))
        lines = tuple(_renamed(d, change, known) for d in sketch.declarations)
        body = edit.rename(sketch.body, change)
        made.append(replace(sketch, name=edit.fresh(sketch.name, taken), declarations=lines, body=body))
    return replace(first, sketches=tuple(made))


def _renamed(
    line: tree.Declaration, change: dict[str, tree.Expr], known: dict[str, tree.ConstDecl]
) -> tree.Declaration:
    """A declaration with constexprs under their new names; of warps and stages a file has one value."""

    def item(i: object) -> object:
        if not isinstance(i, tree.ConstDecl):
            return edit.rename(i, change)
        new = change.get(i.name)
        return replace(i, name=new.id) if isinstance(new, tree.Name) else known.get(i.name, i)

    return replace(line, items=tuple(item(i) for i in line.items))  # type: ignore[misc]
