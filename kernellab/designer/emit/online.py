"""Two reductions of a long row in one read of it, where the second is about what the first comes to.

- The squares about the mean: each lane keeps the mean of what it has seen and the squares about that (Welford, 1962),
  and the lanes' are put together at the end (Chan, Golub and LeVeque, 1979).
- The sum of exponentials below the largest element: each lane keeps its largest so far, and scales its sum down when
  that grows (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

A row that is longer than a tile was read once for each reduction, and once more to store.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.designer.emit.nodes import Value, call, filled, let
from kernellab.designer.emit.writer import Writer, identity
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Red
from kernellab.designer.ir.pairs import first_of, mean_of_squares_about
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.tree import Binary, Name, Num

_DTYPE = "float32"
_ZERO, _ONE = Num(0.0), Num(1.0)


@dataclass(frozen=True)
class Pair:
    """``second`` is a reduction about ``first``, or about what is made of it."""

    first: Red
    second: Red

    @property
    def largest(self) -> bool:
        """The largest element and the exponentials below it, not the mean and the squares about it."""
        return self.first.kind == "max"


def pairs(w: Writer) -> dict[int, Pair]:
    """Pairs that one pass over the row makes, by the second one's id. On a GPU, where a row that comes again is read
    from memory again; a CPU has it in its cache."""
    mine = {id(r) for r in w.k.reds}
    found: dict[int, Pair] = {}
    for r in w.k.reds:
        first = first_of(r)
        if first is None or id(first) not in mine or any(p.first is first for p in found.values()):
            continue
        lanes = w.lane_axes(first)
        fits = w.t.lanes and w.t.core != "coreidx" and lanes == w.lane_axes(r) and lanes != w.kept(first)
        if fits and first.dtype == r.dtype == first.arg.dtype == _DTYPE and first.chunk is None and r.chunk is None:
            found[id(r)] = Pair(first, r)
    return found


class Running:
    """A pair on its way through the loop: :meth:`step` is the body's, :meth:`finish` stands behind it."""

    def __init__(self, w: Writer, pair: Pair) -> None:
        self._w, self._pair = w, pair
        self._lanes = w.lane_axes(pair.first)
        words = ("largest", "sums") if pair.largest else ("middle", "squares", "seen")
        self._names = [w.names.fresh(f"{w.title(pair.first).split('_')[0]}_{word}") for word in words]
        starts = [identity(pair.first) if pair.largest else _ZERO, *([_ZERO] * (len(words) - 1))]
        shape, row = w.shape(self._lanes), w.scopes[0].body
        for name, start in zip(self._names, starts, strict=True):
            row.append(let(name, filled(shape, start, DTYPES[_DTYPE])))

    def step(self) -> None:
        (self._exponentials if self._pair.largest else self._moments)()

    def _exponentials(self) -> None:
        w = self._w
        top, sums = self._names
        x = w.named(w.spread(w.masked(self._pair.first), self._lanes), "element").tree
        grown, base = w.names.fresh("grown"), w.names.fresh("base")
        lowest = identity(self._pair.first)
        w.body.append(let(grown, call("max", Name(top), x)))
        # where a lane has met -inf alone its exponentials are 0
        w.body.append(let(base, call("where", Binary("==", Name(grown), lowest), _ZERO, Name(grown))))
        before = Binary("*", Name(sums), call("exp", Binary("-", Name(top), Name(base))))
        w.body.append(let(sums, Binary("+", before, call("exp", Binary("-", x, Name(base))))))
        w.body.append(let(top, Name(grown)))

    def _moments(self) -> None:
        w, r = self._w, self._pair.first
        middle, squares, seen = self._names
        x = w.spread(w.value_of(r.arg), self._lanes).tree
        away, step = w.names.fresh("away"), w.names.fresh("step")
        inside = w.inside(r, self._lanes)
        w.body.append(let(away, _where(inside, Binary("-", x, Name(middle)), _ZERO)))
        w.body.append(let(seen, Binary("+", Name(seen), _where(inside, _ONE, _ZERO))))
        count = call("max", Name(seen), _ONE) if inside else Name(seen)
        w.body.append(let(step, Binary("/", Name(away), count)))
        w.body.append(let(middle, Binary("+", Name(middle), Name(step))))
        more = Binary("*", Name(away), Binary("-", Name(away), Name(step)))
        w.body.append(let(squares, Binary("+", Name(squares), more)))

    def finish(self) -> None:
        (self._from_largest if self._pair.largest else self._from_moments)()

    def _from_largest(self) -> None:
        top, sums = self._names
        found = self._reduced(self._pair.first, Name(top))
        left = call("exp", Binary("-", Name(top), self._spread(found)))
        self._reduced(self._pair.second, Binary("*", Name(sums), left))

    def _from_moments(self) -> None:
        w = self._w
        middle, squares, seen = self._names
        self._reduced(self._pair.first, Binary("*", Name(middle), Name(seen)))
        about = mean_of_squares_about(self._pair.second)
        assert about is not None
        apart = w.names.fresh("apart")
        mean = self._spread(w.value_of(about[1]))
        w.scopes[0].body.append(let(apart, Binary("-", Name(middle), mean)))
        moved = Binary("*", Name(seen), Binary("*", Name(apart), Name(apart)))
        self._reduced(self._pair.second, Binary("+", Name(squares), moved))

    def _reduced(self, r: Red, of: tree.Expr) -> Value:
        w, row = self._w, self._w.scopes[0]
        name = w.names.fresh(w.title(r))
        row.body.append(let(name, w.reduce_call(r, Value(of, self._lanes))))
        return w.known_as(r, row, Value(Name(name), w.kept(r)))

    def _spread(self, value: Value) -> tree.Expr:
        return self._w.spread(value, self._lanes).tree


def _where(inside: tree.Expr | None, value: tree.Expr, other: tree.Expr) -> tree.Expr:
    return value if inside is None else call("where", inside, value, other)
