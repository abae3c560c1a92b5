"""Conversion of loops over a Dim: a few steps are traced and become one operation that runs all of them.

``for t in range(T)`` with a symbolic T would turn it into a number. Here such a range has four steps. The second step's
use of the first step's results must match the third step's use of the second's: these are the values passed from step
to step. The fourth step represents the values used after the loop; only those are in the trace. Values that a step
writes at one place of a tensor, or appends to a list that is joined after the loop, are results of all steps.
:func:`kernellab.capture.capture.check_graph` compares with the reference at other lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, NamedTuple

from kernellab.capture.graph import BITS, LOOP, Body, Extent, Formula, Graph, Node, Ref, Stacked, Sym, in_order, sym
from kernellab.capture.loops.trace import TRACED
from kernellab.errors import CaptureError
from kernellab.task import Task
from kernellab.task.formula import Term, named, simplified

#: steps that are compared: all except the last, of which the trace has only the values used after the loop
_COMPARED = TRACED - 1
_SLICE = "aten.slice_scatter.default"
_WRITES = ("aten.select_scatter.default", _SLICE)
#: a node of a trace -> the loop that created it, and its step
Marks = Mapping[str, tuple[int, int]]


def rolled(
    graph: Graph, marks: Marks, counts: Sequence[Extent], sizes: Sequence[Mapping[str, Any]], task: Task
) -> Graph:
    """Replace the traced steps of each loop of ``graph`` by one operation.

    Args:
        sizes: Dims and scalars at which numbers of the trace are compared.

    Raises:
        CaptureError: the steps of a loop differ, or a value used after it has none of the forms above.
    """
    for loop, count in enumerate(counts):
        steps = [[n for n in graph.nodes if marks.get(n.name) == (loop, k)] for k in range(TRACED)]
        if any(steps):
            graph = _Roll(graph, steps, count, sizes, task).graph
    return graph


class UnevenSteps(CaptureError):
    """Steps that are traced with different nodes: torch drops values that no traced step reads."""


class _Differs(Exception):
    """The reason why the steps are not one operation."""


class _Place(NamedTuple):
    """Where a traced node is: its step, and its position among the step's nodes."""

    step: int
    position: int


#: of a node that no step has
_OUTSIDE = _Place(-1, -1)


class _Carried(NamedTuple):
    """A value passed to the next step: its name there, and what the first step reads instead."""

    name: str
    start: Ref


class _Roll:
    """One loop; its step has the names of the first traced one."""

    def __init__(
        self, graph: Graph, steps: list[list[Node]], count: Extent, sizes: Sequence[Mapping[str, Any]], task: Task
    ) -> None:
        self._steps, self._count, self._sizes, self._task = steps, count, sizes, task
        self._places = {n.name: _Place(k, p) for k, nodes in enumerate(steps) for p, n in enumerate(nodes)}
        self._shapes: dict[Ref, tuple[tuple[Extent, ...], str]] = {
            Ref(i.name): (i.shape, i.dtype) for i in graph.inputs
        }
        for n in graph.nodes:
            self._shapes |= {Ref(n.name): (n.shape, n.dtype)} | {Ref(n.name, k): r for k, r in enumerate(n.results)}
        self._taken = {r.name for r in self._shapes}
        self._step = self._free("step")
        #: values passed from step to step
        self._carried: dict[Ref, _Carried] = {}
        #: values from outside that all steps read, in order
        self._outer: dict[Ref, None] = {}
        #: nodes that are added around the loop
        self._added: list[Node] = []
        self._first = next(n for nodes in steps for n in nodes)
        try:
            self.graph = self._rolled(graph)
        except _Differs as why:
            uneven = len({len(nodes) for nodes in steps}) != 1
            raise (UnevenSteps if uneven else CaptureError)(
                f"The reference of {task.name!r} loops over a Dim at line {self._first.line}, and {why}.",
                "Let every step do the same and leave its values in tensors (h = f(h, x[:, t]); out[:, t] = h), fix "
                "that extent, or write the loop as a scan.",
            ) from None

    def _rolled(self, graph: Graph) -> Graph:
        *steps, last = self._steps
        if len({len(nodes) for nodes in steps}) != 1:
            raise _Differs("its first steps do not do the same")
        body = [self._merged(*nodes) for nodes in zip(*steps, strict=True)]
        self._steps = [*steps, self._aligned(last)]
        writes = [n for n in body if n.op in _WRITES]
        stacks: dict[Ref, _Stack] = {}
        for write in writes:
            body = self._stacked(body, write, stacks)
        inside = {n.name for n in body}
        outside = [n for n in graph.nodes if n.name not in self._places]
        used_after: dict[Ref, Ref] = {}
        for ref in dict.fromkeys([*(r for n in outside for r in n.refs()), *graph.outputs]):
            place = self._places.get(ref.name, _OUTSIDE)
            if place is _OUTSIDE or ref in stacks:
                continue
            line = self._steps[place.step][place.position].line
            if place.step != TRACED - 1:
                raise _Differs(f"what an early step makes at line {line} is used behind it")
            in_step = self._in_first_step(ref)
            if in_step.name not in inside:
                raise _Differs(f"what line {line} reads is used behind it")
            if in_step not in self._carried:  # only the last step's value is used
                self._check_steps(place.position)
                self._carry(in_step, self._zeros(in_step))
            used_after[ref] = in_step
        body = self._read(body, [*used_after.values(), *(s.values.value for s in stacks.values())])
        after = tuple(self._carried)
        results = [self._shapes[r] for r in after]
        results += [(s.shape(self._count), s.write.dtype) for s in stacks.values()]
        names, starts = zip(*self._carried.values(), strict=True) if self._carried else ((), ())
        step = Body(tuple(body), self._step, names, after, tuple(s.values for s in stacks.values()))
        count = sym(self._count)
        node = replace(
            self._first, name=self._free(f"{self._first.name}_steps"), op=LOOP,
            args=(count, starts, tuple(self._outer)), kwargs=(("body", step),),
            shape=results[0][0], dtype=results[0][1], results=tuple(results),
        )  # fmt: skip
        swap = {ref: Ref(node.name, after.index(in_step)) for ref, in_step in used_after.items()}
        for k, (ref, stack) in enumerate(stacks.items()):
            swap[ref] = self._whole(Ref(node.name, len(after) + k), stack)
        nodes = [node, *self._added, *(replace(n, args=_swapped(n.args, swap)) for n in outside)]
        outputs = tuple(swap.get(r, r) for r in graph.outputs)
        return replace(graph, nodes=in_order(nodes), outputs=outputs).live()

    def _read(self, body: list[Node], results: Sequence[Ref]) -> list[Node]:
        """Return the nodes of a step that its results depend on, directly or through previous steps; other carried
        values are dropped."""
        producers = {n.name: n for n in body}
        carried = {passed.name: value for value, passed in self._carried.items()}
        used, pending = set[str](), [r.name for r in results]
        while pending:
            name = pending.pop()
            if name not in used:
                used.add(name)
                pending += [carried[name].name] if name in carried else []
                pending += [r.name for r in producers[name].refs()] if name in producers else []
        self._carried = {r: passed for r, passed in self._carried.items() if passed.name in used or r in results}
        return [n for n in body if n.name in used]

    def _aligned(self, last: list[Node]) -> list[Node]:
        """Return the nodes of the last step, aligned with the others; missing ones are replaced by the previous
        step's."""
        remaining = iter(last)
        node = next(remaining, None)
        aligned = []
        for p, (b, c) in enumerate(zip(*self._steps[1:_COMPARED], strict=True)):
            if node is not None and (node.op, node.shape, node.line) == (c.op, c.shape, c.line):
                self._places[node.name] = _Place(TRACED - 1, p)
                if self._follows(b, c, node):
                    aligned.append(node)
                    node = next(remaining, None)
                    continue
            aligned.append(c)
        if node is not None:
            raise _Differs("its steps do not do the same")
        return aligned

    def _follows(self, b: Node, c: Node, d: Node) -> bool:
        """Return whether these are the second to the fourth step's forms of one operation."""

        def same(b: Any, c: Any, d: Any) -> bool:
            if isinstance(b, Ref) and isinstance(c, Ref) and isinstance(d, Ref):
                c_place, d_place = (self._places.get(ref.name, _OUTSIDE) for ref in (c, d))
                if d_place is _OUTSIDE:
                    return c == d
                is_next = d_place == _Place(c_place.step + 1, c_place.position)
                return is_next and c.item == d.item
            if isinstance(b, tuple):
                return len(b) == len(c) == len(d) and all(map(same, b, c, d))
            if b == c == d:
                return True
            values = [self._values(x) for x in (b, c, d)]
            return all(z - y == y - x for x, y, z in zip(*values, strict=True))

        return all(map(same, b.args, c.args, d.args))

    # -- three nodes -> one

    def _merged(self, a: Node, b: Node, c: Node) -> Node:
        alike = a.op == b.op == c.op and a.dtype == b.dtype == c.dtype and a.shape == b.shape == c.shape
        if not alike or a.op in (BITS, LOOP):
            raise _Differs(f"its steps differ at line {a.line}")
        args = self._same(a.args, b.args, c.args, a)
        return replace(a, args=args, kwargs=self._same(a.kwargs, b.kwargs, c.kwargs, a))

    def _same(self, a: Any, b: Any, c: Any, node: Node) -> Any:
        """Return an argument of every step, from those of the first three."""
        if isinstance(a, Ref) and isinstance(b, Ref) and isinstance(c, Ref):
            return self._ref(a, b, c, node)
        if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(c, tuple) and len(a) == len(b) == len(c):
            return tuple(self._same(*each, node) for each in zip(a, b, c, strict=True))
        if a == b == c:
            return a
        values = [self._values(x) for x in (a, b, c)]
        by = {y - x for earlier, later in pairwise(values) for x, y in zip(earlier, later, strict=True)}
        if len(by) != 1:
            raise _Differs(f"a number in it does not grow by the same from step to step (line {node.line})")
        (each,) = by
        along = named(self._step) if abs(each) == 1 else Formula("*", (abs(each), named(self._step)))
        first = a.expr if isinstance(a, Sym) else a
        return Sym(along if first == 0 and each > 0 else Formula("+" if each > 0 else "-", (first, along)))

    def _values(self, number: Any) -> list[int]:
        """Return a number of the trace at some sizes."""
        number = number.expr if isinstance(number, Sym) else number
        if isinstance(number, bool) or not isinstance(number, (int, Formula)):
            raise _Differs("something in it other than a place changes from step to step")
        return [number.value(s) if isinstance(number, Formula) else number for s in self._sizes]

    def _ref(self, a: Ref, b: Ref, c: Ref, node: Node) -> Ref:
        """Return what a step reads, from what the first three read: a value from outside, of the same step, of the step
        before, or of the one before that."""
        places = [self._places.get(ref.name, _OUTSIDE) for ref in (a, b, c)]
        steps = tuple(place.step for place in places)
        position = places[2].position
        same_as_c = [
            place.position == position and ref.item == c.item for place, ref in zip(places, (a, b, c), strict=True)
        ]
        if a == b == c and places[2] is _OUTSIDE:
            self._outer[a] = None
            return a
        if steps == (0, 1, 2) and all(same_as_c):
            return a
        if steps == (-1, 0, 1) and same_as_c[1]:
            carried = self._carry(self._in_first_step(b), a)
            if carried.start == a:
                return Ref(carried.name)
        if steps == (-1, -1, 0):  # the value that the previous step read of the step before it
            carried = self._carry(self._in_first_step(c), b)
            older = self._carry(Ref(carried.name), a)
            if (carried.start, older.start) == (b, a):
                return Ref(older.name)
        raise _Differs(f"line {node.line} reads other values than those of this step and the one before")

    def _carry(self, value: Ref, start: Ref) -> _Carried:
        """Pass ``value`` to the next step; ``start`` counts where it is not passed yet."""
        if value not in self._carried:
            name = self._free(f"{value.name}_before")
            self._carried[value] = _Carried(name, start)
            self._shapes[Ref(name)] = self._shapes[value]
        return self._carried[value]

    def _in_first_step(self, ref: Ref) -> Ref:
        """Return a value of a step, by the first one's name."""
        return Ref(self._steps[0][self._places[ref.name].position].name, ref.item)

    # -- results of all steps

    def _stacked(self, body: list[Node], write: Node, stacks: dict[Ref, _Stack]) -> list[Node]:
        """Remove from the body a write of one place per step into a tensor that nothing reads except the previous
        step's write."""
        name, base = self._carried.get(Ref(write.name), _Carried("", Ref("")))
        traced = [nodes[self._places[write.name].position] for nodes in self._steps]
        dim, places = _dim_of(write), [self._values(_place_of(n)) for n in traced]
        directions = {y - x for earlier, later in pairwise(places) for x, y in zip(earlier, later, strict=True)}
        source = write.args[1]
        shape, dtype = self._shapes[source]
        one_place = write.op != _SLICE or shape[dim] == 1
        if write.args[0] != Ref(name) or len(directions) != 1 or not directions <= {1, -1} or not one_place:
            return body
        if any(Ref(write.name) in n.refs() for n in body):
            return body  # a step reads the value that it has just written
        if write.op == _SLICE:
            cut = replace(
                write, name=self._free(f"{write.name}_value"), op="aten.select.int", args=(source, dim, 0),
                shape=(*shape[:dim], *shape[dim + 1 :]),
            )  # fmt: skip
            self._shapes[Ref(cut.name)] = (cut.shape, dtype)
            body, source = [*body, cut], Ref(cut.name)
        for reader in [n for n in body if n.name != write.name and Ref(name) in n.refs()]:
            reads = [nodes[self._places[reader.name].position] for nodes in self._steps]
            ats = [self._values(n.args[2]) for n in reads] if reader.op == "aten.select.int" else []
            if write.op == _SLICE or ats[1:] != places[:-1] or reader.args[1] % len(write.shape) != dim:
                return body
            first = replace(reads[0], name=self._free(f"{reader.name}_first"), args=(base, *reads[0].args[1:]))
            carried = self._carry(source, Ref(first.name))
            if carried.start != Ref(first.name):
                return body
            self._added.append(first)
            body = [
                replace(n, args=_swapped(n.args, {Ref(reader.name): Ref(carried.name)}))
                for n in body
                if n.name != reader.name
            ]
        (direction,) = directions
        begin = _place_of(traced[0])
        place = named(self._step) if direction == 1 else Formula("-", (_plus(self._count, -1), named(self._step)))
        low = begin if direction == 1 else _plus(begin, Formula("-", (1, self._count)))
        del self._carried[Ref(write.name)]
        stacks[Ref(traced[-1].name)] = _Stack(Stacked(source, dim, place), write, base, low)
        return [n for n in body if n.name != write.name]

    def _whole(self, written: Ref, stack: _Stack) -> Ref:
        """Return the tensor that was written into: the values of all steps, and the parts before and after them."""
        write, dim, end = stack.write, stack.values.dim, _plus(stack.low, self._count)
        length = write.shape[dim]
        pieces = [written]
        if any(self._values(stack.low)):
            pieces.insert(0, self._piece(stack, 0, stack.low))
        if self._values(end) != self._values(length):
            pieces.append(self._piece(stack, end, _plus(length, Formula("neg", (end,)))))
        if len(pieces) == 1:
            return written
        joined = replace(
            write, name=self._free(f"{write.name}_whole"), op="aten.cat.default", args=(tuple(pieces), dim)
        )
        self._added.append(joined)
        return Ref(joined.name)

    def _piece(self, stack: _Stack, start: Extent, size: Extent) -> Ref:
        write, dim = stack.write, stack.values.dim
        end = _plus(start, size)
        args = (stack.base, dim, *map(sym, (start, end)))
        shape = (*write.shape[:dim], size, *write.shape[dim + 1 :])
        part = replace(write, name=self._free(f"{write.name}_kept"), op="aten.slice.Tensor", args=args, shape=shape)
        self._added.append(part)
        return Ref(part.name)

    def _check_steps(self, place: int) -> None:
        """Raise CaptureError if the loop has no step at some sizes: the trace does not contain the value from before
        the loop."""
        if isinstance(self._count, int):
            return
        dims = [d for d in self._task.dims if d.name in self._count.names()]
        for sizes in product(*((d.min, d.max) for d in dims)):
            at = dict(zip((d.name for d in dims), sizes, strict=True))
            if len(at) == len(self._count.names()) and self._count.value(at) < 1:
                raise CaptureError(
                    f"The loop of {self._task.name!r} at line {self._first.line} has no step at "
                    f"{', '.join(f'{k} = {v}' for k, v in at.items())}, and line "
                    f"{self._steps[0][place].line} continues from no value that was there before it.",
                    f"Begin the range of {dims[0].name} where the loop has a step.",
                )

    def _zeros(self, ref: Ref) -> Ref:
        """Return a placeholder for a value that no step reads from the previous one."""
        shape, dtype = self._shapes[ref]
        extents = tuple(map(sym, shape))
        name = self._free(f"{ref.name}_none")
        kwargs = (("dtype", f"torch.{dtype}"),)
        self._added.append(Node(name, "aten.full.default", (extents, 0), kwargs, shape, dtype, self._first.line))
        return Ref(name)

    def _free(self, name: str) -> str:
        """Return a name that no node has."""
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


@dataclass(frozen=True)
class _Stack:
    """The values that all steps write: places from ``low`` on of the tensor ``base``."""

    values: Stacked
    write: Node
    base: Ref
    low: Extent

    def shape(self, count: Extent) -> tuple[Extent, ...]:
        shape, dim = self.write.shape, self.values.dim
        return (*shape[:dim], count, *shape[dim + 1 :])


def _dim_of(write: Node) -> int:
    dim = write.args[2] if len(write.args) > 2 else 0
    return int(dim) % len(write.shape)


def _place_of(write: Node) -> Extent:
    place = write.args[3] if len(write.args) > 3 else 0
    return place.expr if isinstance(place, Sym) else int(place or 0)


def _plus(a: Term, b: Term) -> Extent:
    total = simplified(Formula("+", (a, b)))
    assert not isinstance(total, float), total
    return total


def _swapped(value: Any, swap: Mapping[Ref, Ref]) -> Any:
    if isinstance(value, Ref):
        return swap.get(value, value)
    return tuple(_swapped(v, swap) for v in value) if isinstance(value, tuple) else value
