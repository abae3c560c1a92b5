"""Conversion of a graph to expressions over axes: views and broadcasts become indices into the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kernellab.capture import Graph, Node, Ref, Sym
from kernellab.capture.graph import Extent
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Axis, Free, Index, Ix
from kernellab.designer.ir.expr import Dot, Expr, Iota, Leaf, Num, Op, Red, SymNum, run
from kernellab.designer.ir.normal import Purpose, number
from kernellab.errors import DesignError, NodeError
from kernellab.task.formula import Formula, Term
from kernellab.task.task import channels_at_end

REMEDY = "Let a person or a model write this sketch, or rewrite the reference without it."

#: a sum of products counts as a matrix product if each factor has at least this many contiguous elements
_SHORT = 8
#: number of elements of a constant tensor up to which a sketch spells it out
_MOST_NUMBERS = 64

#: (builder, node, index, item) -> the node's value at the index; ``item`` selects one of several results
Handler = Callable[["Builder", Node, Index, int], Expr]


class StoredCall(Protocol):
    """A launch whose result is stored and that is not a group of expressions: a library call or recurrent steps."""

    @property
    def shape(self) -> tuple[Extent, ...]: ...

    @property
    def reads(self) -> frozenset[str]:
        """The tensors that the call loads."""
        ...


class StackedParts(Protocol):
    """A tensor of concatenated parts; see :class:`kernellab.designer.graph.stacks.Stack`."""

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int: ...

    @property
    def places(self) -> Mapping[str, range]: ...

    @property
    def shape(self) -> tuple[Extent, ...]: ...

    @property
    def copied(self) -> frozenset[str]: ...

    @property
    def joins(self) -> Mapping[str, range]: ...

    @property
    def size(self) -> Extent: ...


@dataclass(frozen=True)
class Stored:
    """A value written to the temporary tensor ``name`` before the launches that read it."""

    name: str
    index: Index
    value: Expr
    shape: tuple[Extent, ...]
    #: how the value is written if its index contains values: "add" or "once"
    put: str = ""
    #: the value serves a single launch, in the shape that this launch expects
    serves: bool = False
    #: the launch that stores the previous value also stores this one
    joins: bool = False
    #: the dtype that readers expect if it differs from the value's: arithmetic on narrow floats is wider
    dtype: str = ""
    purpose: Purpose = Purpose.VALUE


def _grows(extent: Term) -> bool:
    """Return whether the extent never decreases when a Dim increases."""
    if not isinstance(extent, Formula) or extent.name:
        return True
    numbers = [a for a in extent.args if not isinstance(a, Formula)]
    if extent.op in ("-", "//", "ceil"):
        return _grows(extent.args[0]) and numbers == [extent.args[1]]
    negative = extent.op == "*" and any(n < 0 for n in numbers)
    return extent.op in ("+", "*", "min", "max") and not negative and all(map(_grows, extent.args))


@dataclass(frozen=True)
class BuildOptions:
    """What a schedule allows the rules of operations, and what the chip supports."""

    #: sums of a product may be computed from sums of its factors
    algebra: bool = True
    #: a scatter may write to the same index several times
    repeated_writes: bool = False
    #: factors of a product may be stored although nothing else requires it
    stores_factors: bool = False
    #: a convolution with at most this many (input channel, output channel) pairs is summed directly
    direct_pairs: int = 0
    #: float32 products may be computed from float16 products
    halves: bool = False
    #: tensor cores multiply narrow floats without conversion
    narrow_products: bool = False
    #: a copy engine fills the tiles of products
    copy_engine: bool = False
    #: length of the longest row that one program sorts; 0: no limit
    longest_sort: int = 0
    #: expected Dims, used to estimate a CPU's products; None on a GPU, where only fixed extents are used
    sizes: Mapping[str, int] | None = None
    #: the largest value of each Dim
    most: Mapping[str, int] = field(default_factory=dict)


class Builder:
    """Builds the values of a graph's nodes at given indices.

    ``handlers`` maps each ATen operation, by its name without the overload, to its rule. The values of the nodes in
    ``stops`` are stored. Nodes of ``library`` are stored too, by the call that ``call`` returns for the node and the
    name of its tensor.
    """

    def __init__(
        self,
        graph: Graph,
        task_name: str,
        handlers: Mapping[str, Handler],
        options: BuildOptions,
        stops: frozenset[str] = frozenset(),
        library: frozenset[str] = frozenset(),
        call: Callable[[Builder, Ref, str], StoredCall] | None = None,
        stacks: Sequence[StackedParts] = (),
    ) -> None:
        self.graph, self.task_name, self.handlers, self.options, self._call = graph, task_name, handlers, options, call
        #: whether factors of a product may be stored although nothing else requires it
        self.stores_factors = options.stores_factors
        #: nodes whose values are stored and read from their tensors
        self.stops = stops | library
        #: nodes that the library computes, and its calls by the tensor that each writes
        self.library = library
        self.calls: dict[str, StoredCall] = {}
        #: stacks by the names of their parts: stored values written directly into the stacked tensor
        self.stacks = {part: s for s in stacks for part in s.places if part not in s.copied}
        #: stacks by the names of concatenations that are read as a whole
        self.stacked = {name: s for s in stacks for name in s.joins}
        self.nodes = {n.name: n for n in graph.nodes}
        #: names of the numbers of steps, from 0, of the loops that are built
        self.steps: set[str] = set()
        self.inputs = {i.name: i for i in graph.inputs}
        #: values stored by separate launches, in the order in which they are needed
        self.cuts: list[Stored] = []
        #: tensors of the stored values, by a Ref or by what the rule of an operation calls one of its values
        self.stored_names: dict[Any, str] = {}
        #: tensors of library results that are written directly as outputs of the graph
        self.named: dict[Any, str] = {}
        #: parts of stacks that are written into their tensor
        self._written: set[Ref] = set()
        self._rows: dict[tuple[Ref, int], Axis] = {}
        #: the axes of each extent, in the order in which dimensions of a shape take them
        self._pool: dict[extents.Product, list[Axis]] = {}
        #: values by Ref and index
        self._memo: dict[tuple[Ref, Index], Expr] = {}

    # -- axes

    def axes_for(self, shape: tuple[Extent, ...], taken: frozenset[Axis] = frozenset()) -> Index:
        """Return one plain index per dimension; the k-th dimension of an extent gets that extent's k-th axis."""
        used: set[Axis] = set(taken)
        index = []
        for extent in shape:
            if extent == 1:
                index.append(Ix())
                continue
            axis = self.pick_axis(extent, used)
            used.update(axis.leaves())
            index.append(Ix((axis,)))
        return tuple(index)

    def pick_axis(self, extent: Extent, used: set[Axis], whole: bool = False) -> Axis:
        """Return an axis of this extent that is not in ``used``; with ``whole``, also one that is not split."""
        pool = self._pool.setdefault(extents.product(extent), [])
        for axis in pool:
            if not used.intersection(axis.leaves()) and not (whole and axis.parts):
                return axis
        pool.append(Axis(extent))
        return pool[-1]

    def row_axis(self, ref: Ref, dim: int) -> Axis:
        """Return the axis over all of dimension ``dim`` of a stored value, which is split nowhere."""
        return self._rows.setdefault((ref, dim), Axis(self.shape(ref)[dim]))

    def bound(self, shape: tuple[Extent, ...], dims: list[int], index: Index, beside: Index = ()) -> Index:
        """Return ``index`` with a separate axis for each reduced dimension and the other dimensions unchanged. Axes of
        ``beside`` are not used.

        If the outer index already runs plainly over a reduced dimension, its axes are reused: the sum over a row and
        the row itself then share a loop.
        """
        outer_axes = frozenset(leaf for d, ix in enumerate(index) if d not in dims for leaf in ix.within())
        result = list(index)
        used = set(outer_axes) | {leaf for ix in beside for leaf in ix.within()}
        for d in dims:
            ix = index[d]
            fits = ix.axes and ix.plain and not used.intersection(ix.leaves()) and extents.same(ix.extent, shape[d])
            if not fits:
                result[d] = Ix() if shape[d] == 1 else Ix((self._preferred(shape, d, used),))
            used.update(result[d].leaves())
        return tuple(result)

    def _preferred(self, shape: tuple[Extent, ...], d: int, used: set[Axis]) -> Axis:
        """Return the axis that this dimension would have in an output of this shape, if it is free."""
        natural = self.axes_for(shape)[d].axes[0]
        if not used.intersection(natural.leaves()):
            return natural
        return self.pick_axis(shape[d], used)

    # -- values

    def refuse(self, node: Node, why: str) -> NodeError:
        """Return the error that refuses ``node`` for the reason ``why``."""
        at = f" at line {node.line}" if node.line else ""
        return NodeError(
            f"The rules Designer cannot design the node {node.name!r} ({node.op}){at} of {self.task_name!r}: {why}.",
            REMEDY,
            node.name,
        )

    def shape(self, value: Any) -> tuple[Extent, ...]:
        """Return the shape of a node's value, an input or a number (an empty shape)."""
        if isinstance(value, Ref):
            if value.name in self.inputs:
                return self.inputs[value.name].shape
            node = self.nodes[value.name]
            return node.results[value.item][0] if value.item is not None and node.results else node.shape
        return ()

    def dtype(self, value: Any) -> str:
        """Return the dtype of a node's value, an input or a number."""
        if isinstance(value, Ref):
            if value.name in self.inputs:
                return self.inputs[value.name].dtype
            node = self.nodes[value.name]
            return node.results[value.item][1] if value.item is not None and node.results else node.dtype
        if isinstance(value, bool):
            return "bool"
        is_int = isinstance(value, int) or (isinstance(value, Sym) and not value.is_float)
        return "int64" if is_int else "float32"

    def value(self, ref: Any, index: Index = ()) -> Expr:
        """Return ``ref`` (a node's value, a number or a size) at ``index``."""
        if isinstance(ref, Sym):
            return SymNum(ref.expr, self.dtype(ref))
        if isinstance(ref, (bool, int, float)):
            return Num(ref, self.dtype(ref))
        if len(index) != len(self.shape(ref)):
            raise AssertionError(f"{ref} has rank {len(self.shape(ref))}, index {index}")
        resolved = tuple(ix.over(ix.leaves()) for ix in index)
        key = (ref, resolved)
        if key not in self._memo:
            stored = ref.name in self.library or (ref.name in self.stops and not ref.item)
            if ref.name in self.stacks:
                self._memo[key] = self._piece(ref, resolved)
            else:
                self._memo[key] = (
                    Leaf(self.stored(ref), resolved, self.dtype(ref)) if stored else self._value(ref, resolved)
                )
        return self._memo[key]

    def _value(self, ref: Ref, index: Index) -> Expr:
        if ref.name in self.inputs:
            constant = self.graph.constants.get(ref.name)
            if constant is None:
                at = channels_at_end(index) if self.inputs[ref.name].last else index
                return Leaf(ref.name, at, self.inputs[ref.name].dtype)
            if constant.dim() == 0 or constant.numel() == 1:
                return Num(constant.item(), self.inputs[ref.name].dtype)
            return self._table(constant, index, self.inputs[ref.name].dtype)
        node = self.nodes[ref.name]
        handler = self.handlers.get(node.aten)
        if handler is None:
            raise self.refuse(node, f"the operator {'.'.join(node.op.split('.')[:2])} has no rule")
        try:
            return handler(self, node, index, ref.item or 0)
        except (AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError) as error:
            # a form of the operation that the rule does not support must be refused, not crash the Designer
            reason = f"its rule does not read this form ({type(error).__name__})"
            raise self.refuse(node, reason) from error

    def _table(self, constant: Any, index: Index, dtype: str) -> Expr:
        """Return an element of a constant tensor, selected by its position, as numbers in the sketch's text.

        Raises:
            DesignError: the tensor has more than _MOST_NUMBERS elements.
        """
        if constant.numel() > _MOST_NUMBERS:
            raise DesignError(
                f"The reference of {self.task_name!r} holds a constant tensor of {constant.numel()} elements.",
                "Pass it as an input, or make it a buffer of the Model (register_buffer).",
            )
        items = constant.flatten().tolist()
        place: Expr = Num(0, "int64")
        for ix, extent in zip(index, constant.shape, strict=True):
            if extent != 1:
                place = Op("mul", (place, Num(extent, "int64")), "int64")
                place = Op("add", (place, self.position(ix)), "int64")
        value: Expr = Num(items[-1], dtype)
        for at in reversed(range(len(items) - 1)):
            here = Op("le", (place, Num(at, "int64")), "bool")
            value = Op("where", (here, Num(items[at], dtype), value), dtype)
        return value

    def operand(self, ref: Any, index: Index, shape: tuple[Extent, ...]) -> Expr:
        """Return a pointwise operand: ``ref`` broadcast to ``shape``, at ``index``."""
        own_shape = self.shape(ref)
        if not own_shape:
            return self.value(ref, ())
        tail = index[len(index) - len(own_shape) :]
        outer = shape[len(shape) - len(own_shape) :]
        return self.value(
            ref, tuple(Ix() if o == 1 and s != 1 else ix for o, s, ix in zip(own_shape, outer, tail, strict=True))
        )

    def readers(self, name: str) -> int:
        """Return how many times nodes and outputs read the value of a node."""
        refs = [ref.name for node in self.graph.nodes for ref in node.refs()]
        return (refs + [ref.name for ref in self.graph.outputs]).count(name)

    def stored(self, ref: Ref) -> str:
        """Return a temporary tensor that holds ``ref``, for a reader that needs it stored, such as a window over it."""
        if ref.name in self.library and ref not in self.stored_names:
            assert self._call is not None
            name = self._tensor_name(ref)
            self.stored_names[ref] = name
            self.calls[name] = self._call(self, ref, name)
        if ref not in self.stored_names:
            # separate axes: the output's axes may be split where these are not
            index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in self.shape(ref))
            value = self.value(ref, index) if ref.name in self.stacks else self._value(ref, index)
            if ref not in self.stored_names and (tensor := self._tensor_as_it_is(ref, index, value)):
                self.stored_names[ref] = tensor
            if ref not in self.stored_names:  # a scan may have stored itself while its argument was read
                self.store(ref, index, value, self.shape(ref))
        return self.stored_names[ref]

    def _tensor_as_it_is(self, ref: Ref, index: Index, value: Expr) -> str:
        """Return the tensor that holds all of ``ref`` as it is, since its operation has stored its result; "" if there
        is none. The tensor then serves every launch; an output has its own."""
        if not isinstance(value, Leaf) or value.index != index or value.dtype != self.dtype(ref) or ref in self.named:
            return ""
        writers = [at for at, c in enumerate(self.cuts) if c.name == value.tensor]
        shape = self.cuts[writers[0]].shape if len(writers) == 1 else ()
        if len(shape) != len(index) or not all(map(extents.same, shape, self.shape(ref))):
            return ""
        self.cuts[writers[0]] = replace(self.cuts[writers[0]], serves=False)
        return value.tensor

    def stop(self, ref: Ref, views: Sequence[Ref] = ()) -> None:
        """Read the value of ``ref`` from a separate tensor from here on, also through ``views`` of it."""
        self.stops |= {ref.name}
        self._memo = {(r, index): value for (r, index), value in self._memo.items() if r != ref and r not in views}

    @contextmanager
    def factors_on_chip(self) -> Iterator[None]:
        """While active, no factor of a product is stored for the product alone."""
        before, self.stores_factors = self.stores_factors, False
        try:
            yield
        finally:
            self.stores_factors = before

    def _piece(self, ref: Ref, index: Index) -> Leaf:
        """Return a part of a stack at ``index``; the launch that computes it writes it into the stacked tensor."""
        stack = self.stacks[ref.name]
        name, at = self.stack_tensor(stack.name), Ix((), stack.places[ref.name].start)
        if ref not in self._written:
            self._written.add(ref)
            own_index = tuple(Ix() if e == 1 else Ix((Axis(e),)) for e in self.shape(ref))
            self.cuts.append(
                Stored(name, (at, *own_index), self._value(ref, own_index), stack.shape, dtype=self.dtype(ref))
            )
        return Leaf(name, (at, *index), self.dtype(ref))

    def stack_tensor(self, node: str) -> str:
        """Return the tensor of a stack. All of its parts are written before it is read as a whole."""
        key = (node, "parts")
        if key not in self.stored_names:
            self.stored_names[key] = self._tensor_name(key)
        return self.stored_names[key]

    def whole_stack(self, node: Node) -> str:
        """Return the tensor that holds the concatenation ``node``, with all of its parts written."""
        stack = self.stacked[node.name]
        for part in node.args[0]:
            if part.name in stack.copied:
                self._copy(part, stack)
            else:
                self.value(part, self.axes_for(self.shape(part)))
        return self.stack_tensor(stack.name)

    def _copy(self, part: Ref, stack: StackedParts) -> None:
        """Write a part of a stack to its position, in addition to its own tensor."""
        if part in self._written:
            return
        self._written.add(part)
        if part.name in self.nodes:
            self.stop(part)
        shape, dim = self.shape(part), stack.dim
        places = stack.places[part.name]
        outer = Ix() if len(places) == 1 else Ix((Axis(len(places), single=True),))
        inner = Ix() if stack.size == 1 else Ix((Axis(stack.size),))
        own_index = [Ix() if e == 1 else Ix((Axis(e),)) for e in shape]
        own_index[dim] = Ix((*outer.axes, *inner.axes))
        value = self.value(part, tuple(own_index))
        own_index[dim] = inner
        at = replace(outer, offset=places.start)
        self.cuts.append(
            Stored(self.stack_tensor(stack.name), (at, *own_index), value, stack.shape, dtype=self.dtype(part))
        )

    def store_in_order(self) -> None:
        """Store the values to be stored in graph order, starting at the inputs, so that a deep graph is read one launch
        at a time."""
        for node in self.graph.nodes:
            if node.name in self.stacks:
                self.value(Ref(node.name), self.axes_for(node.shape))
            elif node.name in self.stops:
                self.stored(Ref(node.name, 0 if node.results else None))

    def store(
        self, key: Any, index: Index, value: Expr, shape: tuple[Extent, ...], purpose: Purpose = Purpose.VALUE
    ) -> str:
        """Return a temporary tensor of ``shape`` with ``value`` at ``index``, created once per ``key``."""
        if key not in self.stored_names:
            name = self.stored_names[key] = self._tensor_name(key)
            dtype = self.dtype(key) if isinstance(key, Ref) else ""
            serves = not isinstance(key, Ref)
            self.cuts.append(Stored(name, index, value, shape, serves=serves, dtype=dtype, purpose=purpose))
        return self.stored_names[key]

    def kept(self, key: str, index: Index, value: Expr, shape: tuple[Extent, ...], joins: bool = False) -> str:
        """Like :meth:`store`, for readers that may read the tensor in any view."""
        if key not in self.stored_names:
            self.stored_names[key] = self._tensor_name((key,))
            self.cuts.append(Stored(self.stored_names[key], index, value, shape, joins=joins, dtype=value.dtype))
        return self.stored_names[key]

    def _tensor_name(self, key: Any) -> str:
        if key in self.named:
            return self.named[key]
        base = key.name if isinstance(key, Ref) else "_".join(map(str, key))
        used_names = {*self.nodes, *self.inputs} - {base} | set(self.stored_names.values())
        name = f"{base}_all" if isinstance(key, Ref) else base
        while name in used_names:
            name += "_"
        return name

    def is_stored(self, ref: Ref) -> bool:
        """Return whether ``ref`` is an input or a value with its own tensor."""
        if ref.name in self.stacks:
            return False
        if ref.name in self.inputs:
            return not self.inputs[ref.name].last
        return ref.name in self.library or (ref.name in self.stops and not ref.item)

    def expected(self, extent: Extent) -> int | None:
        """Return the extent as a number, either fixed or from the expected sizes; None if there is no estimate."""
        if isinstance(extent, int) or self.options.sizes is None:
            return extent if isinstance(extent, int) else None
        return extents.value(extent, self.options.sizes)

    def largest(self, extent: Extent) -> int:
        """Return an upper bound of the extent; one that may decrease as a size grows is bounded only by memory."""
        return extents.value(extent, self.options.most) if _grows(extent) else 1 << 31

    def tensor(self, ref: Ref) -> str:
        """Return the tensor of a ref for which :meth:`is_stored` holds."""
        return ref.name if ref.name in self.inputs and self.is_stored(ref) else self.stored(ref)

    # -- shapes

    def take_axes(self, node: Node, queue: list[Axis], extent: Extent) -> list[Axis]:
        """Take axes with total extent ``extent`` from the front of ``queue``; an axis that is longer is split.

        Raises:
            DesignError: the axes do not divide in this way.
        """
        remaining = extents.product(extent)
        result: list[Axis] = []
        while remaining != extents.ONE:
            if not queue:
                raise self.refuse(node, f"the reshape to {list(node.shape)} does not follow the axes")
            axis = queue.pop(0)
            axis_size = extents.product(axis.extent)
            rest = remaining.over(axis_size)
            if rest is not None:
                result.append(axis)
                remaining = rest
                continue
            inner = axis_size.over(remaining)
            if inner is None:
                raise self.refuse(node, f"the reshape to {list(node.shape)} does not follow the axes")
            outer_axis, inner_axis = axis.split(remaining.extent, inner.extent)
            # an output with the parts' shape is then computed in the same launch
            for part in (outer_axis, inner_axis):
                self._pool.setdefault(extents.product(part.extent), []).append(part)
            result.append(outer_axis)
            queue.insert(0, inner_axis)
            remaining = extents.ONE
        return result

    # -- composite values

    def reduce(self, kind: str, arg: Expr, index: Index, dims: list[int], dtype: str, line: int) -> Expr:
        """Return ``arg`` reduced over ``dims``; a cast if none of them has an axis."""
        over = tuple(leaf for d in dims for leaf in index[d].leaves())
        if not over:
            if kind in ("argmax", "argmin"):
                return Num(0, "int64")
            return arg if arg.dtype == dtype else Op("cast", (arg,), dtype, line)
        return Red(kind, arg, over, dtype, line)

    def count(self, shape: tuple[Extent, ...], dims: list[int]) -> Expr:
        """Return the number of elements over ``dims`` as a float."""
        total = extents.times([shape[d] for d in dims])
        return Num(float(total), "float32") if isinstance(total, int) else SymNum(total, "float32")

    def position(self, ix: Ix) -> Expr:
        """Return the position of an index as an integer value."""
        if ix.at is not None:
            offset = number(ix.offset)
            if ix.sign == -1:
                return Op("sub", (offset, ix.at), "int64")
            return ix.at if ix.offset == 0 else Op("add", (ix.at, offset), "int64")
        return Num(ix.offset, "int64") if not ix.axes and isinstance(ix.offset, int) else Iota(ix)

    def dot(self, a: Expr, b: Expr, over: Axis, rows: Ix, cols: Ix, dtype: str, line: int) -> Expr:
        """Return a product summed over ``over``; without rows or columns, or over short parts, a plain reduction."""
        short = len(over.leaves()) > 1 and any(run(side, over.leaves()) < _SHORT for side in (a, b))
        free = Free()
        # a factor that is the same in every row is not a matrix
        matrices = set(rows.leaves()) & free(a) and set(cols.leaves()) & free(b)
        if not matrices or short:
            compute = dtype if dtype == "float64" else "float32"
            return Red("sum", Op("mul", (a, b), compute, line), over.leaves(), dtype, line)
        return Dot(a, b, over, dtype, line)
