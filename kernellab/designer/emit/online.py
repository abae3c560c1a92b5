"""Two reductions of a long row in one read of it, where the second is relative to the result of the first.

- The squares about the mean: each lane keeps the mean of its elements so far and the squares about that (Welford,
  1962), and the lanes' results are combined at the end (Chan, Golub and LeVeque, 1979).
- The sum of exponentials relative to the largest element: each lane keeps its largest so far, and scales its sum down
  when that grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

A row longer than a tile would otherwise be read once for each reduction, and once more to store.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from kernellab.designer.emit.nodes import Value, call, filled, let, listed
from kernellab.designer.emit.writer import Writer, identity
from kernellab.designer.ir.dtypes import DTYPES, HALVES
from kernellab.designer.ir.expr import Red
from kernellab.designer.ir.pairs import below_of, first_of, held_finite, mean_of_squares_about
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Expr, Name, Num

_DTYPE = "float32"
_ZERO, _ONE = Num(0.0), Num(1.0)


@dataclass(frozen=True)
class Pair:
    """``second`` is a reduction relative to ``first``, or to a value computed from it."""

    first: Red
    second: Red


def pairs(w: Writer) -> dict[int, Pair]:
    """Return the pairs that one pass over the row computes, by the id of the second reduction. Only on a GPU, where
    each pass reads a row from memory again; a CPU has it in its cache."""
    launch_reds = {id(r) for r in w.k.reds} if not w.t.stream.from_cache else set()
    result: dict[int, Pair] = {}
    for r in w.k.reds:
        first = first_of(r)
        if first is None or id(first) not in launch_reds or any(p.first is first for p in result.values()):
            continue
        lanes = w.lane_axes(first)
        same_lanes = lanes == w.lane_axes(r) and lanes != w.kept(first)
        fits = w.t.partials_in_lanes and w.t.core != "coreidx" and same_lanes
        wide = first.dtype == r.dtype == first.arg.dtype == _DTYPE
        narrow = w.t.stream.softmax_in_one_read and first.kind == "max" and first.arg.dtype in HALVES
        if fits and (wide or narrow) and first.chunk is None and r.chunk is None:
            result[id(r)] = Pair(first, r)
    return result


def running_pair(w: Writer, pair: Pair) -> RunningPair:
    """Declare the running results of a pair before its loop."""
    return _Exponentials(w, pair) if pair.first.kind == "max" else _Moments(w, pair)


class RunningPair(ABC):
    """A pair in progress, whose running results stay in the lanes of a tile until the loop ends."""

    def __init__(self, w: Writer, pair: Pair) -> None:
        self._w, self._pair = w, pair
        self._lanes = w.lane_axes(pair.first)

    @abstractmethod
    def step(self) -> None:
        """Write the loop's body: update the running results by one tile."""

    @abstractmethod
    def finish(self) -> None:
        """Write the statements after the loop: combine the lanes."""

    def _declare(self, word: str, start: Expr, shape: list[Expr]) -> str:
        """Return the name of a running result that begins with ``start`` in every lane."""
        stem = self._w.title(self._pair.first).split("_")[0]
        name = self._w.names.fresh(f"{stem}_{word}")
        self._w.scopes[0].body.append(let(name, filled(shape, start, DTYPES[_DTYPE])))
        return name

    def _combine_lanes(self, r: Red, of: Expr) -> None:
        """Write the result of ``r``: ``of``, reduced over the lanes."""
        w, row = self._w, self._w.scopes[0]
        name = w.names.fresh(w.title(r))
        row.body.append(let(name, w.reduce_call(r, Value(of, self._lanes))))
        w.known_as(r, row, Value(Name(name), w.kept(r)))

    def _spread(self, value: Value) -> Expr:
        return self._w.spread(value, self._lanes).tree


class _Exponentials(RunningPair):
    """The largest element, and the sum of the exponentials relative to it.

    If a tile has several rows of lanes, each lane first combines its elements: one exponential scales its sum for all.
    """

    def __init__(self, w: Writer, pair: Pair) -> None:
        super().__init__(w, pair)
        #: the shape of one row of lanes; [] if a tile has only one
        self._row: list[Expr] = [Name(w.t.blocks[self._lanes[-1]])] if w.t.stream.elements_per_lane > 1 else []
        #: a lane's elements lie side by side if it reads them as one vector
        self._side_by_side = w.t.stream.vector > 0
        shape = self._row or w.tile.shape(self._lanes)
        self._top = self._declare("largest", identity(pair.first), shape)
        self._sum = self._declare("sums", _ZERO, shape)

    def step(self) -> None:
        w = self._w
        x = w.named(w.spread(w.masked(self._pair.first), self._lanes), "element").tree
        grown, base = w.names.fresh("grown"), w.names.fresh("base")
        lowest = identity(self._pair.first)
        below: Expr = Name(base)
        if self._row:
            elements, per_lane = w.names.fresh("parts"), Num(w.t.stream.elements_per_lane)
            shape = [*self._row, per_lane] if self._side_by_side else [per_lane, *self._row]
            w.body.append(let(elements, call("reshape", x, listed(shape))))
            every, new = tree.Slice(), tree.NewAxis()
            x, below = Name(elements), tree.Subscript(base, (every, new) if self._side_by_side else (new, every))
        w.body.append(let(grown, call("max", Name(self._top), self._of_lane("max", x))))
        # in a lane with only -inf so far the exponentials are 0; an infinity held finite in the formula stays infinite
        size: Expr = Name(grown)
        if held_finite(below_of(self._pair.second)):
            size, lowest = call("abs", size), Num(math.inf)
        w.body.append(let(base, call("where", Binary("==", size, lowest), _ZERO, Name(grown))))
        rescaled = Binary("*", Name(self._sum), call("exp", Binary("-", Name(self._top), Name(base))))
        added = self._of_lane("sum", call("exp", Binary("-", x, below)))
        w.body.append(let(self._sum, Binary("+", rescaled, added)))
        w.body.append(let(self._top, Name(grown)))

    def _of_lane(self, kind: str, elements: Expr) -> Expr:
        """Return the elements of each lane, combined."""
        return call(f"reduce_{kind}", elements, axis=Num(int(self._side_by_side))) if self._row else elements

    def finish(self) -> None:
        first, second = self._pair.first, self._pair.second
        self._combine_lanes(first, Name(self._top))
        scale = call("exp", Binary("-", Name(self._top), self._spread(self._w.value_of(below_of(second)))))
        self._combine_lanes(second, Binary("*", Name(self._sum), scale))


class _Moments(RunningPair):
    """The mean of the elements so far, and the squares about it."""

    def __init__(self, w: Writer, pair: Pair) -> None:
        super().__init__(w, pair)
        shape = w.tile.shape(self._lanes)
        self._mean, self._squares, self._count = (
            self._declare(word, _ZERO, shape) for word in ("middle", "squares", "seen")
        )

    def step(self) -> None:
        w, r = self._w, self._pair.first
        mean, squares, seen = Name(self._mean), Name(self._squares), Name(self._count)
        x = w.spread(w.value_of(r.arg), self._lanes).tree
        away, step = w.names.fresh("away"), w.names.fresh("step")
        inside = w.inside(r, self._lanes)
        w.body.append(let(away, _where(inside, Binary("-", x, mean), _ZERO)))
        w.body.append(let(self._count, Binary("+", seen, _where(inside, _ONE, _ZERO))))
        count = call("max", seen, _ONE) if inside else seen
        w.body.append(let(step, Binary("/", Name(away), count)))
        w.body.append(let(self._mean, Binary("+", mean, Name(step))))
        more = Binary("*", Name(away), Binary("-", Name(away), Name(step)))
        w.body.append(let(self._squares, Binary("+", squares, more)))

    def finish(self) -> None:
        w = self._w
        self._combine_lanes(self._pair.first, Binary("*", Name(self._mean), Name(self._count)))
        centred = mean_of_squares_about(self._pair.second)
        assert centred is not None
        distance = w.names.fresh("apart")
        row_mean = self._spread(w.value_of(centred.mean))
        w.scopes[0].body.append(let(distance, Binary("-", Name(self._mean), row_mean)))
        moved = Binary("*", Name(self._count), Binary("*", Name(distance), Name(distance)))
        self._combine_lanes(self._pair.second, Binary("+", Name(self._squares), moved))


def _where(inside: Expr | None, value: Expr, other: Expr) -> Expr:
    return value if inside is None else call("where", inside, value, other)
