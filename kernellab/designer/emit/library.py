"""Text of a sketch that is one library call: its tensors as they lie in memory, and the one statement."""

from __future__ import annotations

from kernellab.designer.emit.text import Names
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.convolutions import numbers_of
from kernellab.designer.graph.library import ATTENTION, LibraryCall, Operand, attention_told
from kernellab.designer.ir import extents
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.errors import DesignError
from kernellab.sketch.program.aten import read_call, symbols_of
from kernellab.sketch.program.library import ATEN, LIBRARY, PREFIX
from kernellab.task import Task

#: what stands above each such sketch
_WHY = "One call of the framework's library makes this {}; what is around it is our own."
_FALLBACK = "No rule designs {}: one call of the framework makes it; what is around it is our own."
_TITLES = {"mm": "product", "bmm": "product", ATTENTION: "attention"}


def library_sketch(b: Builder, call: LibraryCall, name: str, roles: dict[str, str], task: Task, precision: str) -> str:
    """The sketch ``name``. ``roles`` says what a tensor is (nothing for an input); any other is a temp."""
    made = call.dtype or call.node.dtype
    shapes = [(o.tensor, o.shape, o.dtype or made) for o in call.operands]
    tensors = [*dict.fromkeys(shapes), (call.tensor, call.shape or (1,), made)]
    declared = [
        f"{t}[{', '.join(map(str, shape))}]: {DTYPES[dtype]}{roles.get(t, ' temp')};" for t, shape, dtype in tensors
    ]
    named = {name for _, shape, _ in tensors for extent in shape for name in extents.names(extent)}
    named |= symbols_of(read_call(call.text)) if call.text else set()
    symbols = [d.name for d in task.dims if d.name in named]
    op, settings = (ATEN, [f'call="{call.text}"']) if call.text else _operation(b, call)
    given = [*map(_operand, call.operands), *settings, *([f'precision="{precision}"'] if precision != "ieee" else [])]
    why = _FALLBACK.format(call.kind) if call.text else _WHY.format(_TITLES.get(call.kind, "convolution"))
    lines = [f"sketch {name} {{", f"    # {why}"]
    lines += [f"    symbols: {', '.join(symbols)};"] if symbols else []
    lines += [f"    tensors: {' '.join(declared)}", ""]
    return "\n".join([*lines, f"    {call.tensor} = {PREFIX}{op}({', '.join(given)})", "}"])


def _operation(b: Builder, call: LibraryCall) -> tuple[str, list[str]]:
    """The operation's name, and the settings that are not its defaults."""
    if not call.is_convolution:
        name = next(op.name for op in LIBRARY.values() if call.kind in op.aten)
        if call.kind != ATTENTION:
            return name, []
        told = attention_told(call.node)
        scale = [] if told.scale is None else [f"scale={float(told.scale)!r}"]
        return name, [*(["is_causal=true"] if told.is_causal else []), *scale]
    found = numbers_of(b, call.node)
    name = f"conv{'_transpose' if found.transposed else ''}{len(found.stride)}d"
    values: dict[str, tuple[int, ...]] = {
        "stride": found.stride, "padding": found.padding, "output_padding": found.output_padding,
        "dilation": found.dilation, "groups": (found.groups,),
    }  # fmt: skip
    said = [(s.name, values[s.name]) for s in LIBRARY[name].settings if set(values[s.name]) != {s.default}]
    return name, [f"{n}={v[0] if len(set(v)) == 1 else list(v)}" for n, v in said]


def _operand(operand: Operand) -> str:
    order, rank = operand.order, len(operand.order)
    if order == tuple(range(rank)):
        return operand.tensor
    turned = order == (*range(rank - 2), rank - 1, rank - 2)
    return f"transpose({operand.tensor})" if turned else f"transpose({operand.tensor}, {list(order)})"


def with_calls(
    parts: list[str], names: list[str], reads: list[set[str]], b: Builder, task: Task, gpu: bool
) -> list[str]:
    """Own sketches and those of the library's calls in order: each call stands before the first that reads it.

    ``names`` and ``reads`` are the name and the tensors of each own sketch.

    Raises:
        DesignError: nothing reads what the library would make.
    """
    roles = {i.name: "" for i in b.graph.inputs} | dict.fromkeys(b.named.values(), " out")
    titles = Names(set(names))
    found: list[str] = []
    placed: set[str] = set()

    def place(tensor: str) -> None:
        if tensor in placed or tensor not in b.calls:
            return
        placed.add(tensor)
        call = b.calls[tensor]
        for operand in call.operands:
            place(operand.tensor)
        title = titles.fresh(f"{task.name}_library")
        found.append(library_sketch(b, call, title, roles, task, _precision(task, call, gpu)))

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
    """What torch's flags say, as the task sets them."""
    if call.node.dtype != "float32" or not gpu:
        return "ieee"
    wanted = task.precision.get("conv", "tf32") if call.is_convolution else task.precision.get("matmul", "ieee")
    return "tf32" if wanted == "tf32" else "ieee"
