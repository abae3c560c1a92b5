"""A sketch that is one library call: its tensors in their memory layout, and one statement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple, Union

from kernellab.capture.graph import Extent
from kernellab.designer.emit.nodes import Names, call, extent, let, listed, number
from kernellab.designer.emit.recurrent import TITLE
from kernellab.designer.emit.sketch import assembled
from kernellab.designer.frontend.build import Builder, StoredCall
from kernellab.designer.frontend.convolutions import CONVOLUTIONS, numbers_of
from kernellab.designer.frontend.recurrent import Recurrence
from kernellab.designer.graph.library import CallKind, LibraryCall, Operand, attention_arguments
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.steps.loops import LoopResult, Steps
from kernellab.errors import DesignError
from kernellab.sketch.program.aten import read_call, symbols_of
from kernellab.sketch.program.library import ATEN, LIBRARY, PREFIX
from kernellab.sketch.syntax.tree import Bool, Expr, Name, Num, Sketch, Str, TensorDecl
from kernellab.task import Task


class _Tensor(NamedTuple):
    name: str
    shape: tuple[Extent, ...]
    dtype: str


def library_sketch(
    b: Builder, made: LibraryCall, name: str, roles: Mapping[str, str | None], task: Task, precision: str
) -> Sketch:
    """Return the sketch ``name``. ``roles`` maps a tensor to its role (None for an input); all others are
    temporaries."""
    operands = [_Tensor(o.tensor, o.shape, o.dtype or made.dtype) for o in made.operands]
    tensors = [*dict.fromkeys(operands), _Tensor(made.tensor, made.shape or (1,), made.dtype)]
    declarations = [
        TensorDecl(t.name, tuple(map(extent, t.shape)), DTYPES[t.dtype], roles.get(t.name, "temp")) for t in tensors
    ]
    used_names = {name for t in tensors for length in t.shape for name in extents.names(length)}
    used_names |= symbols_of(read_call(made.text)) if made.kind is CallKind.ATEN else set()
    symbols = [d.name for d in task.dims if d.name in used_names]
    op, settings = _SETTINGS[made.kind](b, made)
    if precision != "ieee":
        settings["precision"] = Str(precision)
    value = call(f"{PREFIX}{op}", *map(_operand, made.operands), **settings)
    return assembled(name, [made.why], symbols, declarations, [], [let(made.tensor, value)])


#: writes the sketch of a loop or of a recurrent layer's steps, given a name and the roles of tensors
StepsWriter = Callable[[Union[Recurrence, Steps], str, Mapping[str, Union[str, None]]], Sketch]
#: an operation of the library, and its settings other than the defaults
Settings = tuple[str, dict[str, Expr]]


def _entry(made: LibraryCall) -> str:
    """Return the operation of the library table for a call."""
    return next(op.name for op in LIBRARY.values() if made.op in op.aten)


def _aten(b: Builder, made: LibraryCall) -> Settings:
    return ATEN, {"call": Str(made.text)}


def _product(b: Builder, made: LibraryCall) -> Settings:
    return _entry(made), {}


def _attention(b: Builder, made: LibraryCall) -> Settings:
    arguments = attention_arguments(made.node)
    scale = {} if arguments.scale is None else {"scale": number(float(arguments.scale))}
    return _entry(made), {**({"is_causal": Bool(True)} if arguments.is_causal else {}), **scale}


def _convolution(b: Builder, made: LibraryCall) -> Settings:
    numbers = numbers_of(b, made.node)
    name = f"conv{'_transpose' if numbers.transposed else ''}{len(numbers.stride)}d"
    values: dict[str, tuple[int, ...]] = {
        "stride": numbers.stride, "padding": numbers.padding, "output_padding": numbers.output_padding,
        "dilation": numbers.dilation, "groups": (numbers.groups,),
    }  # fmt: skip
    changed = [(s.name, values[s.name]) for s in LIBRARY[name].settings if set(values[s.name]) != {s.default}]
    return name, {n: Num(v[0]) if len(set(v)) == 1 else listed(map(Num, v)) for n, v in changed}


_SETTINGS: dict[CallKind, Callable[[Builder, LibraryCall], Settings]] = {
    CallKind.PRODUCT: _product,
    CallKind.CONVOLUTION: _convolution,
    CallKind.ATTENTION: _attention,
    CallKind.ATEN: _aten,
}


def _operand(operand: Operand) -> Expr:
    """Return an operand of a call: a tensor, or a transpose of one."""
    order, rank, tensor = operand.order, len(operand.order), Name(operand.tensor)
    if order == tuple(range(rank)):
        return tensor
    transposed = order == (*range(rank - 2), rank - 1, rank - 2)
    return call("transpose", tensor) if transposed else call("transpose", tensor, listed(map(Num, order)))


class OwnSketch(NamedTuple):
    """A sketch of ours, and the tensors that it reads."""

    sketch: Sketch
    reads: Set[str]


class Calls:
    """The sketches of a file in order: each library call, loop and recurrent layer precedes its first reader.

    ``steps`` writes the sketches of loops and recurrent layers, which are placed like calls.
    """

    def __init__(self, b: Builder, task: Task, gpu: bool, steps: StepsWriter) -> None:
        self._b, self._task, self._gpu, self._steps = b, task, gpu, steps
        self._roles: dict[str, str | None] = {i.name: None for i in b.graph.inputs}
        self._roles |= dict.fromkeys(b.named.values(), "out")
        self._titles = Names(set())
        self._sketches: list[Sketch] = []
        #: tensors whose sketch is placed
        self._placed: set[str] = set()

    def around(self, own: Sequence[OwnSketch]) -> list[Sketch]:
        """Return our own sketches and those of the calls.

        Raises:
            DesignError: nothing reads the library's results.
        """
        self._titles.taken.update(part.sketch.name for part in own)
        for part in own:
            self._place(part.reads)
            self._sketches.append(part.sketch)
        for tensor in self._b.named.values():
            self._place({tensor})
        if not self._placed:
            raise DesignError(
                "No launch of this graph reads a library product.", "Choose a schedule without library calls."
            )
        return self._sketches

    def _place(self, tensors: Set[str]) -> None:
        """Add the sketches that write ``tensors``, after those that write what they read."""
        for tensor in sorted(tensors):
            if tensor not in self._placed and tensor in self._b.calls:
                self._add(self._b.calls[tensor])

    def _add(self, entry: StoredCall) -> None:
        if isinstance(entry, (Recurrence, LoopResult)):
            launch = entry.loop if isinstance(entry, LoopResult) else entry
            self._placed.update(launch.written)
            self._place(launch.reads)
            self._sketches.append(self._steps(launch, self._titles.fresh(f"{self._task.name}_{TITLE}"), self._roles))
            return
        assert isinstance(entry, LibraryCall), entry
        self._placed.add(entry.tensor)
        for operand in entry.operands:
            self._place({operand.tensor})
        title = self._titles.fresh(f"{self._task.name}_{entry.title}")
        precision = _precision(self._task, entry, self._gpu)
        self._sketches.append(library_sketch(self._b, entry, title, self._roles, self._task, precision))


def _precision(task: Task, call: LibraryCall, gpu: bool) -> str:
    """Return the precision of torch's flags as set by the task; full float32 if kernels must be strict and eager is."""
    if call.node.dtype != "float32" or not gpu:
        return "ieee"
    if task.strict:
        return "tf32" if call.op in CONVOLUTIONS and call.node.args[1].name in task.rounded else "ieee"
    stated = task.precision.get("conv", "tf32") if call.op in CONVOLUTIONS else task.precision.get("matmul", "ieee")
    return "tf32" if stated == "tf32" else "ieee"
