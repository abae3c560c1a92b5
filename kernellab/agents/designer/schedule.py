"""Graph -> sketch file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from kernellab.agents.designer.attention import attend, attends
from kernellab.agents.designer.build import Builder
from kernellab.agents.designer.channels_last import Copy, channels_last
from kernellab.agents.designer.cuts import cut_nodes, without_twins
from kernellab.agents.designer.emit import Emitter
from kernellab.agents.designer.emit_attention import AttentionEmitter, why_attention
from kernellab.agents.designer.emit_copies import CopyEmitter, why_copy
from kernellab.agents.designer.emit_library import with_calls
from kernellab.agents.designer.emit_loops import LoopWriter
from kernellab.agents.designer.emit_scans import SCAN_JOIN
from kernellab.agents.designer.emit_values import Tiling
from kernellab.agents.designer.emit_windows import WindowEmitter, why_window
from kernellab.agents.designer.expr import Attend, Axis, Expr, Leaf, Order, Red, Scan, Win, operands, walk
from kernellab.agents.designer.extents import Extent
from kernellab.agents.designer.joined_rows import join_rows
from kernellab.agents.designer.library import given, with_library
from kernellab.agents.designer.normal import Layout, Output, collapse, share
from kernellab.agents.designer.plan import Kernel, Planner, runs_along, with_operands
from kernellab.agents.designer.planes import in_planes
from kernellab.agents.designer.puts import why_put, written_in_place
from kernellab.agents.designer.rounding import round_factors
from kernellab.agents.designer.split_k import split_products
from kernellab.agents.designer.splits import mean_of_squares_about, squares_of_parts, two_steps
from kernellab.agents.designer.styles import Style, styles
from kernellab.agents.designer.sums import MARK as SUMMED
from kernellab.agents.designer.text import DTYPES, Names, number
from kernellab.agents.designer.tiling_attention import AttentionTiler
from kernellab.agents.designer.views import in_own_names, join
from kernellab.capture import Graph
from kernellab.errors import DesignError
from kernellab.target import Target
from kernellab.task import Task

#: words of the language that no tensor or tile may be called
_WORDS = """in out inout temp for if else elif range min max ceil true false inf nan not and or sketch symbols tensors
constexpr require opaque load store alloc f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool None e"""
_RESERVED = frozenset(_WORDS.split())


def sketch_text(task: Task, graph: Graph, target: Target, style: Style) -> str:
    """The sketch file of ``graph`` in one style.

    Raises:
        DesignError: a node that the rules cannot design, or a graph that is only a copy of nothing.
    """
    return _Scheduler(task, graph, target, style).text()


class _Scheduler(AttentionTiler):
    """One graph in one style: expressions, kernels, text."""

    def __init__(self, task: Task, graph: Graph, target: Target, style: Style) -> None:
        super().__init__(task, target, style)
        self.graph = without_twins(graph)
        self.library: frozenset[str] = frozenset()
        if style.library:
            self.graph, self.library = with_library(self.graph)
        self.scalars = {a.name: a for a in task.args if not a.is_tensor}
        self.output_names: list[str] = []
        self.kernels: list[Kernel] = []

    def text(self) -> str:
        units, shapes = self._expressions()
        layout = Layout({}, shapes, {})
        kernels: list[Kernel] = []
        for unit in units:
            outputs, own = collapse([o for group in unit for o in group], shapes)
            outputs, layout = join(outputs, own, layout)
            for group in unit:
                mine, outputs = outputs[: len(group)], outputs[len(group) :]
                planned, layout = self._planned(mine, layout)
                kernels += planned
        if self.gpu and self.style.measured:
            kernels = in_planes(kernels, layout, self._size, self.target.chip, self._of_float32)
        if self.gpu and self.style.copied != "never":
            always = self.style.copied == "always"
            join_rows(kernels, layout)
            kernels = channels_last(kernels, layout, self._size, self.target.chip, always)
        round_factors(kernels, layout, self._window_precision)
        self.kernels = kernels
        names = [self.task.name] if len(kernels) == 1 else self._titles(kernels)
        tilings = [self._tiling(k) for k in kernels]
        self.warps = self._file_warps(kernels, tilings)
        self.stages = next((t.stages for k, t in self._heaviest(kernels, tilings) if _pipelined(k)), 0)
        parts = [self._sketch(*each, layout) for each in zip(names, kernels, tilings, strict=True)]
        if self.library:
            reads = [{layout.name(t) for t in _read(k)} for k in kernels]
            parts = with_calls(parts, reads, self.builder, self.task, self.gpu, self._taken(layout))
        return in_own_names("\n\n".join(parts) + "\n", layout)

    # -- from graph to kernels

    def _expressions(self) -> tuple[list[list[list[Output]]], dict[str, tuple[Extent, ...]]]:
        """Groups of outputs, each of which reads what the ones before it store; and the shapes of all tensors.

        Groups of one unit see their tensors in the same views.
        """
        cuts = frozenset() if self.style.fused else cut_nodes(given(self.graph, self.library))
        builder = self.builder = Builder(self.graph, self.task.name, cuts, self.library)
        shapes: dict[str, tuple[Extent, ...]] = {i.name: i.shape for i in self.graph.inputs}
        taken = Names({a.name for a in self.task.args} | set(self.sizes) | _RESERVED)
        outputs = []
        for i, ref in enumerate(self.graph.outputs):
            shape, dtype = builder.shape(ref), builder.dtype(ref)
            name = taken.fresh("y" if len(self.graph.outputs) == 1 else f"y{i}")
            index = builder.axes_for(shape)
            outputs.append(Output(name, index, builder.value(ref, index), dtype))
            shapes[name] = shape
        self.output_names = [o.tensor for o in outputs]
        outputs = written_in_place(builder, outputs)
        if self.style.fused:
            outputs = attend(outputs, self.gpu)
            if not attends(outputs):
                raise DesignError("There is no attention in this graph.", "Use the schedules without.")
        units: list[list[list[Output]]] = [[]]
        for c in builder.cuts:
            units[-1].append([Output(c.name, c.index, c.value, c.dtype or c.value.dtype, c.put)])
            if not c.serves:
                units.append([])
        units[-1].append(outputs)
        if self.gpu and self.style.split:
            units = [[split_products(group, self._size, self.target.chip.cores) for group in unit] for unit in units]
        shapes |= {c.name: c.shape for c in builder.cuts}
        shapes |= {name: call.shape for name, call in builder.calls.items()}
        return units, shapes

    def _planned(self, outputs: list[Output], layout: Layout) -> tuple[list[Kernel], Layout]:
        """Kernels; reductions with too few programs are split into partial results first."""
        for attempt in range(2):
            trial = replace(layout, views=dict(layout.views), dtypes=dict(layout.dtypes))
            planner = Planner(outputs, trial)
            kernels = planner.plan()
            if attempt or not self.style.split:
                break
            flagged: dict[int, tuple[Axis, int]] = {}
            for k in planner.kernels:
                found = self._splits(k)
                if found is not None:
                    mine = [i for i, home in planner.home.items() if home is k]
                    flagged |= dict.fromkeys(mine, found)
            if not flagged:
                break
            outputs = self._split(outputs, flagged)
        return kernels, trial

    def _split(self, outputs: list[Output], flagged: Mapping[int, tuple[Axis, int]]) -> list[Output]:
        done: dict[int, tuple[Expr, Expr]] = {}
        chunk_axes: dict[Axis, Axis] = {}

        def visit(e: Expr) -> Expr:
            if id(e) in done:
                return done[id(e)][1]
            moments = mean_of_squares_about(e) if isinstance(e, Red) and id(e) in flagged and self.gpu else None
            if moments is not None:
                assert isinstance(e, Red)
                x, mean = (visit(a) for a in moments)
                chunk = self._chunk_axis(chunk_axes, e, *flagged[id(e)])
                made: Expr = squares_of_parts(e, x, mean, chunk, self.chunks[chunk])
            else:
                args = tuple(visit(a) for a in operands(e))
                made = with_operands(e, args) if args != operands(e) else e
                if isinstance(made, Red) and id(e) in flagged:
                    made = two_steps(made, self._chunk_axis(chunk_axes, made, *flagged[id(e)]))
                if isinstance(made, Scan) and id(e) in flagged:
                    total = Red(SCAN_JOIN[made.kind], made.arg, made.axes, made.dtype, made.line)
                    total.chunk = self._chunk_axis(chunk_axes, total, *flagged[id(e)])
                    made = replace(made, chunk=total.chunk, before=total)
            done[id(e)] = (e, made)
            return made

        return share([replace(o, expr=visit(o.expr)) for o in outputs])

    def _chunk_axis(self, known: dict[Axis, Axis], red: Red, first: Axis, parts: int) -> Axis:
        if first not in known:
            chunk = self._chunk_size(first, parts, len(red.axes) == 1, not runs_along(red))
            name = self.consts.add("CHUNK", chunk, (chunk, 2 * chunk, 4 * chunk))
            self.sizes[name] = chunk
            known[first] = Axis(f"ceil({first.extent}, {name})")
            self.chunks[known[first]] = name
        return known[first]

    # -- text

    def _titles(self, kernels: list[Kernel]) -> list[str]:
        names = Names(set())
        titles: list[str] = []
        for k in kernels:
            if isinstance(k.dot, Win):
                kind = "window"
            elif isinstance(k, Copy):
                kind = "copy"
            elif isinstance(k.dot, Attend):
                kind = "attention"
            elif any(o.tensor.endswith(SUMMED) for o in k.outs):
                kind = "sums"
            elif any(o.tensor.endswith("_packed") for o in k.outs):
                kind = "pack"
            elif any(o.tensor.endswith("_hi") for o in k.outs):
                kind = "split"
            elif any(o.tensor in self.output_names for o in k.outs):
                kind = "finish" if titles else "first"
            else:
                kind = "partial" if k.chunk is not None else "product" if k.dot is not None else "statistics"
            titles.append(names.fresh(f"{self.task.name}_{kind}"))
        return titles

    def _sketch(self, name: str, k: Kernel, tiling: Tiling, layout: Layout) -> str:
        tensors = self._tensors(k, layout)
        taken = self._taken(layout)
        kinds: dict[type, type[LoopWriter]] = {Win: WindowEmitter, Attend: AttentionEmitter}
        kind = CopyEmitter if isinstance(k, Copy) else kinds.get(type(k.dot), Emitter)
        emitter = kind(k, tiling, layout.views, Names(taken))
        body = emitter.body()
        used = _words("\n".join([*body, *tensors]))
        symbols = [d.name for d in self.task.dims if d.name in used]
        lines = [f"sketch {name} {{"]
        lines += [f"    # {line}" for line in self._why(k, tiling)]
        if symbols:
            lines.append(f"    symbols: {', '.join(symbols)};")
        lines.append("    tensors: " + " ".join(f"{t};" for t in tensors))
        constants = self._constants(used, k, tiling)
        if constants:
            lines.append("    constexpr: " + " ".join(f"{c};" for c in constants))
        return "\n".join([*lines, "", *("    " + line for line in body), "}"])

    def _taken(self, layout: Layout) -> set[str]:
        """Names that mean something in a sketch of this file."""
        taken = set(_RESERVED) | set(layout.views) | set(self.sizes) | {a.name for a in self.task.args} | set(DTYPES)
        return taken | set(self.consts.values) | _operations()

    def _tensors(self, k: Kernel, layout: Layout) -> list[str]:
        read = _read(k)
        given = {i.name: n for n, i in enumerate(self.graph.inputs)}
        inputs = sorted((t for t in read if layout.name(t) in given), key=lambda t: given[layout.name(t)])
        temps = [t for t in read if t not in inputs]
        written = [o.tensor for o in k.outs]
        found = []
        for t in dict.fromkeys([*inputs, *temps, *written]):
            role = " out" if t in self.output_names else " temp" if t not in inputs else ""
            view = layout.views.get(t) or (1,)
            found.append(f"{t}[{', '.join(str(e) for e in view)}]: {DTYPES[layout.dtypes[t]]}{role}")
        return found

    def _constants(self, used: set[str], k: Kernel, t: Tiling) -> list[str]:
        found = []
        for name, arg in self.scalars.items():
            if name in used:
                value = arg.default if arg.default is not None else arg.value
                found.append(name if value is None else f"{name} = {number(float(value))}")
        for name, (default, choices) in self.consts.values.items():
            if name in used:
                found.append(f"{name} = {default}" + (f" in {{{', '.join(map(str, choices))}}}" if choices else ""))
        if self.gpu and self._warps(k, t) == self.warps:
            # one value for the file: for a kernel that needs another the lowering chooses
            found.append(f"num_warps = {self.warps} in {{1, 2, 4, 8, 16}}")
        if self.gpu and _pipelined(k) and t.stages == self.stages:
            found.append(f"num_stages = {t.stages} in {{{'1, ' if t.stages == 1 else ''}2, 3, 4, 5}}")
        if t.descriptors is not None:
            found.append(f"descriptors = {int(t.descriptors)} in {{0, 1}}")
        return found

    def _file_warps(self, kernels: list[Kernel], tilings: list[Tiling]) -> int:
        """The warps of the kernel that moves the most, the first of them."""
        return self._warps(*self._heaviest(kernels, tilings)[0])

    def _heaviest(self, kernels: list[Kernel], tilings: list[Tiling]) -> list[tuple[Kernel, Tiling]]:
        """The kernels by what they move, most first."""

        def moved(pair: tuple[Kernel, Tiling]) -> int:
            return math.prod(self._size(a) for a in pair[0].par | pair[0].red)

        return sorted(zip(kernels, tilings, strict=True), key=moved, reverse=True)

    def _why(self, k: Kernel, t: Tiling) -> list[str]:
        if isinstance(k.dot, Win):
            return why_window(k.dot, t)
        if isinstance(k, Copy):
            return why_copy(k)
        if isinstance(k.dot, Attend):
            return why_attention(k.dot)
        if k.dot is not None:
            if k.dot.parts:
                return ["Each factor is the sum of three bf16 parts; six products of parts make one of f32."]
            why = ["A tile of the product stays in registers while K streams past; the rest is done on the way out."]
            if t.precision == "tf32x3":
                why.append("Three TF32 products make one of f32: closer to float64 than a chain of f32 additions.")
            if t.precision == "bf16x6":
                why.append("Six bf16 products make one of f32: closer to float64 than a chain of f32 additions.")
            return why
        if any(o.tensor.endswith(SUMMED) for o in k.outs):
            return ["Of a product only sums are asked: sums of the factors are multiplied, the product is never made."]
        if any(o.tensor.endswith("_hi") for o in k.outs):
            return ["A factor as the sum of three bf16 parts, in rows of whole lines, for tensor cores to read."]
        if k.chunk is not None and k.scans:
            return ["Each program scans a piece of the axis, from what the pieces before it come to."]
        if k.chunk is not None:
            return ["One partial result a chunk, so that the whole chip works on one long reduction."]
        if k.scans and isinstance(k.scans[0], Order):
            return ["A whole row is put in order on chip; equal elements keep theirs."]
        if any(o.put for o in k.outs):
            return [why_put(k, self.gpu)]
        if k.scans:
            if not t.blocks and not t.whole:
                return ["The scan runs element by element; rows are independent."]
            return ["The scan carries from block to block; rows are independent."]
        if k.reds:
            if t.whole & k.red:
                return ["A whole row is one tile: it is read once, and every pass finds it close by."]
            if any(a in k.par for a in t.blocks):
                return ["Columns side by side share each load; the reduction runs down them."]
            return ["One pass over the row for each reduction that needs the one before."]
        return ["Pointwise: each element is read once and written once."]


def _read(k: Kernel) -> dict[str, None]:
    """The tensors that a kernel reads, in order."""
    read: dict[str, None] = {}
    seen: dict[int, object] = {}
    for root in [*k.reds, *k.scans, *([k.dot] if k.dot else []), *(o.expr for o in k.outs)]:
        read |= {e.tensor: None for e in walk(root, seen) if isinstance(e, Leaf)}
    return read


def _pipelined(k: Kernel) -> bool:
    """Does it stream factors of a product through its loop?"""
    return k.dot is not None and (not isinstance(k.dot, Win) or k.dot.packed)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _operations() -> set[str]:
    from kernellab.sketch.ops import OPS

    return set(OPS)


__all__ = ["sketch_text", "styles"]
