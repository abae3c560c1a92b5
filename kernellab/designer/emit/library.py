"""A sketch that is one library call: its tensors in their memory layout, and one statement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

from kernellab.designer.emit.nodes import Names, call, extent, let, listed, number
from kernellab.designer.emit.recurrent import TITLE
from kernellab.designer.emit.sketch import assembled
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.convolutions import CONVOLUTIONS, numbers_of
from kernellab.designer.frontend.recurrent import Recurrence
from kernellab.designer.graph.library import CallKind, LibraryCall, Operand, attention_told
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.steps.loops import LoopResult, Steps
from kernellab.errors import DesignError
from kernellab.sketch.program.aten import read_call, symbols_of
from kernellab.sketch.program.library import ATEN, LIBRARY, PREFIX
from kernellab.sketch.syntax.tree import Bool, Expr, Name, Num, Sketch, Str, TensorDecl
from kernellab.task import Task


def library_sketch(
    b: Builder, made: LibraryCall, name: str, roles: dict[str, str | None], task: Task, precision: str
) -> Sketch:
    """Return the sketch ``name``. ``roles`` maps a tensor to its role (None for an input); all others are
    temporaries."""
    shapes = [(o.tensor, o.shape, o.dtype or made.dtype) for o in made.operands]
    tensors = [*dict.fromkeys(shapes), (made.tensor, made.shape or (1,), made.dtype)]
    declarations = [
        TensorDecl(t, tuple(map(extent, shape)), DTYPES[d], roles.get(t, "temp")) for t, shape, d in tensors
    ]
    used_names = {name for _, shape, _ in tensors for length in shape for name in extents.names(length)}
    used_names |= symbols_of(read_call(made.text)) if made.kind is CallKind.ATEN else set()
    symbols = [d.name for d in task.dims if d.name in used_names]
    op, settings = _SETTINGS[made.kind](b, made)
    if precision != "ieee":
        settings["precision"] = Str(precision)
    value = call(f"{PREFIX}{op}", *map(_operand, made.operands), **settings)
    return assembled(name, [made.why], symbols, declarations, [], [let(made.tensor, value)])


#: writes the sketch of a loop or of a recurrent layer's steps, given a name and the roles of tensors
Walker = Callable[[Union[Recurrence, Steps], str, dict[str, Union[str, None]]], Sketch]
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
    arguments = attention_told(made.node)
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
    order, rank, tensor = operand.order, len(operand.order), Name(operand.tensor)
    if order == tuple(range(rank)):
        return tensor
    transposed = order == (*range(rank - 2), rank - 1, rank - 2)
    return call("transpose", tensor) if transposed else call("transpose", tensor, listed(map(Num, order)))


def with_calls(
    parts: list[Sketch], names: list[str], reads: list[set[str]], b: Builder, task: Task, gpu: bool, steps: Walker
) -> list[Sketch]:
    """Return our own sketches and those of library calls in order: each call precedes its first reader.

    ``names`` and ``reads`` are the name and the tensors of each own sketch; ``steps`` writes the sketches of loops and
    recurrent layers, which are placed like calls.

    Raises:
        DesignError: nothing reads the library's results.
    """
    roles = dict[str, str | None]({i.name: None for i in b.graph.inputs}) | dict.fromkeys(b.named.values(), "out")
    titles = Names(set(names))
    sketches: list[Sketch] = []
    placed: set[str] = set()

    def place(tensor: str) -> None:
        if tensor in placed or tensor not in b.calls:
            return
        entry = b.calls[tensor]
        if isinstance(entry, (Recurrence, LoopResult)):
            launch = entry.loop if isinstance(entry, LoopResult) else entry
            placed.update(launch.written)
            for each in sorted(launch.reads):
                place(each)
            sketches.append(steps(launch, titles.fresh(f"{task.name}_{TITLE}"), roles))
            return
        assert isinstance(entry, LibraryCall), entry
        placed.add(tensor)
        for operand in entry.operands:
            place(operand.tensor)
        title = titles.fresh(f"{task.name}_{entry.title}")
        sketches.append(library_sketch(b, entry, title, roles, task, _precision(task, entry, gpu)))

    for part, read in zip(parts, reads, strict=True):
        for tensor in sorted(read):
            place(tensor)
        sketches.append(part)
    for tensor in b.named.values():
        place(tensor)
    if not placed:
        raise DesignError(
            "No launch of this graph reads a library product.", "Choose a schedule without library calls."
        )
    return sketches


def _precision(task: Task, call: LibraryCall, gpu: bool) -> str:
    """Return the precision of torch's flags as set by the task; full float32 if kernels must be strict and eager is."""
    if call.node.dtype != "float32" or not gpu:
        return "ieee"
    if task.strict:
        return "tf32" if call.op in CONVOLUTIONS and call.node.args[1].name in task.rounded else "ieee"
    stated = task.precision.get("conv", "tf32") if call.op in CONVOLUTIONS else task.precision.get("matmul", "ieee")
    return "tf32" if stated == "tf32" else "ieee"
