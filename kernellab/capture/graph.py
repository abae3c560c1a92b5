"""A reference as data: operations over symbolic shapes, with arguments that are values, numbers and dtypes.

:func:`kernellab.capture.capture` converts a Task to a Graph; the Designer reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Union

from kernellab.task.formula import Formula

#: one extent of a shape: a number, or an expression over Dims
Extent = Union[int, Formula]


#: ``aten.view.dtype``, which reinterprets the bits of a value as another dtype of the same size: a computation, unlike
#: a view
BITS = "aten.bitcast.dtype"
#: all steps of a loop over a Dim. ``args``: their number, the values before the first step (a tuple of Ref), and the
#: values that every step reads (a tuple of Ref). ``body``: a :class:`Body`. Results: the values after the last step,
#: then the tensors that all steps write
LOOP = "aten.steps.loop"


@dataclass(frozen=True)
class Ref:
    """The value of another node (or of an input), by name; ``item`` selects one of several results."""

    name: str
    item: int | None = None


@dataclass(frozen=True)
class Sym:
    """A number known at run time: an expression over Dims and scalar arguments (``N``, ``1 - beta``)."""

    expr: Formula
    is_float: bool = False


def sym(term: int | float | Formula, is_float: bool = False) -> int | float | Sym:
    """Return a number as an argument of a node: unchanged if it is already known."""
    return Sym(term, is_float) if isinstance(term, Formula) else term


@dataclass(frozen=True)
class Input:
    """One tensor argument of the kernel; ``position`` counts all of the Task's arguments, including scalars."""

    name: str
    position: int
    shape: tuple[Extent, ...]
    dtype: str
    #: channels last: the sketch's tensor has the second dimension at the end
    last: bool = False


@dataclass(frozen=True)
class Node:
    """One operation. ``op`` is ``aten.mul.Tensor``; arguments hold Ref, Sym, numbers, lists of these, dtype names.

    A node with several results has their shapes and dtypes in ``results``; ``shape`` and ``dtype`` are the first's.
    """

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    shape: tuple[Extent, ...]
    dtype: str
    #: line of the task's text, 0 if unknown
    line: int = 0
    results: tuple[tuple[tuple[Extent, ...], str], ...] = ()

    @property
    def aten(self) -> str:
        """The ATen operation without its overload ("mul" for ``aten.mul.Tensor``); "" for other operations."""
        return self.op.split(".")[1] if self.op.startswith("aten.") else ""

    def refs(self) -> Iterator[Ref]:
        """Yield every Ref in the arguments, in order."""
        yield from _refs(self.args)
        yield from _refs([v for _, v in self.kwargs])

    def keyword(self, name: str, default: Any = None) -> Any:
        """Return the keyword argument of that name, or ``default``."""
        return dict(self.kwargs).get(name, default)


@dataclass(frozen=True)
class Graph:
    """A reference as data.

    ``scalars`` maps a scalar argument to its position; ``fixed`` holds those that are fixed at their sample value (they
    determine the graph's form).
    """

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Ref, ...]
    scalars: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, int | float | bool] = field(default_factory=dict)
    #: constant tensors of the reference (masks, tables), by input name
    constants: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    #: lines of the task's text that branch on a size, and the condition that held at the traced sizes
    branches: tuple[tuple[int, str], ...] = field(default=(), compare=False, repr=False)

    def node(self, name: str) -> Node:
        """Return the node of that name. Raise StopIteration if there is none."""
        return next(n for n in self.nodes if n.name == name)

    def live(self) -> Graph:
        """Return the graph of the nodes that an output depends on."""
        live = {r.name for r in self.outputs}
        live_nodes = []
        for node in reversed(self.nodes):
            if node.name in live:
                live_nodes.append(node)
                live.update(r.name for r in node.refs())
        return replace(self, nodes=tuple(reversed(live_nodes)))

    def dtype(self, ref: Ref) -> str:
        """Return the dtype of a node's value or an input, as torch names it ("float32")."""
        declared = next((i.dtype for i in self.inputs if i.name == ref.name), None)
        if declared is not None:
            return declared
        node = self.node(ref.name)
        return node.results[ref.item][1] if ref.item is not None and node.results else node.dtype


@dataclass(frozen=True)
class Stacked:
    """A value of each step, written at ``place`` of a dimension of a result: an expression over the step."""

    value: Ref
    dim: int
    place: Extent


@dataclass(frozen=True)
class Body:
    """One step of a loop.

    ``nodes`` read outer names, ``step`` (its number, from 0) and ``before``, the names of the previous step's values;
    ``after`` are the values that it passes on.
    """

    nodes: tuple[Node, ...]
    step: str
    before: tuple[str, ...]
    after: tuple[Ref, ...]
    stacked: tuple[Stacked, ...]


def in_order(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes, each after those that it reads, otherwise in their order. There must be no cycle."""
    by_name, ordered = {n.name: n for n in nodes}, dict[str, Node]()
    for node in nodes:
        stack = [node]
        while stack:
            last = stack[-1]
            missing = next((r.name for r in last.refs() if r.name in by_name and r.name not in ordered), "")
            if missing:
                stack.append(by_name[missing])
            else:
                ordered[stack.pop().name] = last
    return tuple(ordered.values())


def _refs(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _refs(item)


__all__ = ["Extent", "Formula", "Graph", "Input", "Node", "Ref", "Sym"]
