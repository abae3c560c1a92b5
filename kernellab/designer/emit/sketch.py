"""A sketch for each launch of a file: the header lists what the launch reads, stores and names; its kind selects the
body."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kernellab.capture.graph import Input
from kernellab.designer.emit.attention import attention
from kernellab.designer.emit.chains import chain
from kernellab.designer.emit.nodes import Names, extent, number
from kernellab.designer.emit.products import product
from kernellab.designer.emit.reductions import copy, passes, scatter
from kernellab.designer.emit.scans import scan, sort
from kernellab.designer.emit.windows.window import window
from kernellab.designer.emit.writer import Writer
from kernellab.designer.ir import extents
from kernellab.designer.ir.axes import Ix
from kernellab.designer.ir.dtypes import DTYPES
from kernellab.designer.ir.expr import Iota, Leaf, SymNum, walk
from kernellab.designer.ir.launch import RESULT_TITLE, Launch, LaunchKind
from kernellab.designer.ir.normal import Layout
from kernellab.designer.ir.tiling import Consts, Tiling
from kernellab.designer.steps.sketch import steps
from kernellab.designer.tile import why
from kernellab.errors import DesignError
from kernellab.operations.sketch import OPS
from kernellab.sketch.syntax import tree
from kernellab.sketch.syntax.words import RESERVED
from kernellab.task import Task
from kernellab.task.task import channels_at_end

#: function that writes the statements of a launch
Rule = Callable[[Writer], tuple[tree.Stmt, ...]]

EMIT: dict[LaunchKind, Rule] = {
    LaunchKind.POINTWISE: passes,
    LaunchKind.SCATTER: scatter,
    LaunchKind.REDUCTION: passes,
    LaunchKind.SCAN: scan,
    LaunchKind.SORT: sort,
    LaunchKind.PRODUCT: product,
    LaunchKind.WINDOW: window,
    LaunchKind.ATTENTION: attention,
    LaunchKind.CHAIN: chain,
    LaunchKind.COPY: copy,
    LaunchKind.STEPS: steps,
}


@dataclass(frozen=True)
class File:
    """Properties shared by the sketches of one file.

    ``inputs`` and ``results`` are the tensors that enter and leave the graph. ``sizing`` names an input for each Dim
    that only unread inputs have. ``warps`` and ``stages`` are the launch options of the file (0: none). A launch that
    needs other warps leaves them to the lowering; its own stages are in its loop's hint.
    """

    task: Task
    layout: Layout
    consts: Consts
    inputs: Sequence[Input]
    sizing: Mapping[str, Input]
    results: frozenset[str]
    warps: int
    stages: int

    @property
    def taken(self) -> set[str]:
        """Names that have a meaning in a sketch of the file."""
        task_names = {d.name for d in self.task.dims} | {a.name for a in self.task.args}
        return {*RESERVED, *DTYPES, *OPS, *self.layout.views, *self.consts.values, *task_names}

    def shares_stages(self, k: Launch, t: Tiling) -> bool:
        """Return whether the launch uses the file's number of stages."""
        return bool(self.warps) and k.streams and t.stages == self.stages


def sizing(inputs: Sequence[Input], loaded: Collection[str]) -> dict[str, Input]:
    """Return, for each Dim that no input in ``loaded`` has, the first input that has it; no element of that input is
    read."""
    loaded_names = {n for i in inputs if i.name in loaded for e in i.shape for n in extents.names(e)}
    result: dict[str, Input] = {}
    for i in (i for i in inputs if i.name not in loaded and i.dtype in DTYPES):
        for name in {n for e in i.shape for n in extents.names(e)} - loaded_names:
            result.setdefault(name, i)
    return result


def titles(task: str, launches: Sequence[Launch]) -> list[str]:
    """Return a name for each sketch: the task's and its launch's title; a result at the start of the file is
    ``first``."""
    if len(launches) == 1:
        return [task]
    names, result = Names(set()), list[str]()
    for k in launches:
        opens = k.title == RESULT_TITLE and not result
        result.append(names.fresh(f"{task}_{'first' if opens else k.title}"))
    return result


def sketch(file: File, name: str, k: Launch, t: Tiling, warps: int) -> tree.Sketch:
    """Return the sketch of one launch; ``warps`` are those that it would use on its own.

    Raises:
        DesignError: the sketch language has no name for a tensor's dtype, or a reduction has no schedule.
    """
    option = tree.Name("num_stages") if file.shares_stages(k, t) else tree.Num(t.stages)
    writer = Writer(k, t, file.layout, Names(file.taken), option if t.stages else None)
    body = EMIT[k.kind](writer)
    words = (*t.why, why.FROM_VECTOR) if writer.starts_at_vector else t.why
    used_names = mentioned(file.layout, k, t)
    sizes = {i.name: i for n, i in file.sizing.items() if n in used_names}
    used_names |= {n for i in sizes.values() for e in i.shape for n in extents.names(e)}
    symbols = [d.name for d in file.task.dims if d.name in used_names]
    shapes = {n: channels_at_end(i.shape) if i.last else i.shape for n, i in sizes.items()}
    tensors = [tree.TensorDecl(n, tuple(map(extent, shapes[n])), DTYPES[i.dtype], None) for n, i in sizes.items()]
    return assembled(
        name, words, symbols, [*tensors, *_tensors(file, k)], _constants(file, k, t, used_names, warps), body
    )


def assembled(
    name: str,
    words: Sequence[str],
    symbols: Sequence[str],
    tensors: Sequence[tree.TensorDecl],
    constants: Sequence[tree.ConstDecl],
    body: Sequence[tree.Stmt],
) -> tree.Sketch:
    """Return a sketch that begins with the sentences of ``words`` as comments."""
    lines: dict[str, tuple[tree.SymbolDecl | tree.TensorDecl | tree.ConstDecl, ...]] = {
        "symbols": tuple(map(tree.SymbolDecl, symbols)), "tensors": tuple(tensors), "constexpr": tuple(constants),
    }  # fmt: skip
    first, *rest = [tree.Declaration(kind, items) for kind, items in lines.items() if items]
    return tree.Sketch(name, (replace(first, comments=tree.Comments(tuple(words))), *rest), tuple(body))


def mentioned(layout: Layout, k: Launch, t: Tiling) -> frozenset[str]:
    """Return the Dims, scalars and constexprs that a launch names."""
    result: set[str] = {*t.blocks.values(), t.added_rows, t.window.tiles_per_program}

    def index(indices: Sequence[Ix]) -> None:
        for ix in indices:
            result.update(extents.names(ix.offset))

    lengths = [extent for tensor in {e.tensor for e in k.loads} for extent in layout.views.get(tensor, ())]
    lengths += [extent for o in k.outs for extent in layout.views.get(o.tensor, ())]
    lengths += [axis.extent for axis in (*k.par, *k.red)]
    for length in lengths:
        result |= extents.names(length)
    for o in k.outs:
        index(o.index)
    visited: dict[int, object] = {}
    for root in k.roots:
        for e in walk(root, visited):
            if isinstance(e, SymNum):
                result |= extents.names(e.expr)
            elif isinstance(e, Iota):
                index([e.index])
            elif isinstance(e, Leaf):
                index(e.index)
    return frozenset(result)


def _not_held(tensor: str, dtype: str) -> DesignError:
    """Return the error for a tensor whose dtype the sketch language does not have."""
    remedy = {
        "complex64": "Compute on its real and imaginary parts (torch.view_as_real)",
        "complex128": "Compute on its real and imaginary parts (torch.view_as_real)",
        "uint16": "Pass it as int32, which holds all of its values",
        "uint32": "Pass it as int64, which holds all of its values",
        "uint64": "Pass its bits as int64 (x.view(torch.int64))",
    }.get(dtype, "Give it another dtype")
    return DesignError(
        f"The tensor {tensor!r} is {dtype}, which a sketch cannot hold.",
        f"{remedy}, or let a person or a model write the kernel.",
    )


def _tensors(file: File, k: Launch) -> list[tree.TensorDecl]:
    """Return the declarations of the tensors: inputs in the graph's order, temporaries, and stored tensors.

    Raises:
        DesignError: the sketch language has no name for a tensor's dtype.
    """
    loaded = list(dict.fromkeys(e.tensor for e in k.loads))
    places: Mapping[str, int] = {i.name: n for n, i in enumerate(file.inputs)}
    own_name = file.layout.name
    inputs = sorted((t for t in loaded if own_name(t) in places), key=lambda t: places[own_name(t)])
    temps = [t for t in loaded if t not in inputs]
    declarations = []
    for t in dict.fromkeys([*inputs, *temps, *(o.tensor for o in k.outs)]):
        role = "out" if own_name(t) in file.results else "temp" if t not in inputs else None
        if file.layout.dtypes[t] not in DTYPES:
            raise _not_held(own_name(t), file.layout.dtypes[t])
        view = file.layout.views.get(t) or (1,)
        declarations.append(tree.TensorDecl(own_name(t), tuple(map(extent, view)), DTYPES[file.layout.dtypes[t]], role))
    return declarations


def _constants(file: File, k: Launch, t: Tiling, named: frozenset[str], warps: int) -> list[tree.ConstDecl]:
    """Return the declarations of the scalars, the tile sizes, and the launch options."""
    declarations = []
    for arg in (a for a in file.task.args if not a.is_tensor and a.name in named):
        value = arg.default if arg.default is not None else arg.value
        declarations.append(tree.ConstDecl(arg.name, None if value is None else number(float(value))))
    for name, (default, choices) in file.consts.values.items():
        if name in named:
            declarations.append(_tunable(name, default, choices))
    if file.warps and warps == file.warps:
        # one value per file: the lowering chooses for launches that need another
        declarations.append(_tunable("num_warps", file.warps, (1, 2, 4, 8, 16, *((32,) if file.warps == 32 else ()))))
    if file.shares_stages(k, t):
        declarations.append(_tunable("num_stages", t.stages, (*((1,) if t.stages == 1 else ()), 2, 3, 4, 5)))
    if t.product.descriptors is not None:
        declarations.append(_tunable("descriptors", int(t.product.descriptors), (0, 1)))
    return declarations


def _tunable(name: str, default: int, choices: Sequence[int]) -> tree.ConstDecl:
    return tree.ConstDecl(name, tree.Num(default), tuple(map(tree.Num, choices)))
