"""Splits short axes: a sum or a maximum along two to four places becomes one over as many tiles.

``reduce_sum(x * y, axis=[0, 1])`` of tiles [n, 2] becomes ``reduce_sum(x_at0 * y_at0 + x_at1 * y_at1, axis=0)`` of
tiles [n]. Packed weights and interleaved pairs have such an axis. It is the innermost of every tile, two elements long;
after the split, each place is a tile whose innermost axis is the next one, and a choice between places
(``where(arange(2) < 1, low, high)``) is removed."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.alive import declared_tiles
from kernellab.sketch.program.program import Tile
from kernellab.sketch.program.walk import statements
from kernellab.sketch.rewrite import edit
from kernellab.sketch.rewrite.ranks import Unknown, axes_of, keeps, rank_of, ranked
from kernellab.sketch.rewrite.record import Change, Setting
from kernellab.sketch.rewrite.rules.inter_kernel import pruned
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.walk import nodes, written

#: the longest axis that is split; chosen, not measured
_MOST_PLACES = 4
_EXACT = frozenset(("f32", "f64"))
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}
_Definition = tree.Assign | tree.Move


def apart(setting: Setting) -> Iterator[Change]:
    """``reduce_sum(e, axis=[..., last])`` becomes the sum over the other axes of ``e`` at each place of its last axis.
    The same numbers are added in another order, in float32 or float64."""
    for number, sketch, tile_ranks in ranked(setting.tree):
        by_name, known_tiles = definitions(sketch), tiles(setting, number)
        for call in nodes(sketch.body):
            if not isinstance(call, tree.Call) or call.func not in ("reduce_sum", "reduce_max", "reduce_min"):
                continue
            places = _Places(tile_ranks, by_name, known_tiles, edit.used_names(setting.tree))
            try:
                new = places.split(call)
            except Unknown:
                continue
            body = edit.instead(sketch.body, call, new)
            new_sketch = pruned(replace(sketch, body=_with_loads(body, places.loads)))
            why = f"took the last axis of a {call.func} in {sketch.name} apart into its {places.length} places"
            yield edit.with_launch(setting.tree, number, new_sketch), why


def definitions(sketch: tree.Sketch) -> dict[str, _Definition]:
    """Return the statement of each tile that only one statement writes, in a block that contains every later reader."""
    writes = Counter(name for stmt in nodes(sketch.body) for name in written(stmt))
    by_name: dict[str, _Definition] = {}
    body: edit.Body = sketch.body
    while body:
        by_name |= {
            written(s)[0]: s
            for s in body
            if isinstance(s, (tree.Assign, tree.Move)) and len(written(s)) == 1 and writes[written(s)[0]] == 1
        }
        body = body[-1].body if isinstance(body[-1], tree.For) and edit.is_parallel(body[-1]) else ()
    return by_name


def tiles(setting: Setting, launch: int) -> dict[str, Tile]:
    """Return the tiles of a launch by name, without names of tiles of several shapes or dtypes."""
    if setting.program is None:
        return {}
    by_name: dict[str, Tile] = {}
    ambiguous: set[str] = set()
    for tile in (t for s in statements(setting.program.kernels[launch].body) for t in declared_tiles(s)):
        first = by_name.setdefault(tile.name, tile)
        if (first.shape, first.dtype) != (tile.shape, tile.dtype):
            ambiguous.add(tile.name)
    return {name: tile for name, tile in by_name.items() if name not in ambiguous}


def _with_loads(body: edit.Body, more: Mapping[str, list[tree.Move]]) -> edit.Body:
    """Return ``body`` with more loads directly after those of the same tensor's tile."""
    statements: list[tree.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tree.For):
            stmt = replace(stmt, body=_with_loads(stmt.body, more))
        statements.append(stmt)
        if edit.is_load(stmt):
            statements += more.get(written(stmt)[0], ())
    return tuple(statements)


@dataclass
class _Places:
    """Expressions at single places of the last axis. Methods raise Unknown for an expression without a meaning
    there."""

    ranks: Mapping[str, int]
    definitions: Mapping[str, _Definition]
    tiles: Mapping[str, Tile]
    used: set[str]
    #: loaded tile -> the loads of its places
    loads: dict[str, list[tree.Move]] = field(default_factory=dict)
    #: (loaded tile, place) -> the name of its tile
    names: dict[tuple[str, int], tree.Name] = field(default_factory=dict)
    #: the length of the last axis; 0 until an expression shows it
    length: int = 0

    def split(self, call: tree.Call) -> tree.Expr:
        """Return the replacement of the reduction ``call``."""
        inside = call.args[0]
        rank = rank_of(inside, self.ranks)
        axes = axes_of(call, rank)
        if rank < 1 or rank - 1 not in axes or keeps(call) or not self._is_exact(inside):
            raise Unknown
        at_first = self.at(inside, 0)
        if not 2 <= self.length <= _MOST_PLACES:
            raise Unknown
        terms = [at_first, *(self.at(inside, n) for n in range(1, self.length))]
        if call.func == "reduce_sum":
            joined = reduce(partial(tree.Binary, "+"), terms)
        else:
            joined = reduce(lambda a, b: tree.Call(call.func.removeprefix("reduce_"), (a, b)), terms)
        left = [edit.number(a) for a in axes if a != rank - 1]
        if not left:
            return joined
        axis = left[0] if len(left) == 1 else tree.List(tuple(left))
        return tree.Call(call.func, (joined,), (tree.Keyword("axis", axis),))

    def at(self, expr: tree.Expr, place: int) -> tree.Expr:
        """Return ``expr`` at one place of its last axis; a single number is unchanged."""
        if rank_of(expr, self.ranks) == 0:
            return expr
        match expr:
            case tree.Name():
                return self._name(expr, place)
            case tree.Subscript():
                return self._broadcast(expr, place)
            case tree.Unary():
                return replace(expr, operand=self.at(expr.operand, place))
            case tree.Binary():
                left, right = self.at(expr.left, place), self.at(expr.right, place)
                return _folded(replace(expr, left=left, right=right))
            case tree.Call(func="arange", args=(tree.Num(value=int(count)),)):
                self._check_length(count)
                # of arange's type: a bare number would take the type of the other operand
                return tree.Call("cast", (edit.number(place), tree.Name("i64")))
            case tree.Call(func="cast"):
                return replace(expr, args=(self.at(expr.args[0], place), *expr.args[1:]))
            case tree.Call():
                if expr.func not in OPS or OPS[expr.func].kind not in (OpKind.POINTWISE, OpKind.COMPARE):
                    raise Unknown
                return self._without_choice(replace(expr, args=tuple(self.at(a, place) for a in expr.args)))
        raise Unknown

    def _name(self, name: tree.Name, place: int) -> tree.Expr:
        origin = self.definitions.get(name.id)
        if isinstance(origin, tree.Assign):
            if any(read in self.ranks and read not in self.definitions for read in edit.uses(origin.value)):
                raise Unknown  # it may be written again before it is read here
            return self.at(origin.value, place)
        if (
            origin is None
            or not edit.is_load(origin)
            or not isinstance(origin.source, tree.Subscript)
            or origin.keywords
        ):
            raise Unknown
        items = origin.source.items
        last = max(n for n, item in enumerate(items) if isinstance(item, tree.Slice))
        match items[last]:
            case tree.Slice(start=tree.Num(value=int(start)), stop=tree.Num(value=int(stop)), step=None):
                self._check_length(stop - start)
            case _:
                raise Unknown
        if (name.id, place) not in self.names:
            tile = tree.Name(edit.fresh(f"{name.id}_at{place}", self.used))
            self.names[name.id, place] = tile
            source = replace(origin.source, items=(*items[:last], edit.number(start + place), *items[last + 1 :]))
            load = replace(origin, source=source, dest=tile, comments=tree.NO_COMMENTS, pinned=False)
            self.loads.setdefault(name.id, []).append(load)
        return self.names[name.id, place]

    def _broadcast(self, expr: tree.Subscript, place: int) -> tree.Expr:
        """Return ``name[:, None]`` without its last axis, which is a new one."""
        *first, last = expr.items
        if not isinstance(last, tree.NewAxis):
            inner = self.at(tree.Name(expr.name), place)
            if not isinstance(inner, tree.Name):
                raise Unknown
            expr = replace(expr, name=inner.id)
        items = tuple(first)
        if any(isinstance(item, tree.NewAxis) for item in items):
            return replace(expr, items=items)
        return tree.Name(expr.name)

    def _without_choice(self, call: tree.Call) -> tree.Expr:
        """Return one side of a choice whose condition is constant, if both sides have one type."""
        if call.func != "where" or not isinstance(call.args[0], tree.Bool):
            return call
        sides = call.args[1:]
        types = {self.tiles[s.id].dtype for s in sides if isinstance(s, tree.Name) and s.id in self.tiles}
        if not all(isinstance(s, tree.Name) and s.id in self.tiles for s in sides) or len(types) != 1:
            return call
        return sides[0] if call.args[0].value else sides[1]

    def _check_length(self, length: int) -> None:
        if self.length not in (0, length):
            raise Unknown
        self.length = length

    def _is_exact(self, expr: tree.Expr) -> bool:
        """Is the value certainly float32 or float64?"""
        match expr:
            case tree.Name() | tree.Subscript():
                name = expr.id if isinstance(expr, tree.Name) else expr.name
                return name in self.tiles and self.tiles[name].dtype.value in _EXACT
            case tree.Unary(op="-"):
                return self._is_exact(expr.operand)
            case tree.Binary(op="+" | "-" | "*" | "/"):
                return self._is_exact(expr.left) or self._is_exact(expr.right)
            case tree.Call(func="cast", args=(_, tree.Name(id=dtype))):
                return dtype in _EXACT
            case tree.Call(func="where", args=(_, value, other)):
                return self._is_exact(value) or self._is_exact(other)
            case tree.Call(func=func, args=args) if func in OPS and OPS[func].kind is OpKind.POINTWISE:
                return func != "bitcast" and any(map(self._is_exact, args))
        return False


def _without_cast(expr: tree.Expr) -> tree.Expr:
    """Return the number of a place without the cast to its dtype; any other expression as it is."""
    match expr:
        case tree.Call(func="cast", args=(tree.Num(value=int()) as number, tree.Name(id="i64"))):
            return number
    return expr


def _folded(expr: tree.Binary) -> tree.Expr:
    """Return the result of a comparison of two numbers."""
    numbers = [s.value for s in map(_without_cast, (expr.left, expr.right)) if isinstance(s, tree.Num)]
    return tree.Bool(_COMPARE[expr.op](*numbers)) if expr.op in _COMPARE and len(numbers) == 2 else expr
