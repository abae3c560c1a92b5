"""Splits one launch in two: at a statement, or a long loop into parallel parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernellab.sketch.check.split import cannot_split
from kernellab.sketch.program.program import DType, Tile
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import StoredTile, pruned, stored_tile, tiles_of, with_tensors
from kernellab.sketch.rewrite.rules.loops import writes_memory
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.printer import format_statement
from kernellab.sketch.syntax.walk import nodes, written

#: most tiles between two launches, and most places at which one launch is cut; chosen, not measured
_PASSED, _CUTS = 2, 3
#: numbers of parts of a loop; chosen, not measured
_PARTS = (2, 4, 8)
#: functions that join two parts; sums and products are operators
_JOINS = ("max", "min")


def cut(setting: Setting) -> Iterator[Change]:
    """Cut a launch between two statements: live tiles are stored, and a second launch continues from them.

    Tiles that are only loaded from inputs, or computed from indices, are loaded or computed again instead."""
    for number, sketch in edit.launches(setting.tree):
        grid = edit.grid(sketch)
        if not grid or any(s.pinned for s in (*grid, *grid[-1].body)):
            continue
        body = grid[-1].body
        tiles = tiles_of(setting, number, grid[-1])
        steps = _steps(body)
        cuts = [one for at in range(1, len(body)) if (one := _cut_at(steps, at, tiles)) is not None]
        for one in sorted(cuts, key=lambda c: (len(c.passed), c.at))[:_CUTS]:
            used = edit.used_names(setting.tree)
            stored = _storage(one.passed, tiles, grid, used)
            if stored is None:
                continue
            between = f"with {' and '.join(one.passed) or 'nothing'} stored between"
            why = f"cut {sketch.name} in two before '{format_statement(body[one.at])}', {between}"
            yield edit.with_launch(setting.tree, number, *_halves(sketch, one, stored, used)), why


def _storage(
    names: Iterable[str], tiles: Mapping[str, Tile], grid: Sequence[tree.For], used: set[str]
) -> list[StoredTile] | None:  # fmt: skip
    """Return a temporary tensor for each of ``names``; None if one cannot be stored for each iteration of the grid."""
    stored: list[StoredTile] = []
    for name in names:
        tensor = stored_tile(tiles[name], grid, used) if name in tiles else None
        if tensor is None:
            return None
        stored.append(tensor)
    return stored


@dataclass(frozen=True)
class _Step:
    """One statement of a launch's body, with the names that it writes and uses, inner statements included."""

    stmt: tree.Stmt
    writes: frozenset[str]
    names: frozenset[str]
    stores: frozenset[str]
    #: the names in the source of a load or an assignment; None for any other statement
    reads: frozenset[str] | None

    def is_cheap(self, changed: frozenset[str]) -> bool:
        """Is it a load or an assignment that reads nothing that is ``changed``: only inputs or indices?"""
        return self.reads is not None and not self.reads & changed

    @property
    def is_bare_store(self) -> bool:
        """Does it store a tile as it is?"""
        return isinstance(self.stmt, tree.Move) and isinstance(self.stmt.source, tree.Name)


def _steps(body: edit.Body) -> list[_Step]:
    steps = []
    for stmt in body:
        inside = list(nodes(stmt))
        writes = frozenset(name for n in inside for name in written(n))
        stores = frozenset(edit.target_tensor(n) for n in inside if edit.is_store(n))
        value = stmt.source if edit.is_load(stmt) else stmt.value if isinstance(stmt, tree.Assign) else None
        reads = None if value is None else frozenset(edit.uses(value))
        steps.append(_Step(stmt, writes, frozenset(edit.uses(stmt)), stores, reads))
    return steps


@dataclass(frozen=True)
class _Cut:
    """A cut before statement ``at``: the statements that the second launch repeats, and the tiles that the first stores
    for it."""

    at: int
    again: edit.Body
    passed: tuple[str, ...]


def _cut_at(steps: list[_Step], at: int, tiles: Mapping[str, Tile]) -> _Cut | None:
    """Return the cut before statement ``at``; None where it has no use, or a tile cannot be stored."""
    first, second = steps[:at], steps[at:]
    stored = frozenset().union(*(s.stores for s in first))
    written = frozenset().union(*(s.writes for s in first))
    writes = Counter(name for s in steps for name in s.writes)
    needed = set(written & frozenset().union(*(s.names for s in second)))
    again: list[tree.Stmt] = []
    for step in reversed(first):
        # written once, only from an input or from indices
        once = step.writes & needed and all(writes[name] == 1 for name in step.writes)
        if once and step.is_cheap(written | stored):
            needed -= step.writes
            again.insert(0, step.stmt)
    passed = tuple(sorted(needed))
    can_pass = len(passed) <= _PASSED and all(n in tiles and tiles[n].dtype is not DType.BOOL for n in passed)
    first_works = any(not s.is_cheap(written) for s in first) and bool(passed or stored)
    # the second must do more than store what it loads
    second_works = any(not s.is_bare_store for s in second) and any(s.stores for s in second)
    return _Cut(at, tuple(again), passed) if can_pass and first_works and second_works else None


def _halves(
    sketch: tree.Sketch, cut: _Cut, stored: list[StoredTile], used: set[str]
) -> tuple[tree.Sketch, tree.Sketch]:
    """Return the launches before and after a cut; ``stored`` are the tiles that pass between them."""
    declared = with_tensors(sketch, [tile.declared() for tile in stored])
    first = edit.in_grid(declared, lambda body: (*body[: cut.at], *(tile.store() for tile in stored)))
    loads = [tile.load(tile.tile.name) for tile in stored]
    second = edit.in_grid(declared, lambda body: (*cut.again, *loads, *body[cut.at :]))
    names = [edit.fresh(f"{sketch.name}_{word}", used) for word in ("begin", "end")]
    return pruned(replace(first, name=names[0])), pruned(replace(second, name=names[1], comments=tree.NO_COMMENTS))


def split_k(setting: Setting) -> Iterator[Change]:
    """Split a summing loop into parts that run in parallel programs; a second launch adds them up.

    Carried tiles must combine associatively and start from the neutral element, so that only rounding differs."""
    for number, sketch in edit.launches(setting.tree):
        grid = edit.grid(sketch)
        if not grid or any(s.pinned for s in grid):
            continue
        body = grid[-1].body
        for at, loop in enumerate(body):
            if not isinstance(loop, tree.For) or not _is_sum(setting, number, body[:at], loop):
                continue
            carried = _joins(body[:at], loop)
            trips = edit.trips(sketch, loop)
            options = [p for p in _PARTS if trips is None or p <= trips]
            if not options or not 0 < len(carried) <= _PASSED:
                continue
            used = edit.used_names(setting.tree)
            stored = _storage(carried, tiles_of(setting, number, grid[-1]), grid, used)
            if stored is None:
                continue
            parts = _parts(sketch, at, loop, carried, stored, options, used)
            why = f"split the loop over {loop.var} in {sketch.name} into parts that run at once, then adds them up"
            yield edit.with_launch(setting.tree, number, *parts), why


def _is_sum(setting: Setting, launch: int, before: edit.Body, loop: tree.For) -> bool:
    """Does a loop from 0 on only carry tiles that combine associatively, and is nothing stored before its end?"""
    if edit.bounds(loop).start != edit.number(0) or writes_memory(loop) or any(edit.is_store(n) for n in nodes(before)):
        return False
    resolved = setting.resolved(launch, loop)
    return resolved is not None and not cannot_split(resolved)


def _parts(
    sketch: tree.Sketch, at: int, loop: tree.For, joins: Mapping[str, str], stored: list[StoredTile],
    options: list[int], used: set[str],
) -> tuple[tree.Sketch, tree.Sketch]:  # fmt: skip
    """Return the launch that sums the parts of ``loop``, statement ``at``, and the one that joins them.

    ``joins`` says how two parts of each carried tile combine, ``stored`` are these tiles between the launches, and
    ``options`` are the numbers of parts to choose from.
    """
    count, part = tree.Name(edit.fresh("PARTS", used)), tree.Name(edit.fresh("part", used))
    declared = with_tensors(sketch, [tile.declared((count,)) for tile in stored])
    declared = edit.declare_tunable(declared, count.id, options)
    one_part = _part_of(loop, part, count)
    first = edit.in_grid(declared, lambda body: (*body[:at], one_part, *(tile.store((part,)) for tile in stored)))
    outer = edit.grid(first)[0]
    hint = edit.parallel_hint(edit.grid_axis(outer) or "grididx")
    first = replace(first, body=(*first.body[:-1], tree.For(part.id, (count,), (_flat(outer),), (hint,))))
    joined: list[tree.Stmt] = []
    for tile in stored:
        name = tile.tile.name
        loaded = edit.fresh(f"{name}_part", used)
        pair = (tree.Name(name), tree.Name(loaded))
        value = tree.Call(joins[name], pair) if joins[name] in _JOINS else tree.Binary(joins[name], *pair)
        joined += [tile.load(loaded, (part,)), tree.Assign((tree.Name(name),), value)]
    combine = tree.For(part.id, (count,), tuple(joined))
    second = edit.in_grid(declared, lambda body: (*body[:at], combine, *body[at + 1 :]))
    names = [edit.fresh(f"{sketch.name}_{word}", used) for word in ("parts", "sum")]
    return pruned(replace(first, name=names[0])), pruned(replace(second, name=names[1], comments=tree.NO_COMMENTS))


def _part_of(loop: tree.For, part: tree.Name, count: tree.Name) -> tree.For:
    """Return ``loop`` over the iterations of part number ``part`` of ``count`` parts."""
    _, stop, step = edit.bounds(loop)
    steps = stop if step == edit.number(1) else tree.Call("ceil", (stop, step))
    span = edit.binary("*", tree.Call("ceil", (steps, count)), step)
    begin = edit.binary("*", part, span)
    end = tree.Call("min", (edit.binary("+", begin, span), stop))
    return replace(loop, range=(begin, end) if step == edit.number(1) else (begin, end, step))


def _flat(loop: tree.For) -> tree.For:
    """Return a grid without numbered axes, since one more loop is around it."""
    words = {w.partition(".")[0] if w.startswith("grididx") else w: n for w, n in edit.words(loop).items()}
    args = tuple(a for w, n in words.items() for a in (tree.Str(w), n) if a is not None)
    body = tuple(_flat(s) if isinstance(s, tree.For) and edit.is_parallel(s) else s for s in loop.body)
    return replace(loop, hints=(replace(loop.hints[0], args=args),) if loop.hints else (), body=body)


def _joins(before: edit.Body, loop: tree.For) -> dict[str, str]:
    """Return how two parts of each tile that ``loop`` carries combine; empty if one does not start from the neutral
    element."""
    starts = {name: stmt for stmt in before if isinstance(stmt, tree.Assign) for name in written(stmt)}
    others = {name for stmt in before if not isinstance(stmt, tree.Assign) for name in written(stmt)}
    joins: dict[str, str] = {}
    for node in nodes(loop.body):
        for name in written(node):
            if name in others:
                return {}
            if name not in starts:
                continue
            join = _join(node)
            if join is None or joins.setdefault(name, join) != join or not _is_neutral(starts[name], join):
                return {}
    return joins


def _join(node: object) -> str | None:
    """Return how a statement adds to what it writes: "+", "*", max or min; None for any other statement."""
    if isinstance(node, tree.CallStmt):
        return "+" if node.call.func == "gemm" else None
    value = node.value if isinstance(node, tree.Assign) else None
    if isinstance(value, tree.Call) and value.func in _JOINS:
        return value.func
    if isinstance(value, tree.Binary) and value.op in ("+", "-", "*"):
        return "*" if value.op == "*" else "+"
    return None


#: the neutral element of each combination
_NEUTRAL = {"+": "0", "*": "1", "max": "-inf", "min": "inf"}


def _is_neutral(start: tree.Assign, join: str) -> bool:
    """Does ``start`` fill a tile with the neutral element of ``join``?"""
    value = start.value
    if not isinstance(value, tree.Call):
        return False
    if value.func == "alloc":
        return join == "+" and any(n == tree.Str("init_zero") for n in nodes(value))
    position = {"full": 1, "cast": 0}.get(value.func)
    value_of_argument = value.args[position] if position is not None and len(value.args) > position else None
    return isinstance(value_of_argument, tree.Num) and float(value_of_argument.value) == float(_NEUTRAL[join])
