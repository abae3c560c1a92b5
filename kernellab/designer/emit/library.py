"""A sketch that is one library call: its tensors in their memory layout, and the one statement."""

from __future__ import annotations

from kernellab.designer.emit.nodes import Names, call, extent, let, listed, number
from kernellab.designer.emit.sketch import assembled
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.convolutions import numbers_of
from kernellab.designer.graph.library import ATTENTION, LibraryCall, Operand, attention_told
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.errors import DesignError
from kernellab.sketch.program.aten import read_call, symbols_of
from kernellab.sketch.program.library import ATEN, LIBRARY, PREFIX
from kernellab.sketch.syntax.tree import Bool, Expr, Name, Num, Sketch, Str, TensorDecl
from kernellab.task import Task

#: the comment above each such sketch
_WHY = "One call of the framework's library makes this {}; what is around it is our own."
_FALLBACK = "No rule designs {}: one call of the framework makes it; what is around it is our own."
_TITLES = {"mm": "product", "bmm": "product", ATTENTION: "attention"}


def library_sketch(
    b: Builder, made: LibraryCall, name: str, roles: dict[str, str | None], task: Task, precision: str
) -> Sketch:
    """The sketch ``name``. ``roles`` says what a tensor is (None for an input); any other is a temp."""
    dtype = made.dtype or made.node.dtype
    shapes = [(o.tensor, o.shape, o.dtype or dtype) for o in made.operands]
    tensors = [*dict.fromkeys(shapes), (made.tensor, made.shape or (1,), dtype)]
    declared = [TensorDecl(t, tuple(map(extent, shape)), DTYPES[d], roles.get(t, "temp")) for t, shape, d in tensors]
    named = {name for _, shape, _ in tensors for length in shape for name in extents.names(length)}
    named |= symbols_of(read_call(made.text)) if made.text else set()
    symbols = [d.name for d in task.dims if d.name in named]
    op, settings = (ATEN, {"call": Str(made.text)}) if made.text else _operation(b, made)
    if precision != "ieee":
        settings["precision"] = Str(precision)
    why = _FALLBACK.format(made.kind) if made.text else _WHY.format(_TITLES.get(made.kind, "convolution"))
    value = call(f"{PREFIX}{op}", *map(_operand, made.operands), **settings)
    return assembled(name, [why], symbols, declared, [], [let(made.tensor, value)])


def _operation(b: Builder, made: LibraryCall) -> tuple[str, dict[str, Expr]]:
    """The operation's name, and the settings that are not its defaults."""
    if not made.is_convolution:
        name = next(op.name for op in LIBRARY.values() if made.kind in op.aten)
        if made.kind != ATTENTION:
            return name, {}
        told = attention_told(made.node)
        scale = {} if told.scale is None else {"scale": number(float(told.scale))}
        return name, {**({"is_causal": Bool(True)} if told.is_causal else {}), **scale}
    found = numbers_of(b, made.node)
    name = f"conv{'_transpose' if found.transposed else ''}{len(found.stride)}d"
    values: dict[str, tuple[int, ...]] = {
        "stride": found.stride, "padding": found.padding, "output_padding": found.output_padding,
        "dilation": found.dilation, "groups": (found.groups,),
    }  # fmt: skip
    said = [(s.name, values[s.name]) for s in LIBRARY[name].settings if set(values[s.name]) != {s.default}]
    return name, {n: Num(v[0]) if len(set(v)) == 1 else listed(map(Num, v)) for n, v in said}


def _operand(operand: Operand) -> Expr:
    order, rank, tensor = operand.order, len(operand.order), Name(operand.tensor)
    if order == tuple(range(rank)):
        return tensor
    turned = order == (*range(rank - 2), rank - 1, rank - 2)
    return call("transpose", tensor) if turned else call("transpose", tensor, listed(map(Num, order)))


def with_calls(
    parts: list[Sketch], names: list[str], reads: list[set[str]], b: Builder, task: Task, gpu: bool
) -> list[Sketch]:
    """Own sketches and those of the library's calls in order: each call comes before the first that reads it.

    ``names`` and ``reads`` are the name and the tensors of each own sketch.

    Raises:
        DesignError: nothing reads what the library would make.
    """
    roles = dict[str, str | None]({i.name: None for i in b.graph.inputs}) | dict.fromkeys(b.named.values(), "out")
    titles = Names(set(names))
    found: list[Sketch] = []
    placed: set[str] = set()

    def place(tensor: str) -> None:
        if tensor in placed or tensor not in b.calls:
            return
        placed.add(tensor)
        made = b.calls[tensor]
        for operand in made.operands:
            place(operand.tensor)
        title = titles.fresh(f"{task.name}_library")
        found.append(library_sketch(b, made, title, roles, task, _precision(task, made, gpu)))

    for part, read in zip(parts, reads, strict=True):
        for tensor in sorted(read):
            place(tensor)
        found.append(part)
    for tensor in b.named.values():
        place(tensor)
    if not placed:
        raise DesignError("The rules need no product of the library here.", "Use the schedules of own kernels.")
    return found


def _precision(task: Task, call: LibraryCall, gpu: bool) -> str:
    """What torch's flags say, as the task sets them; float32 where kernels have to be strict."""
    if call.node.dtype != "float32" or not gpu or task.strict:
        return "ieee"
    wanted = task.precision.get("conv", "tf32") if call.is_convolution else task.precision.get("matmul", "ieee")
    return "tf32" if wanted == "tf32" else "ieee"
