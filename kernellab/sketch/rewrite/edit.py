"""Reading and changing the tree: loops and their places, renaming, hints, constants and fresh names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add, mul, sub
from typing import Any, NamedTuple, TypeGuard, TypeVar

from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import is_node, library_call, mapped, nodes, statements

Body = tuple[tree.Stmt, ...]
Node = TypeVar("Node")

_STATEMENTS = frozenset((tree.For, tree.If, tree.Assign, tree.Move, tree.CallStmt))


# -- launches ----------------------------------------------------------------------------------------------------------


def launches(file: tree.SketchFile) -> Iterator[tuple[int, tree.Sketch]]:
    """Yield the launches that a rewrite may change: loops and known statements, without library calls."""
    for number, sketch in enumerate(file.sketches):
        if is_plain(sketch):
            yield number, sketch


def is_plain(sketch: tree.Sketch) -> bool:
    """Does ``sketch`` consist of loops and tile statements, without a library call or an opaque operation?"""
    if any(d.kind == "opaque" for d in sketch.declarations):
        return False
    for stmt in statements(sketch.body):
        if type(stmt) not in _STATEMENTS:
            return False
        if library_call(stmt) is not None:
            return False
    return True


def with_launch(file: tree.SketchFile, number: int, *sketches: tree.Sketch) -> tree.SketchFile:
    """Return ``file`` with ``sketches`` in place of the launch of that number."""
    return replace(file, sketches=(*file.sketches[:number], *sketches, *file.sketches[number + 1 :]))


def merged(file: tree.SketchFile, number: int, sketch: tree.Sketch) -> tree.SketchFile:
    """Return ``file`` with ``sketch`` in place of the launch of that number and the next one."""
    return replace(file, sketches=(*file.sketches[:number], sketch, *file.sketches[number + 2 :]))


def tensors(sketch: tree.Sketch) -> dict[str, tree.TensorDecl]:
    """Return the tensors that a launch declares, by name."""
    return {i.name: i for d in sketch.declarations for i in d.items if isinstance(i, tree.TensorDecl)}


# -- loops -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A loop and its place. ``body`` is the block that contains it, ``at`` its position there."""

    launch: int
    loop: tree.For
    around: tuple[tree.For, ...]
    body: Body
    at: int
    _put: Callable[[Body], tree.SketchFile]

    def put(self, *statements: tree.Stmt) -> tree.SketchFile:
        """Return the file with ``statements`` in place of the loop."""
        return self.block((*self.body[: self.at], *statements, *self.body[self.at + 1 :]))

    def block(self, body: Body) -> tree.SketchFile:
        """Return the file with ``body`` in place of the block that contains the loop."""
        return self._put(body)


def places(file: tree.SketchFile) -> Iterator[Place]:
    """Yield every loop of every launch that may be changed, outer before inner."""
    for number, sketch in launches(file):

        def put(body: Body, number: int = number, sketch: tree.Sketch = sketch) -> tree.SketchFile:
            return with_launch(file, number, replace(sketch, body=body))

        yield from _places(number, sketch.body, (), put)


def _places(
    launch: int, body: Body, around: tuple[tree.For, ...], put: Callable[[Body], tree.SketchFile]
) -> Iterator[Place]:
    for at, stmt in enumerate(body):

        def within(part: str, inner: Body, at: int = at, stmt: Any = stmt) -> tree.SketchFile:
            return put((*body[:at], replace(stmt, **{part: inner}), *body[at + 1 :]))

        if isinstance(stmt, tree.For):
            yield Place(launch, stmt, around, body, at, put)
            yield from _places(launch, stmt.body, (*around, stmt), lambda b, w=within: w("body", b))  # type: ignore[misc]
        elif isinstance(stmt, tree.If):
            yield from _places(launch, stmt.then, around, lambda b, w=within: w("then", b))  # type: ignore[misc]
            yield from _places(launch, stmt.orelse, around, lambda b, w=within: w("orelse", b))  # type: ignore[misc]


def grid(sketch: tree.Sketch) -> list[tree.For]:
    """Return the nested parallel loops of a launch, outermost first."""
    loops: list[tree.For] = []
    body = sketch.body
    while body and isinstance(body[-1], tree.For) and is_parallel(body[-1]):
        loops.append(body[-1])
        body = body[-1].body
    return loops


def in_grid(sketch: tree.Sketch, change: Callable[[Body], Body]) -> tree.Sketch:
    """Return ``sketch`` with ``change`` applied to the body of the innermost parallel loop."""

    def inner(body: Body) -> Body:
        if body and isinstance(body[-1], tree.For) and is_parallel(body[-1]):
            return (*body[:-1], replace(body[-1], body=inner(body[-1].body)))
        return change(body)

    return replace(sketch, body=inner(sketch.body))


class Bounds(NamedTuple):
    """The arguments of a loop's ``range``, those that are not written included."""

    start: tree.Expr
    stop: tree.Expr
    step: tree.Expr


def bounds(loop: tree.For) -> Bounds:
    """Return the bounds of a loop."""
    if len(loop.range) == 1:
        return Bounds(number(0), loop.range[0], number(1))
    return Bounds(loop.range[0], loop.range[1], loop.range[2] if len(loop.range) > 2 else number(1))


def is_parallel(loop: tree.For) -> bool:
    """Is the loop a part of the grid, by its hints?"""
    return "parallel" in words(loop)


# -- hints -------------------------------------------------------------------------------------------------------------


def words(loop: tree.For) -> dict[str, tree.Expr | None]:
    """Return the words of a loop's hints, each with the number that follows it."""
    hints: dict[str, tree.Expr | None] = {}
    last = ""
    for arg in (a for hint in loop.hints for a in hint.args):
        if isinstance(arg, tree.Str):
            last = arg.value
            hints[last] = None
        elif last:
            hints[last] = arg
    return hints


def hinted(loop: tree.For, word: str, value: tree.Expr | None = None) -> tree.For:
    """Return ``loop`` with the hint ``word``, in its old position if it had one."""
    args = [a for name, n in {**words(loop), word: value}.items() for a in (tree.Str(name), n) if a is not None]
    return _with_args(loop, args)


def unhinted(loop: tree.For, *hints: str) -> tree.For:
    """Return ``loop`` without ``hints``."""
    others = {word: n for word, n in words(loop).items() if word not in hints}
    return _with_args(loop, [a for word, n in others.items() for a in (tree.Str(word), n) if a is not None])


def sequential(loop: tree.For) -> tree.For:
    """Return ``loop`` without the hints that make its iterations parallel."""
    placed = [w for w in words(loop) if w.startswith(("grididx", "coreidx", "threadidx", "warp"))]
    return unhinted(loop, "parallel", "swizzle", "persistent", *placed)


def _with_args(loop: tree.For, args: Sequence[tree.Expr]) -> tree.For:
    comments = tuple(c for hint in loop.hints for c in hint.comments.before)
    if not args:
        before = replace(loop.comments, before=(*comments, *loop.comments.before))
        return replace(loop, hints=(), comments=before)
    return replace(loop, hints=(tree.Hint(tuple(args), tree.Comments(comments)),))


def parallel_hint(axis: str) -> tree.Hint:
    """Return the hint of a parallel loop along ``axis`` (grididx, coreidx)."""
    return tree.Hint((tree.Str("parallel"), tree.Str(axis)))


def grid_axis(loop: tree.For) -> str:
    """Return the axis in the hints of a parallel loop, without its number; "" without one."""
    axis = next((word for word in words(loop) if word.startswith(("grididx", "coreidx"))), "")
    return axis.partition(".")[0]


# -- constants ---------------------------------------------------------------------------------------------------------


def consts(item: tree.Sketch | tree.SketchFile) -> dict[str, tree.ConstDecl]:
    """Return the constexprs of a launch or of a file, in order."""
    sketches = item.sketches if isinstance(item, tree.SketchFile) else (item,)
    declared = (i for s in sketches for d in s.declarations for i in d.items if isinstance(i, tree.ConstDecl))
    constants: dict[str, tree.ConstDecl] = {}
    for const in declared:
        constants.setdefault(const.name, const)
    return constants


def with_value(file: tree.SketchFile, name: str, value: int, more: Collection[int] = ()) -> tree.SketchFile:
    """Return ``file`` with the constexpr ``name`` at ``value``, and ``more`` added to its choices, in every launch."""

    def changed(item: Any) -> Any:
        if not isinstance(item, tree.ConstDecl) or item.name != name:
            return item
        options = sorted({*integers(item.choices), *more}) if item.choices or more else []
        choices = tuple(number(c) for c in options) if more else item.choices
        return replace(item, value=number(value), choices=choices)

    sketches = []
    for sketch in file.sketches:
        lines = (replace(d, items=tuple(changed(i) for i in d.items)) for d in sketch.declarations)
        sketches.append(replace(sketch, declarations=tuple(lines)))
    return replace(file, sketches=tuple(sketches))


def declare(sketch: tree.Sketch, name: str, value: int, choices: Collection[int] = ()) -> tree.Sketch:
    """Return ``sketch`` with one more constexpr."""
    item = tree.ConstDecl(name, number(value), tuple(number(c) for c in sorted(choices)))
    lines = list(sketch.declarations)
    at = next((i for i, d in enumerate(lines) if d.kind == "constexpr" and not d.pinned), None)
    if at is None:
        at = next((i for i, d in enumerate(lines) if d.kind == "require"), len(lines))
        lines.insert(at, tree.Declaration("constexpr", (item,)))
    else:
        lines[at] = replace(lines[at], items=(*lines[at].items, item))
    return replace(sketch, declarations=tuple(lines))


def declare_tunable(sketch: tree.Sketch, name: str, choices: Sequence[int]) -> tree.Sketch:
    """Return ``sketch`` with one more tunable, at the second of its ascending ``choices`` if there are several."""
    return declare(sketch, name, choices[min(1, len(choices) - 1)], choices)


def integers(exprs: Sequence[tree.Expr]) -> list[int]:
    """Return the whole numbers among ``exprs``, ascending."""
    return sorted(e.value for e in exprs if isinstance(e, tree.Num) and isinstance(e.value, int))


def value_of(expr: tree.Expr, constants: Mapping[str, tree.ConstDecl]) -> int | None:
    """Return the number that ``expr`` is: a literal, or a constexpr's default; None for anything else."""
    if isinstance(expr, tree.Name) and expr.id in constants:
        value = constants[expr.id].value
        return value_of(value, {}) if value is not None else None
    return expr.value if isinstance(expr, tree.Num) and isinstance(expr.value, int) else None


def sizes(sketch: tree.Sketch) -> dict[str, int]:
    """Return the symbols of a launch that have a value."""
    items = (i for d in sketch.declarations for i in d.items if isinstance(i, tree.SymbolDecl))
    return {i.name: v for i in items if i.value is not None and (v := value_of(i.value, {})) is not None}


def trips(sketch: tree.Sketch, loop: tree.For) -> int | None:
    """Return the number of iterations at the defaults; None if unknown."""
    start, stop, step = bounds(loop)
    constants = consts(sketch)
    first, end, stride = (value_of(e, constants) for e in (start, stop, step))
    if end is None and isinstance(stop, tree.Name):
        end = sizes(sketch).get(stop.id)
    if first is None or end is None or not stride:
        return None
    return max(0, -(-(end - first) // stride))


# -- names and expressions ---------------------------------------------------------------------------------------------


def number(value: int) -> tree.Num:
    return tree.Num(value)


def name(word: str) -> tree.Name:
    return tree.Name(word)


#: operators that are applied to two numbers
_FOLDED: Mapping[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}


def binary(op: str, left: tree.Expr, right: tree.Expr) -> tree.Expr:
    """Return ``left op right``, without a neutral operand."""
    if op in "+-" and right == number(0):
        return left
    if op == "+" and left == number(0):
        return right
    if op == "*" and number(1) in (left, right):
        return left if right == number(1) else right
    match left, right:
        case tree.Num(value=int(a)), tree.Num(value=int(b)) if op in _FOLDED:
            return number(_FOLDED[op](a, b))
    return tree.Binary(op, left, right)


def used_names(item: tree.Sketch | tree.SketchFile) -> set[str]:
    """Return every name in ``item``."""
    words = (getattr(node, key, None) for node in nodes(item) for key in ("id", "name", "var", "func"))
    return {word for word in words if isinstance(word, str)}


def fresh(word: str, used: set[str]) -> str:
    """Return ``word``, with the first number that makes it unused if necessary, and add it to ``used``."""
    name = word
    count = 2
    while name in used:
        name = f"{word}{count}"
        count += 1
    used.add(name)
    return name


def mentions(node: object, word: str) -> bool:
    """Is the name ``word`` in a statement, an expression or a tuple of them?"""
    return word in uses(node)


def is_store(node: object) -> TypeGuard[tree.Move]:
    """Is ``node`` a move that writes to a tensor?"""
    return isinstance(node, tree.Move) and isinstance(node.dest, tree.Subscript)


def is_load(node: object) -> TypeGuard[tree.Move]:
    return isinstance(node, tree.Move) and node.op == "load"


def target_tensor(move: tree.Move) -> str:
    """Return the tensor that a store writes; "" for a load."""
    return move.dest.name if isinstance(move.dest, tree.Subscript) else ""


def source_tensor(move: tree.Move) -> str:
    """Return the tensor that a load or gather reads a part of; "" for a store."""
    return move.source.name if isinstance(move.source, tree.Subscript) else ""


def uses(node: object) -> set[str]:
    """Return every name of a tile, a tensor or a number in a statement, an expression or a tuple of them."""
    names: set[str] = set()
    for n in nodes(node):
        if isinstance(n, tree.Name):
            names.add(n.id)
        elif isinstance(n, tree.Subscript):
            names.add(n.name)
    return names


#: the fields that contain the name of a tile, a tensor or a loop variable as a word
_NAMED = {tree.Subscript: "name", tree.For: "var"}


def rename(node: Node, change: Mapping[str, tree.Expr]) -> Node:
    """Return ``node`` with names replaced by expressions; a target of a write, and a tile's or tensor's name, by a
    name."""
    return _rename(node, change)  # type: ignore[no-any-return]


def _rename(node: Any, change: Mapping[str, tree.Expr]) -> Any:
    if isinstance(node, tree.Name):
        return change.get(node.id, node)
    renamed = mapped(node, lambda part: _rename(part, change))
    key = _NAMED.get(type(node))
    new = change.get(getattr(node, key)) if key else None
    return replace(renamed, **{key: new.id}) if key and isinstance(new, tree.Name) else renamed


def substitute(node: Node, change: Callable[[Any], Any]) -> Node:
    """Return ``node`` with each node replaced by ``change`` of it; None keeps the node and descends."""
    return _substitute(node, change)  # type: ignore[no-any-return]


def instead(node: Node, old: object, new: Any) -> Node:
    """Return ``node`` with ``new`` in place of the node object ``old``."""
    return substitute(node, lambda part: new if part is old else None)


def _substitute(node: Any, change: Callable[[Any], Any]) -> Any:
    new = change(node) if is_node(node) else None
    return mapped(node, lambda part: _substitute(part, change)) if new is None else new
