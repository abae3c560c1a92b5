"""Conversion of a graph to a sketch file: expressions, launches, passes over both, tiles, and syntax trees, printed
once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from functools import partial

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import LOOP, Extent
from kernellab.designer.emit.library import with_calls
from kernellab.designer.emit.nodes import Names
from kernellab.designer.emit.recurrent import steps_sketch
from kernellab.designer.emit.sketch import File, sizing, sketch, titles
from kernellab.designer.frontend.build import Builder
from kernellab.designer.frontend.recurrent import BOUNDED, GATES, RECURRENT, Recurrence
from kernellab.designer.frontend.scatter import written_in_place
from kernellab.designer.frontend.table import HANDLERS
from kernellab.designer.graph.cuts import cut_nodes, depth, without_twins
from kernellab.designer.graph.fallback import Fallback, aten_call
from kernellab.designer.graph.layers import at_once
from kernellab.designer.graph.library import LibraryCall, call_of, given, with_library
from kernellab.designer.graph.stacks import joined, stacks
from kernellab.designer.ir import extents
from kernellab.designer.ir.collapse import collapse
from kernellab.designer.ir.expr import Attend, Axis, Red
from kernellab.designer.ir.extents import Chunks
from kernellab.designer.ir.launch import Launch, LaunchKind, Plan
from kernellab.designer.ir.normal import Layout, Output, Purpose
from kernellab.designer.ir.scaling import WIDE
from kernellab.designer.passes.attention import attend, attends
from kernellab.designer.passes.chains import chained, chains, softmax_again, stored_once
from kernellab.designer.passes.channels_last import channels_last
from kernellab.designer.passes.join_rows import join_rows
from kernellab.designer.passes.one_of_row import one_of_row
from kernellab.designer.passes.pages import without_pages
from kernellab.designer.passes.plan import Planner, runs_along
from kernellab.designer.passes.round_tf32 import round_factors
from kernellab.designer.passes.routed import routed
from kernellab.designer.passes.split.k import split_products
from kernellab.designer.passes.split.lines import bytes_along
from kernellab.designer.passes.split.precision import in_planes
from kernellab.designer.passes.split.reductions import split_reductions
from kernellab.designer.passes.split.window_halves import windows_in_halves
from kernellab.designer.passes.split.windows import split_windows
from kernellab.designer.passes.views import join
from kernellab.designer.steps.loops import Steps
from kernellab.designer.steps.tiles import launch as walk_of
from kernellab.designer.steps.tiles import tiling as walk_tiling
from kernellab.designer.tile.attention import scores_again
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.gpu.precision import of_float32
from kernellab.designer.tile.gpu.rows import Rows
from kernellab.designer.tile.gpu.warps import launch_warps
from kernellab.designer.tile.recurrent import blocks_of_step, step_tiles
from kernellab.designer.tile.sorting import LONGEST
from kernellab.designer.tile.splits import Split, chunk_size, split
from kernellab.designer.tile.styles import Style, styles
from kernellab.designer.tile.table import tiling
from kernellab.designer.tile.windows import products_of, rounds, splits
from kernellab.errors import DesignError
from kernellab.sketch.syntax.printer import format
from kernellab.sketch.syntax.tree import Sketch, SketchFile
from kernellab.sketch.syntax.words import RESERVED
from kernellab.target import Target
from kernellab.task import Task
from kernellab.task.task import channels_at_end

#: every node is designed by a rule
NONE = Fallback()
#: if a chain has more operations than this, the graph is read from its inputs instead of recursively from its outputs
_DEEP = 100
#: number of (input channel, output channel) pairs up to which a GPU sums a convolution directly: tiles of tensor cores
#: hold at least 16 of each, most of them empty (1 to 6 channels, 5 x 5: 1.28 ms as products on an H100)
_FEW_CHANNELS = 16
#: largest number of reductions in one launch on a GPU: each holds a tile in registers, and 49 of them spilled to memory
_MOST_SUMS = 8
_APART = "Choose a schedule that is not called 'one launch'."


@dataclass(frozen=True)
class Scheduled:
    """A sketch file.

    ``algebra``: a product was rewritten away, since only its sums are used. ``chains``: a launch computes a factor of
    its products on chip. ``again``: programs of other columns compute the scores of an attention again.
    """

    text: str
    algebra: bool
    chains: bool = False
    again: bool = False


def scheduled(
    task: Task, graph: Graph, target: Target, style: Style, rows: Rows | None = None, fallback: Fallback = NONE
) -> Scheduled:
    """Return the sketch file of ``graph`` in one style.

    ``rows`` give the tiles in place of those measured on the chip. ``fallback``: nodes that the framework computes,
    since no rule does.

    Raises:
        DesignError: a node that the rules cannot design, or a graph that only copies nothing.
    """
    ctx = Context(task, target, style, dict(task.module().default_sizes()) if task.dims else {}, rows=rows)
    read = _read(ctx, prepared(graph), fallback)
    plan = _planned_units(ctx, read)
    for step in PASSES:
        if step.applies(ctx):
            plan = step.run(ctx, plan)
    algebra = any(Purpose.SUMS in k.purposes for k in plan.launches)
    on_chip = any(k.kind is LaunchKind.CHAIN for k in plan.launches)
    again = ctx.gpu and any(k.kind is LaunchKind.ATTENTION and scores_again(k) for k in plan.launches)
    return Scheduled(format(_written(ctx, read, plan)), algebra, on_chip, again)


def prepared(graph: Graph) -> Graph:
    """Return ``graph`` as the rules read it: each value is computed once, and equal steps are joined."""
    return joined(without_twins(graph))


# -- launches -> launches ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pass:
    """A rewrite of the launches of one file, and the condition for it."""

    name: str
    applies: Callable[[Context], bool]
    run: Callable[[Context, Plan], Plan]


def _copies_windows(ctx: Context) -> bool:
    return ctx.gpu and ctx.style.copied != "never"


def _stores_parts(ctx: Context) -> bool:
    """Return whether copies for windows store each factor in two parts. Splitting on the fly was faster on an H200
    (0.51 ms against 0.69, 3.2 against 3.8), so this is a separate schedule for the judge to compare."""
    return ctx.gpu and ctx.style.copied == "always"


def _halves(ctx: Context) -> bool:
    """Return whether float32 may be multiplied as pairs of float16 values."""
    return ctx.gpu and ctx.style.measured and not ctx.scalar_products


def _narrow_products(ctx: Context) -> bool:
    return ctx.has_copy_engine and ctx.style.measured and not ctx.scalar_products


#: in order; each maps a plan to another plan
PASSES = (
    Pass("stored-once", lambda ctx: ctx.style.fused, lambda _, plan: stored_once(plan)),
    Pass(
        "split-precision",
        lambda ctx: ctx.gpu and ctx.style.measured,
        lambda ctx, plan: in_planes(plan, ctx.size, ctx.chip, partial(of_float32, ctx)),
    ),
    Pass("bytes-along", _narrow_products, lambda ctx, plan: bytes_along(plan, ctx.size)),
    Pass("join-rows", _copies_windows, lambda _, plan: join_rows(plan)),
    Pass(
        "channels-last",
        _copies_windows,
        lambda ctx, plan: channels_last(
            plan, ctx.size, ctx.chip, partial(splits, ctx), ctx.style.copied == "always", _halves(ctx)
        ),
    ),
    Pass("split-windows", _stores_parts, lambda ctx, plan: split_windows(plan, partial(splits, ctx))),
    Pass(
        "window-halves",
        _halves,
        lambda ctx, plan: windows_in_halves(plan, ctx.size, ctx.chip, partial(products_of, ctx)),
    ),
    Pass("round-tf32", lambda ctx: ctx.gpu, lambda ctx, plan: round_factors(plan, partial(rounds, ctx))),
)


# -- graph -> expressions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Read:
    """The values that a graph computes.

    ``units``: groups of outputs, each of which reads the tensors that the previous ones store; groups of one unit see
    their tensors in the same views. ``shapes`` holds the shapes of all tensors.
    """

    graph: Graph
    builder: Builder
    units: list[list[list[Output]]]
    shapes: dict[str, tuple[Extent, ...]]

    @property
    def results(self) -> frozenset[str]:
        """The tensors that are outputs of the graph."""
        outputs = (o for unit in self.units for group in unit for o in group)
        library_results = frozenset(self.builder.named.values())
        return library_results | frozenset(o.tensor for o in outputs if o.purpose is Purpose.RESULT)


def _read(ctx: Context, graph: Graph, fallback: Fallback) -> _Read:
    style = ctx.style
    library: frozenset[str] = frozenset()
    if style.library:
        graph, library = with_library(graph)
    library |= fallback.calls
    cuts = fallback.stored if style.fused else cut_nodes(given(graph, library)) | fallback.stored
    handlers = HANDLERS
    if _walks_steps(ctx, graph):
        handlers, graph = HANDLERS | RECURRENT, at_once(graph) if _halves(ctx) else graph
    placed = stacks(graph, cuts)
    builder = Builder(
        graph, ctx.task.name, handlers, cuts, library, partial(_called, fallback), style.algebra, style.repeats, placed,
        apart=not style.fused, few=_FEW_CHANNELS if ctx.gpu else 0, halves=_halves(ctx),
        narrow=ctx.gpu and not ctx.scalar_products, engine=style.measured and ctx.has_copy_engine,
        longest=LONGEST if ctx.gpu else 0,
        sizes=None if ctx.gpu else ctx.sizes, most={d.name: d.max for d in ctx.task.dims},
    )  # fmt: skip
    deep = depth(graph) > _DEEP
    if deep:
        if style.fused:
            raise DesignError("The graph is too deep to be fused into one launch.", _APART)
        builder.store_in_order()
    shapes: dict[str, tuple[Extent, ...]] = {
        i.name: channels_at_end(i.shape) if i.last else i.shape for i in graph.inputs
    }
    used_names = Names({a.name for a in ctx.task.args} | set(ctx.sizes) | RESERVED)
    outputs = []
    names = [used_names.fresh("y" if len(graph.outputs) == 1 else f"y{i}") for i in range(len(graph.outputs))]
    # a value that nothing else reads is written directly as an output
    read_refs = [r for n in graph.nodes for r in n.refs()] + list(graph.outputs)
    loops = {n.name for n in graph.nodes if n.op == LOOP}
    for name, ref, spec in zip(names, graph.outputs, ctx.task.results, strict=True):
        if ref.name in fallback.calls | loops and read_refs.count(ref) == 1 and not spec.last:
            builder.named.setdefault(ref, name)
    for name, ref, spec in zip(names, graph.outputs, ctx.task.results, strict=True):
        shape, dtype = builder.shape(ref), builder.dtype(ref)
        if builder.named.get(ref) == name:
            builder.stored(ref)
            continue
        index = builder.axes_for(shape)
        value = builder.value(ref, index)
        if spec.last:
            index, shape = channels_at_end(index), (shape[0], *shape[2:], shape[1])
        outputs.append(Output(name, index, value, dtype, purpose=Purpose.RESULT))
        shapes[name] = shape
    outputs = written_in_place(builder, outputs)
    if style.fused:
        outputs = without_pages(outputs)
        outputs = attend(softmax_again(outputs) if ctx.gpu else outputs, ctx.gpu)
        if ctx.gpu and not ctx.scalar_products:
            outputs = chained(outputs)
        if not (attends(outputs) or chains(outputs)):
            raise DesignError("The graph has no attention to fuse into one launch.", _APART)
    units: list[list[list[Output]]] = [[]]
    for c in builder.cuts:
        output = Output(c.name, c.index, c.value, c.dtype or c.value.dtype, c.put, c.purpose)
        if c.joins:
            units[-2][-1].append(output)
            continue
        units[-1].append([output])
        if not c.serves:
            units.append([])
    units[-1].append(outputs)
    if ctx.gpu and deep:
        # no single-launch schedule is offered, so attention is fused here, or its scores go through memory. 12 blocks
        # of 12 heads as CUDA graphs took on an H200, fused and stored, 0.48 and 0.53 ms at a sequence of 128, 0.92 and
        # 1.09 at 512
        units = [[attend(group, True) for group in unit] for unit in units]
    if ctx.gpu and style.split:
        units = [
            [split_products(group, ctx.size, ctx.chip.cores, ctx.has_copy_engine) for group in unit] for unit in units
        ]
    shapes |= {c.name: c.shape for c in builder.cuts}
    shapes |= {name: call.shape for name, call in builder.calls.items()}
    return _Read(graph, builder, units, shapes)


def _walks_steps(ctx: Context, graph: Graph) -> bool:
    """Return whether the steps of recurrent layers run in our own launches. On a GPU this requires that programs share
    a step, which needs products of halves: otherwise a single core reads all weights, while cuDNN spreads a layer over
    the chip. A layer also runs in our own launches if library calls would leave no work of our own."""
    layers = [n for n in graph.nodes if n.aten in GATES]
    leaves_no_work = not Fallback(frozenset(n.name for n in layers)).leaves_work(graph)
    return bool(layers) and (not ctx.gpu or leaves_no_work or (_halves(ctx) and all(_shared(ctx, n) for n in layers)))


def _shared(ctx: Context, layer: Node) -> bool:
    """Return whether programs may share a step of the layer, and the chip runs them all at once."""
    shape = layer.shape
    if layer.aten not in BOUNDED or layer.dtype != WIDE or len(shape) != 3 or not isinstance(shape[2], int):
        return False
    return blocks_of_step(extents.value(shape[0 if layer.args[8] else 1], dict(ctx.sizes)), shape[2]) <= ctx.cores


def _called(fallback: Fallback, b: Builder, ref: Ref, tensor: str) -> LibraryCall:
    return aten_call(b, ref, tensor) if ref.name in fallback.calls else call_of(b, ref, tensor)


# -- expressions -> launches -------------------------------------------------------------------------------------------


def _planned_units(ctx: Context, read: _Read) -> Plan:
    layout = Layout({}, {})
    launches: list[Launch] = []
    for unit in read.units:
        outputs, unit_layout = collapse([o for group in unit for o in group], read.shapes)
        outputs, layout = join(outputs, unit_layout, layout)
        for group in unit:
            group_outputs, outputs = outputs[: len(group)], outputs[len(group) :]
            for part in (
                routed(group_outputs, layout, ctx.size) if ctx.gpu and not ctx.scalar_products else [group_outputs]
            ):
                planned, layout = _planned(ctx, part, layout)
                launches += planned
    return Plan(tuple(launches), layout)


def _planned(ctx: Context, outputs: list[Output], layout: Layout) -> tuple[list[Launch], Layout]:
    """Return launches; reductions with too few programs are first split into partial results."""
    if ctx.gpu:
        outputs = one_of_row(outputs, lambda axis: isinstance(axis.extent, int) and axis.extent > ctx.style.whole_row)
    trial = layout.copied()
    most = _MOST_SUMS if ctx.gpu else 0
    planner = Planner(outputs, trial, most)
    launches = planner.plan()
    if not ctx.style.split:
        return launches, trial
    kernel_splits = [(k, split(ctx, k)) for k in planner.kernels]
    flagged = {
        i: split_of
        for k, split_of in kernel_splits
        if split_of is not None
        for i, home in planner.home.items()
        if home is k
    }
    if not flagged:
        return launches, trial
    chunk_axes: dict[Axis, Axis] = {}
    chunks = {i: partial(_chunks, ctx, chunk_axes, split_of) for i, split_of in flagged.items()}
    trial = layout.copied()
    return Planner(split_reductions(outputs, chunks, moments=ctx.gpu), trial, most).plan(), trial


def _chunks(ctx: Context, known: dict[Axis, Axis], found: Split, red: Red | Attend) -> Axis:
    """Return the axis of the pieces of a reduction; all reductions of one axis share it."""
    first, parts = found
    if first not in known:
        single = isinstance(red, Red) and len(red.axes) == 1
        chunk = chunk_size(ctx, first, parts, single, isinstance(red, Red) and not runs_along(red))
        choices = (chunk, 2 * chunk, 4 * chunk) if isinstance(red, Red) else (chunk // 2, chunk, 2 * chunk)
        name = ctx.consts.add("CHUNK", chunk, choices)
        assert not isinstance(first.extent, Chunks)
        known[first] = Axis(Chunks(first.extent, name))
    return known[first]


# -- launches -> trees -------------------------------------------------------------------------------------------------


def _written(ctx: Context, read: _Read, plan: Plan) -> SketchFile:
    launches, layout = plan.launches, plan.layout
    names = titles(ctx.task.name, launches)
    tilings = [tiling(ctx, k) for k in launches]
    warps = [launch_warps(ctx, k, t) if ctx.gpu else 0 for k, t in zip(launches, tilings, strict=True)]
    # the file's options are those of the launch that declares warp roles or moves the most data, and of the first
    # product among such launches
    volumes = [ctx.volume(k.par | k.red) for k in launches]
    heaviest = sorted(range(len(launches)), key=lambda n: (not tilings[n].multiplying_groups, -volumes[n]))
    staged = [tilings[n].stages for n in heaviest if launches[n].streams]
    stages = next(iter(staged), 0)
    inputs = read.graph.inputs
    reads = [{layout.name(e.tensor) for e in k.loads} for k in launches]
    loaded = set[str]().union(*reads, *(call.reads for call in read.builder.calls.values()))
    first = warps[heaviest[0]] if launches else 0
    file = File(ctx.task, layout, ctx.consts, inputs, sizing(inputs, loaded), read.results, first, stages)
    parts = [sketch(file, *each) for each in zip(names, launches, tilings, warps, strict=True)]
    if read.builder.library or read.builder.calls:
        parts = with_calls(
            parts, names, reads, read.builder, ctx.task, ctx.gpu, partial(_steps, ctx, read, file, loaded)
        )
    return SketchFile(tuple(parts))


def _steps(
    ctx: Context, read: _Read, file: File, loaded: Set[str], k: Recurrence | Steps, name: str,
    roles: Mapping[str, str | None],
) -> Sketch:  # fmt: skip
    """Return the sketch of a loop, or of a recurrent layer's steps."""
    if isinstance(k, Steps):
        walk = walk_of(k, loaded | read.results)
        dtypes = {e.tensor: e.dtype for e in walk.loads} | {o.tensor: o.dtype for o in walk.outs}
        shapes = {tensor: (read.shapes | k.shapes)[tensor] for tensor in dtypes}
        layout = Layout(dict(shapes), dtypes)
        return sketch(replace(file, layout=layout), name, walk, walk_tiling(ctx, walk), 0)
    t = step_tiles(ctx, k)
    tile_sizes = {n: ctx.consts.values[n] for n in (t.rows, t.made, t.summed)}
    tunables = [f"{n} = {value} in {{{', '.join(map(str, choices))}}};" for n, (value, choices) in tile_sizes.items()]
    return steps_sketch(k, name, t, tunables, roles, ctx.task)


__all__ = ["Scheduled", "prepared", "scheduled", "styles"]
