"""Conversion of expressions to kernels: which reductions share a launch, and which values pass between launches.

Reductions with the same outer and the same reduced axes share a kernel and run in passes; values that another kernel
needs go through a temporary tensor. Pointwise work is never stored between kernels: it is recomputed where it is used,
which costs arithmetic and saves memory traffic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernellab.designer.ir.expr import (
    Attend,
    Axis,
    Chain,
    Dot,
    Expr,
    Free,
    Frontier,
    Iota,
    Ix,
    Leaf,
    LogSum,
    Num,
    Op,
    Order,
    Red,
    Scan,
    SymNum,
    Win,
    by_age,
    mapped,
    walk,
)
from kernellab.designer.ir.launch import RESULT_TITLE, Launch, LaunchKind
from kernellab.designer.ir.normal import EACH, Layout, Output, Purpose

#: the kind of launch for each kind of product
_PRODUCTS = {Dot: LaunchKind.PRODUCT, Win: LaunchKind.WINDOW, Attend: LaunchKind.ATTENTION, Chain: LaunchKind.CHAIN}


class Planner:
    """Places every reduction, scan, product and output of ``outputs`` in a launch.

    ``most``: largest number of reductions that share a launch, each of which holds a tile in registers; 0: no limit.
    """

    def __init__(self, outputs: list[Output], layout: Layout, most: int = 0) -> None:
        self.outputs, self.layout, self.most = outputs, layout, most
        self.alike: Counter[tuple[Any, ...]] = Counter()
        self.free = Free()
        self.kernels: list[Launch] = []
        self.home: dict[int, Launch] = {}
        self.temps: dict[int, Leaf] = {}
        self.makers: dict[int, Launch] = {}
        self.parents: dict[int, list[Expr]] = {}
        self.keep: list[Any] = []

    def plan(self) -> list[Launch]:
        """Return the launches in order, with values of other launches read from temporaries."""
        order: list[Expr] = []
        visited: dict[int, Any] = {}
        for o in self.outputs:
            order += walk(o.expr, visited)
        for e in order:
            for a in e.operands:
                self.parents.setdefault(id(a), []).append(e)
        self.alike.update(self._shared(e) for e in order if isinstance(e, Red))
        for e in order:
            if isinstance(e, Frontier):
                self._place(e)
        for o in self.outputs:
            self._place_output(o)
        self._materialise()
        launches = [k for k in self.kernels if k.outs]
        for k in launches:
            k.title = _title(k)
        return launches

    # -- which kernel

    def _shared(self, e: Red) -> tuple[Any, ...]:
        """Return the key that reductions of one launch have in common."""
        return self.free(e), frozenset(e.axes), e.chunk

    def _has_room(self, k: Launch, e: Red) -> bool:
        """Return whether a launch of reductions accepts one more. Reductions beyond the limit are spread evenly over
        launches."""
        count = self.alike[self._shared(e)]
        return not self.most or len(k.reds) < -(-count // -(-count // self.most))

    def _inside(self, e: Expr) -> list[Expr]:
        """Return the reductions, scans and products directly under ``e`` (or ``e`` itself if it is one)."""
        if isinstance(e, Frontier):
            return [e]
        return [x for x in walk(e, inside=False) if isinstance(x, Frontier)]

    def _needs(self, e: Expr) -> list[Expr]:
        return [x for a in e.operands for x in self._inside(a)]

    def _place(self, e: Red | Scan | Dot | LogSum) -> None:
        if isinstance(e, LogSum):
            self.home[id(e)] = self.home[id(e.of)]
            return
        par = self.free(e)
        if isinstance(e, Scan):
            par = (par - frozenset(e.axes)) | ({e.chunk} if e.chunk is not None else frozenset())
        red = frozenset(e.axes)
        needs = self._needs(e)
        if isinstance(e, Red):
            for k in self.kernels:
                fits = k.kind is LaunchKind.REDUCTION and k.par == par and k.red == red and k.chunk is e.chunk
                if fits and self._has_room(k, e) and all(self._before(self.home[id(n)], k) for n in needs):
                    k.reds.append(e)
                    self.home[id(e)] = k
                    return
            joins = next((self.home[id(n)] for n in needs if self._joins_parts(n, par, red)), None)
            if joins is not None:
                # the combination of the few parts of a row is recomputed by each of its columns
                joins.par = par
                joins.reds.append(e)
                self.home[id(e)] = joins
                return
            launch = Launch(LaunchKind.REDUCTION, par, red, reds=[e])
        elif isinstance(e, Scan):
            kind = LaunchKind.SORT if isinstance(e, Order) else LaunchKind.SCAN
            for k in self.kernels:
                fits = k.kind is kind and k.par == par and k.red == red and k.scans[0].reverse == e.reverse
                if fits and all(self._before(self.home[id(n)], k, strictly=True) for n in needs):
                    k.scans.append(e)
                    self.home[id(e)] = k
                    return
            launch = Launch(kind, par, red, scans=[e])
        else:
            shared = next((k for k in self.kernels if isinstance(e, Chain) and _shares_loop(k, e, par)), None)
            if isinstance(e, Chain) and shared is not None:
                # moved after the launches that the new one needs: the results of a chain are outputs of the graph
                self.kernels.remove(shared)
                self.kernels.append(shared)
                shared.others.append(e)
                shared.red |= red
                self.home[id(e)] = shared
                return
            launch = Launch(_PRODUCTS[type(e)], par, red, dot=e)
        self.kernels.append(launch)
        self.home[id(e)] = launch

    def _joins_parts(self, e: Expr, par: frozenset[Axis], red: frozenset[Axis]) -> bool:
        """Return whether ``e`` is a reduction over the same parts of an attention's keys, for a subset of the axes
        ``par``."""
        if not isinstance(e, Red) or not any(isinstance(n, LogSum) for n in walk(e.arg, inside=False)):
            return False
        home = self.home[id(e)]
        return frozenset(e.axes) == red and home.par < par and not home.outs

    def _before(self, first: Launch, second: Launch, strictly: bool = False) -> bool:
        i, j = self.kernels.index(first), self.kernels.index(second)
        return i < j if strictly else i <= j

    def _place_output(self, o: Output) -> None:
        axes = frozenset(leaf for ix in o.index for leaf in ix.leaves())
        if o.put:
            axes |= self.free(o.expr)
        needs = self._inside(o.expr)
        if needs:
            last = max((self.home[id(n)] for n in needs), key=self.kernels.index)
            if o.put == EACH and last.dot is not None:
                last.par |= axes  # a row that is stored at several places is multiplied once
            logs = [n for n in needs if isinstance(n, LogSum)]
            if _takes(last, axes) or (len(logs) == len(needs) and all(axes == last.par - set(n.axes) for n in logs)):
                last.outs.append(o)
                return
        else:
            for k in self.kernels:
                plain = k.kind in _WITHOUT_PRODUCT and k.par and (k.par - {k.chunk}) | k.red == axes
                if plain and (k.chunk is None or _shares_reads(k, o)):
                    _add(k, o)
                    return
        for k in self.kernels:
            bare = k.kind in (LaunchKind.POINTWISE, LaunchKind.SCATTER) and k.par == axes
            if bare and all(self._before(self.home[id(n)], k, strictly=True) for n in needs):
                _add(k, o)
                return
        kind = LaunchKind.SCATTER if o.put else LaunchKind.POINTWISE
        self.kernels.append(Launch(kind, axes, frozenset(), outs=[o]))

    # -- values passed through memory

    def _materialise(self) -> None:
        # consumers first: when a kernel is rewritten, all values that others need from it are among its outs
        for k in reversed(self.kernels):
            self._import_needs(k)

    def _import_needs(self, k: Launch) -> None:
        """Rewrite the kernel's expressions so that values of other kernels become loads of temporaries."""
        visit = Rewrite(lambda e: self._stored(e, k))
        self.keep.append(visit)
        k.reds = [visit(r) for r in k.reds]  # type: ignore[misc]
        k.scans = [visit(s) for s in k.scans]  # type: ignore[misc]
        k.dot = visit(k.dot) if k.dot is not None else None  # type: ignore[assignment]
        k.others = [visit(d) for d in k.others]  # type: ignore[misc]
        k.outs = [replace(o, expr=visit(o.expr)) for o in k.outs]

    def _stored(self, e: Expr, k: Launch) -> Leaf | None:
        """Return the temporary that holds ``e`` for kernel ``k``, or None if ``k`` computes it itself."""
        if isinstance(e, (Num, SymNum, Iota)) or (isinstance(e, Leaf) and id(e) not in self.temps):
            return None
        if id(e) in self.temps and self.makers[id(e)] is not k:
            return self.temps[id(e)]
        if isinstance(e, Frontier):
            if self.home[id(e)] is k:
                return None
            return self._temp(e, self.home[id(e)])
        dots = [n for n in self._inside(e) if isinstance(n, Dot) and self.home[id(n)] is not k]
        for dot in dots:
            # a product is stored after the pointwise work that only it feeds
            if self._epilogue(dot) is e:
                return self._temp(e, self.home[id(dot)])
        return None

    def _epilogue(self, dot: Dot) -> Expr:
        e: Expr = dot
        while True:
            parents = list({id(p): p for p in self.parents.get(id(e), [])}.values())
            if len(parents) != 1 or not isinstance(parents[0], Op) or self.free(parents[0]) != self.free(dot):
                return e
            if [n for n in self._inside(parents[0]) if n is not dot]:
                return e
            e = parents[0]

    def _temp(self, e: Expr, home: Launch) -> Leaf:
        axes = self._in_order(e)
        chunk = e.chunk if isinstance(e, (Red, Attend)) else e.of.chunk if isinstance(e, LogSum) else None
        if chunk is not None and not (isinstance(e, Red) and runs_along(e)):
            # neighbouring columns of one chunk are stored contiguously
            axes = [chunk, *(a for a in axes if a is not chunk)]
        name = f"{'stat' if chunk is None else 'part'}{len(self.temps)}"
        if chunk is None and isinstance(e, (Op, Dot, Scan)):
            name = f"inner{len(self.temps)}"
        while name in self.layout.views:
            name += "_"
        index = tuple(Ix((a,)) for a in axes)
        leaf = Leaf(name, index, e.dtype)
        self.temps[id(e)] = leaf
        self.makers[id(e)] = home
        self.layout.views[name] = tuple(a.extent for a in axes) or (1,)
        self.layout.dtypes[name] = e.dtype
        home.outs.append(Output(name, index, e, e.dtype))
        return leaf

    def _in_order(self, e: Expr) -> list[Axis]:
        """Return the axes of a temporary: for a product batches, rows, then columns, which are contiguous in its
        tile."""
        axes = by_age(self.free(e))
        if any(k.kind is LaunchKind.CHAIN for k in self.kernels):
            # a loop of chains reads the values of a row in the order of the rows' tensors
            places = [a for x in walk(e) if isinstance(x, Leaf) for ix in x.index for a in ix.leaves()]
            axes.sort(key=lambda a: places.index(a) if a in places else len(places))
        dots = (n for n in self._inside(e) if isinstance(n, Dot))
        dot = next((n for n in dots if not isinstance(n, Win) or n.turned), None)
        if dot is None:
            return axes
        if isinstance(dot, Win):
            # the parts, the rows of a tile, the taps, and its columns, which are contiguous
            rows, chunk, taps = self.free(dot.b), dot.chunk, {tap.k for tap in dot.taps}
            columns = self.free(dot.a) - taps
            return sorted(axes, key=lambda a: (a in columns, a is not chunk, a not in rows))
        left, right = self.free(dot.a), self.free(dot.b)
        return sorted(axes, key=lambda a: (a not in left) + (a not in left or a not in right))


_TITLES = {LaunchKind.WINDOW: "window", LaunchKind.ATTENTION: "attention", LaunchKind.CHAIN: "chain"}
_PURPOSES = {Purpose.SUMS: "sums", Purpose.PACKED: "pack"}


def _title(k: Launch) -> str:
    """Return a launch's title, from what it does or stores."""
    if k.kind in _TITLES:
        return _TITLES[k.kind]
    special = [word for purpose, word in _PURPOSES.items() if purpose in k.purposes]
    if special:
        return special[0]
    if Purpose.RESULT in k.purposes:
        return RESULT_TITLE
    if k.chunk is not None:
        return "partial"
    return "product" if k.kind is LaunchKind.PRODUCT else "statistics"


_WITHOUT_PRODUCT = (LaunchKind.POINTWISE, LaunchKind.SCATTER, LaunchKind.REDUCTION)


def _shares_loop(k: Launch, e: Chain, par: frozenset[Axis]) -> bool:
    """Return whether ``e`` can be summed in the loop of the chains of ``k``."""
    fits = k.kind is LaunchKind.CHAIN and k.par == par and (k.chains[0].over, k.chains[0].groups) == (e.over, e.groups)
    return fits and not {id(x) for x in e.inners}.isdisjoint(id(x) for other in k.chains for x in other.inners)


def _add(k: Launch, o: Output) -> None:
    """Add the output ``o`` to ``k``; an output that writes at indices turns pointwise work into a scatter."""
    k.outs.append(o)
    if o.put and k.kind is LaunchKind.POINTWISE:
        k.kind = LaunchKind.SCATTER


def _shares_reads(k: Launch, o: Output) -> bool:
    """Return whether ``o`` reads a tensor that a launch of partial results reads."""
    read = {e.tensor for e in k.loads}
    return any(isinstance(e, Leaf) and e.tensor in read for e in walk(o.expr))


def _takes(k: Launch, axes: frozenset[Axis]) -> bool:
    """Return whether an output along ``axes`` can be stored by the launch that computes its last operand."""
    if k.chunk is not None:
        return k.kind is LaunchKind.SCAN and axes == (k.par - {k.chunk}) | k.red
    if k.dot is not None:
        return axes == k.par
    if k.kind is LaunchKind.SORT:
        return axes == k.par | {k.scans[0].axes[-1]}
    if k.kind is LaunchKind.SCAN:
        return axes == k.par | k.red
    # without outer axes a single program would do all the pointwise work of the tensor
    return axes == k.par or (axes == k.par | k.red and bool(k.par))


def runs_along(red: Red) -> bool:
    """Return whether the reduction runs along its operand's contiguous axis."""
    last = [e.index[-1].leaves() for e in walk(red.arg, inside=False) if isinstance(e, Leaf) and e.index]
    return any(set(leaves) & set(red.axes) for leaves in last)


class Rewrite:
    """Replaces each expression ``e`` by ``change(e)`` unless that is None; shared expressions stay shared."""

    def __init__(self, change: Callable[[Expr], Expr | None]) -> None:
        self.change = change
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, e: Expr) -> Expr:
        if id(e) not in self._done:
            result = self.change(e)
            if result is None:
                result = mapped(e, self)
            self._done[id(e)] = (e, result)
        return self._done[id(e)][1]
