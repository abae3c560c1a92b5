"""Conversion of expressions to launches: which reductions share a launch, and which values pass between launches.

Reductions with the same outer and the same reduced axes share a launch and run in passes; values that another launch
needs go through a temporary tensor. Pointwise work is never stored between launches: it is recomputed where it is used,
which costs arithmetic and saves memory traffic.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from kernellab.designer.ir.axes import Axis, Free, Ix, by_age
from kernellab.designer.ir.expr import (
    Attend,
    Chain,
    Dot,
    Expr,
    Frontier,
    Iota,
    Leaf,
    LogSum,
    Num,
    Op,
    Order,
    Red,
    Scan,
    SymNum,
    Win,
    walk,
)
from kernellab.designer.ir.launch import RESULT_TITLE, Launch, LaunchKind
from kernellab.designer.ir.normal import EACH, Layout, Output, Purpose
from kernellab.designer.passes.rewrite import Rewrite

#: the kind of launch for each kind of product
_PRODUCTS = {Dot: LaunchKind.PRODUCT, Win: LaunchKind.WINDOW, Attend: LaunchKind.ATTENTION}


class SharedKey(NamedTuple):
    """What the reductions of one launch have in common: their outer axes, their reduced axes, and the pieces' axis."""

    outer: frozenset[Axis]
    reduced: frozenset[Axis]
    chunk: Axis | None


class Planner:
    """Places every reduction, scan, product and output of ``outputs`` in a launch.

    ``most``: largest number of reductions that share a launch, each of which holds a tile in registers; 0: no limit.
    """

    def __init__(self, outputs: list[Output], layout: Layout, most: int = 0) -> None:
        self.outputs, self.layout, self.most = outputs, layout, most
        self.free = Free()
        self.launches: list[Launch] = []
        #: the launch that computes a reduction, scan or product, by its id
        self.launch_of: dict[int, Launch] = {}
        #: the temporary that holds a value, and the launch that stores it, by the value's id
        self._temporaries: dict[int, Leaf] = {}
        self._stored_by: dict[int, Launch] = {}
        #: the number of reductions that could share a launch
        self._alike: Counter[SharedKey] = Counter()
        #: the readers of a value, by its id
        self._parents: dict[int, list[Expr]] = {}
        #: rewritten expressions, which are kept so that no id is used twice
        self._rewrites: list[Rewrite] = []

    def plan(self) -> list[Launch]:
        """Return the launches in order, with values of other launches read from temporaries."""
        order: list[Expr] = []
        visited: dict[int, Any] = {}
        for o in self.outputs:
            order += walk(o.expr, visited)
        for e in order:
            for a in e.operands:
                self._parents.setdefault(id(a), []).append(e)
        self._alike.update(self._shared_key(e) for e in order if isinstance(e, Red))
        for e in order:
            if isinstance(e, Frontier):
                self.launch_of[id(e)] = self._launch_for(e)
        for o in self.outputs:
            self._place_output(o)
        # consumers first: when a launch is rewritten, all values that others need from it are among its outputs
        for k in reversed(self.launches):
            self._read_temporaries(k)
        launches = [k for k in self.launches if k.outs]
        for k in launches:
            k.title = _title(k)
        return launches

    # -- the launch of a reduction, scan or product

    def _launch_for(self, e: Red | Scan | Dot | LogSum) -> Launch:
        """Return the launch that computes ``e``, an existing one or a new one at the end."""
        if isinstance(e, LogSum):
            return self.launch_of[id(e.of)]
        if isinstance(e, Red):
            return self._launch_of_reduction(e)
        if isinstance(e, Scan):
            return self._launch_of_scan(e)
        if isinstance(e, Chain):
            return self._launch_of_chain(e)
        return self._new(Launch(_PRODUCTS[type(e)], self.free(e), frozenset(e.axes), dot=e))

    def _launch_of_reduction(self, e: Red) -> Launch:
        par, red, needs = self.free(e), frozenset(e.axes), self._needs(e)
        for k in self.launches:
            fits = k.kind is LaunchKind.REDUCTION and k.par == par and k.red == red and k.chunk is e.chunk
            if fits and self._has_room(k, e) and all(self._before(self.launch_of[id(n)], k) for n in needs):
                k.reds.append(e)
                return k
        joining = next((self.launch_of[id(n)] for n in needs if self._joins_parts(n, par, red)), None)
        if joining is not None:
            # the combination of the few parts of a row is recomputed by each of its columns
            joining.par = par
            joining.reds.append(e)
            return joining
        return self._new(Launch(LaunchKind.REDUCTION, par, red, reds=[e]))

    def _launch_of_scan(self, e: Scan) -> Launch:
        par, red, needs = self.free(e) - frozenset(e.axes), frozenset(e.axes), self._needs(e)
        if e.chunk is not None:
            par |= {e.chunk}
        kind = LaunchKind.SORT if isinstance(e, Order) else LaunchKind.SCAN
        for k in self.launches:
            fits = k.kind is kind and k.par == par and k.red == red and k.scans[0].reverse == e.reverse
            if fits and all(self._before(self.launch_of[id(n)], k, strictly=True) for n in needs):
                k.scans.append(e)
                return k
        return self._new(Launch(kind, par, red, scans=[e]))

    def _launch_of_chain(self, e: Chain) -> Launch:
        par, red = self.free(e), frozenset(e.axes)
        shared = next((k for k in self.launches if _shares_loop(k, e, par)), None)
        if shared is None:
            return self._new(Launch(LaunchKind.CHAIN, par, red, dot=e))
        # moved after the launches that the new one needs: the results of a chain are outputs of the graph
        self.launches.remove(shared)
        self.launches.append(shared)
        shared.others.append(e)
        shared.red |= red
        return shared

    def _new(self, launch: Launch) -> Launch:
        self.launches.append(launch)
        return launch

    def _shared_key(self, e: Red) -> SharedKey:
        return SharedKey(self.free(e), frozenset(e.axes), e.chunk)

    def _has_room(self, k: Launch, e: Red) -> bool:
        """Return whether a launch of reductions accepts one more. Reductions beyond the limit are spread evenly over
        launches."""
        if not self.most:
            return True
        alike = self._alike[self._shared_key(e)]
        launches = -(-alike // self.most)
        return len(k.reds) < -(-alike // launches)

    def _inside(self, e: Expr) -> list[Expr]:
        """Return the reductions, scans and products directly under ``e`` (or ``e`` itself if it is one)."""
        if isinstance(e, Frontier):
            return [e]
        return [x for x in walk(e, inside=False) if isinstance(x, Frontier)]

    def _needs(self, e: Expr) -> list[Expr]:
        """Return the reductions, scans and products whose values ``e`` reads."""
        return [x for a in e.operands for x in self._inside(a)]

    def _joins_parts(self, e: Expr, par: frozenset[Axis], red: frozenset[Axis]) -> bool:
        """Return whether ``e`` is a reduction over the same parts of an attention's keys, for a subset of the axes
        ``par``."""
        if not isinstance(e, Red) or not any(isinstance(n, LogSum) for n in walk(e.arg, inside=False)):
            return False
        launch = self.launch_of[id(e)]
        return frozenset(e.axes) == red and launch.par < par and not launch.outs

    def _before(self, first: Launch, second: Launch, strictly: bool = False) -> bool:
        """Return whether ``first`` runs before ``second``, or is ``second`` unless ``strictly``."""
        place, other_place = self.launches.index(first), self.launches.index(second)
        return place < other_place if strictly else place <= other_place

    # -- the launch of an output

    def _place_output(self, o: Output) -> None:
        """Store an output in a launch that computes its operands or runs over its axes, or in a new one."""
        axes = frozenset(leaf for ix in o.index for leaf in ix.leaves())
        if o.put:
            axes |= self.free(o.expr)
        needs = self._inside(o.expr)
        if needs:
            found = self._launch_of_last_operand(o, axes, needs)
        else:
            found = next((k for k in self.launches if _reads_along(k, o, axes)), None)
        if found is None:
            found = next((k for k in self.launches if self._is_pointwise_after(k, axes, needs)), None)
        if found is None:
            kind = LaunchKind.SCATTER if o.put else LaunchKind.POINTWISE
            found = self._new(Launch(kind, axes, frozenset()))
        found.outs.append(o)
        if o.put and found.kind is LaunchKind.POINTWISE:
            found.kind = LaunchKind.SCATTER

    def _launch_of_last_operand(self, o: Output, axes: frozenset[Axis], needs: list[Expr]) -> Launch | None:
        """Return the launch that computes the last operand of an output along ``axes`` if it can store the output."""
        last = max((self.launch_of[id(n)] for n in needs), key=self.launches.index)
        if o.put == EACH and last.dot is not None:
            last.par |= axes  # a row that is stored at several places is multiplied once
        only_logs = all(isinstance(n, LogSum) and axes == last.par - set(n.axes) for n in needs)
        return last if only_logs or _takes(last, axes) else None

    def _is_pointwise_after(self, k: Launch, axes: frozenset[Axis], needs: list[Expr]) -> bool:
        """Return whether a launch has only pointwise work over ``axes``, after the launches of ``needs``."""
        bare = k.kind in (LaunchKind.POINTWISE, LaunchKind.SCATTER) and k.par == axes
        return bare and all(self._before(self.launch_of[id(n)], k, strictly=True) for n in needs)

    # -- values passed through memory

    def _read_temporaries(self, k: Launch) -> None:
        """Rewrite the launch's expressions so that values of other launches become loads of temporaries."""
        visit = Rewrite(lambda e: self._stored(e, k))
        self._rewrites.append(visit)
        k.reds = [visit(r) for r in k.reds]  # type: ignore[misc]
        k.scans = [visit(s) for s in k.scans]  # type: ignore[misc]
        k.dot = visit(k.dot) if k.dot is not None else None  # type: ignore[assignment]
        k.others = [visit(d) for d in k.others]  # type: ignore[misc]
        k.outs = [replace(o, expr=visit(o.expr)) for o in k.outs]

    def _stored(self, e: Expr, k: Launch) -> Leaf | None:
        """Return the temporary that holds ``e`` for launch ``k``, or None if ``k`` computes it itself."""
        if isinstance(e, (Num, SymNum, Iota)) or (isinstance(e, Leaf) and id(e) not in self._temporaries):
            return None
        if id(e) in self._temporaries and self._stored_by[id(e)] is not k:
            return self._temporaries[id(e)]
        if isinstance(e, Frontier):
            if self.launch_of[id(e)] is k:
                return None
            return self._temporary(e, self.launch_of[id(e)])
        dots = [n for n in self._inside(e) if isinstance(n, Dot) and self.launch_of[id(n)] is not k]
        for dot in dots:
            # a product is stored after the pointwise work that only it feeds
            if self._epilogue(dot) is e:
                return self._temporary(e, self.launch_of[id(dot)])
        return None

    def _epilogue(self, dot: Dot) -> Expr:
        """Return the last of the pointwise operations that only the product feeds."""
        e: Expr = dot
        while True:
            parents = list({id(p): p for p in self._parents.get(id(e), [])}.values())
            if len(parents) != 1 or not isinstance(parents[0], Op) or self.free(parents[0]) != self.free(dot):
                return e
            if [n for n in self._inside(parents[0]) if n is not dot]:
                return e
            e = parents[0]

    def _temporary(self, e: Expr, launch: Launch) -> Leaf:
        """Return a new temporary for ``e``, which ``launch`` stores."""
        axes = self._in_order(e)
        chunk = e.chunk if isinstance(e, (Red, Attend)) else e.of.chunk if isinstance(e, LogSum) else None
        if chunk is not None and not (isinstance(e, Red) and runs_along(e)):
            # neighbouring columns of one chunk are stored contiguously
            axes = [chunk, *(a for a in axes if a is not chunk)]
        name = f"{'stat' if chunk is None else 'part'}{len(self._temporaries)}"
        if chunk is None and isinstance(e, (Op, Dot, Scan)):
            name = f"inner{len(self._temporaries)}"
        while name in self.layout.views:
            name += "_"
        index = tuple(Ix((a,)) for a in axes)
        leaf = Leaf(name, index, e.dtype)
        self._temporaries[id(e)] = leaf
        self._stored_by[id(e)] = launch
        self.layout.views[name] = tuple(a.extent for a in axes) or (1,)
        self.layout.dtypes[name] = e.dtype
        launch.outs.append(Output(name, index, e, e.dtype))
        return leaf

    def _in_order(self, e: Expr) -> list[Axis]:
        """Return the axes of a temporary: for a product batches, rows, then columns, which are contiguous in its
        tile."""
        axes = by_age(self.free(e))
        if any(k.kind is LaunchKind.CHAIN for k in self.launches):
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


def _reads_along(k: Launch, o: Output, axes: frozenset[Axis]) -> bool:
    """Return whether a launch without a product reads along the axes of an output without reductions."""
    plain = k.kind in _WITHOUT_PRODUCT and bool(k.par) and (k.par - {k.chunk}) | k.red == axes
    return plain and (k.chunk is None or _shares_reads(k, o))


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
