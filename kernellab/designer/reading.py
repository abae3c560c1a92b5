"""Conversion of a graph to expressions: which values are stored, by which launches, and what each of them computes.

The builder (:mod:`kernellab.designer.frontend.build`) turns outputs and stored values into expressions over axes. These
are grouped: a group of outputs reads tensors that earlier groups store, and is later planned by itself; the groups of
one unit see their tensors in the same views.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from kernellab.capture import Graph, Node, Ref
from kernellab.capture.graph import LOOP, Extent
from kernellab.designer.emit.nodes import Names
from kernellab.designer.frontend.build import Builder, BuildOptions
from kernellab.designer.frontend.recurrent import BOUNDED, GATES, RECURRENT, layer_arguments
from kernellab.designer.frontend.scatter.writes import written_in_place
from kernellab.designer.frontend.table import HANDLERS
from kernellab.designer.graph.cuts import cut_nodes, depth
from kernellab.designer.graph.fallback import Fallback, aten_call
from kernellab.designer.graph.layers import at_once
from kernellab.designer.graph.library import LibraryCall, call_of, with_calls_as_inputs, with_library
from kernellab.designer.graph.stacks import stacks
from kernellab.designer.ir import extents
from kernellab.designer.ir.normal import Output, Purpose
from kernellab.designer.ir.scaling import WIDE
from kernellab.designer.passes.attention import attend, attends
from kernellab.designer.passes.chains import chained, chains, softmax_again
from kernellab.designer.passes.pages import without_pages
from kernellab.designer.passes.split.k import split_products
from kernellab.designer.tile.context import Context
from kernellab.designer.tile.recurrent import blocks_of_step
from kernellab.designer.tile.sorting import LONGEST
from kernellab.errors import DesignError
from kernellab.sketch.syntax.words import RESERVED
from kernellab.task.task import channels_at_end

#: if a chain has more operations than this, the graph is read from its inputs instead of recursively from its outputs
_DEEP = 100
#: number of (input channel, output channel) pairs up to which a GPU sums a convolution directly: tiles of tensor cores
#: hold at least 16 of each, most of them empty (1 to 6 channels, 5 x 5: 1.28 ms as products on an H100)
_DIRECT_PAIRS = 16
_OTHER_SCHEDULE = "Choose a schedule that is not called 'one launch'."

Group = list[Output]
Unit = list[Group]


@dataclass(frozen=True)
class Reading:
    """The values that a graph computes: units of groups of outputs, and the shapes of all tensors."""

    graph: Graph
    builder: Builder
    units: list[Unit]
    shapes: dict[str, tuple[Extent, ...]]

    @property
    def results(self) -> frozenset[str]:
        """The tensors that are outputs of the graph."""
        outputs = (o for unit in self.units for group in unit for o in group)
        library_results = frozenset(self.builder.named.values())
        return library_results | frozenset(o.tensor for o in outputs if o.purpose is Purpose.RESULT)


def read_graph(ctx: Context, graph: Graph, fallback: Fallback) -> Reading:
    """Return what ``graph`` computes in the context's style.

    Raises:
        DesignError: no rule designs a node, or the style does not suit the graph.
    """
    style = ctx.style
    library: frozenset[str] = frozenset()
    if style.library:
        graph, library = with_library(graph)
    library |= fallback.calls
    stored = fallback.stored if style.fused else cut_nodes(with_calls_as_inputs(graph, library)) | fallback.stored
    handlers = HANDLERS
    if _walks_steps(ctx, graph):
        handlers, graph = HANDLERS | RECURRENT, at_once(graph) if ctx.halves else graph
    call = partial(_called, fallback)
    placed = stacks(graph, stored)
    builder = Builder(graph, ctx.task.name, handlers, _options(ctx), stored, library, call, placed)
    is_deep = depth(graph) > _DEEP
    if is_deep:
        if style.fused:
            raise DesignError("The graph is too deep to be fused into one launch.", _OTHER_SCHEDULE)
        builder.store_in_order()
    shapes: dict[str, tuple[Extent, ...]] = {
        i.name: channels_at_end(i.shape) if i.last else i.shape for i in graph.inputs
    }
    outputs = _outputs(ctx, graph, builder, fallback, shapes)
    units = _units(builder, _fused(ctx, outputs) if style.fused else outputs)
    if ctx.gpu and is_deep:
        # no single-launch schedule is offered, so attention is fused here, or its scores go through memory. 12 blocks
        # of 12 heads as CUDA graphs took on an H200, fused and stored, 0.48 and 0.53 ms at a sequence of 128, 0.92 and
        # 1.09 at 512
        units = [[attend(group, True) for group in unit] for unit in units]
    if ctx.gpu and style.split:
        split = partial(split_products, size=ctx.size, cores=ctx.chip.cores, streams=ctx.has_copy_engine)
        units = [[split(group) for group in unit] for unit in units]
    shapes |= {c.name: c.shape for c in builder.cuts}
    shapes |= {name: call.shape for name, call in builder.calls.items()}
    return Reading(graph, builder, units, shapes)


def _options(ctx: Context) -> BuildOptions:
    return BuildOptions(
        algebra=ctx.style.algebra,
        repeated_writes=ctx.style.repeats,
        stores_factors=not ctx.style.fused,
        direct_pairs=_DIRECT_PAIRS if ctx.gpu else 0,
        halves=ctx.halves,
        narrow_products=ctx.gpu and not ctx.scalar_products,
        copy_engine=ctx.style.measured and ctx.has_copy_engine,
        longest_sort=LONGEST if ctx.gpu else 0,
        sizes=None if ctx.gpu else ctx.sizes,
        most={d.name: d.max for d in ctx.task.dims},
    )


def _outputs(
    ctx: Context, graph: Graph, builder: Builder, fallback: Fallback, shapes: dict[str, tuple[Extent, ...]]
) -> list[Output]:
    """Return the outputs of the graph that are expressions; their shapes are added to ``shapes``. A call or a loop
    whose value nothing else reads writes it directly as an output."""
    used_names = Names({a.name for a in ctx.task.args} | set(ctx.sizes) | RESERVED)
    names = [used_names.fresh("y" if len(graph.outputs) == 1 else f"y{i}") for i in range(len(graph.outputs))]
    read_refs = [r for n in graph.nodes for r in n.refs()] + list(graph.outputs)
    loops = {n.name for n in graph.nodes if n.op == LOOP}
    results = list(zip(names, graph.outputs, ctx.task.results, strict=True))
    for name, ref, spec in results:
        if ref.name in fallback.calls | loops and read_refs.count(ref) == 1 and not spec.last:
            builder.named.setdefault(ref, name)
    outputs = []
    for name, ref, spec in results:
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
    return written_in_place(builder, outputs)


def _fused(ctx: Context, outputs: list[Output]) -> list[Output]:
    """Return the outputs with attention, and chains of products, that one launch computes."""
    outputs = without_pages(outputs)
    outputs = attend(softmax_again(outputs) if ctx.gpu else outputs, ctx.gpu)
    if ctx.gpu and not ctx.scalar_products:
        outputs = chained(outputs)
    if not (attends(outputs) or chains(outputs)):
        raise DesignError("The graph has no attention to fuse into one launch.", _OTHER_SCHEDULE)
    return outputs


def _units(builder: Builder, outputs: list[Output]) -> list[Unit]:
    """Return the stored values and ``outputs`` in units. A value that serves a single launch is in the unit of that
    launch; one that joins another is in its group."""
    units: list[Unit] = [[]]
    for cut in builder.cuts:
        output = Output(cut.name, cut.index, cut.value, cut.dtype or cut.value.dtype, cut.put, cut.purpose)
        if cut.joins:
            units[-2][-1].append(output)
            continue
        units[-1].append([output])
        if not cut.serves:
            units.append([])
    units[-1].append(outputs)
    return units


def _walks_steps(ctx: Context, graph: Graph) -> bool:
    """Return whether the steps of recurrent layers run in our own launches. On a GPU this requires that programs share
    a step, which needs products of halves: otherwise a single core reads all weights, while cuDNN spreads a layer over
    the chip. A layer also runs in our own launches if library calls would leave no work of our own."""
    layers = [n for n in graph.nodes if n.aten in GATES]
    leaves_no_work = not Fallback(frozenset(n.name for n in layers)).leaves_work(graph)
    return bool(layers) and (
        not ctx.gpu or leaves_no_work or (ctx.halves and all(_shares_step(ctx, n) for n in layers))
    )


def _shares_step(ctx: Context, layer: Node) -> bool:
    """Return whether programs may share a step of the layer, and the chip runs them all at once."""
    shape = layer.shape
    if layer.aten not in BOUNDED or layer.dtype != WIDE or len(shape) != 3 or not isinstance(shape[2], int):
        return False
    rows = shape[0 if layer_arguments(layer).batch_first else 1]
    return blocks_of_step(extents.value(rows, dict(ctx.sizes)), shape[2]) <= ctx.cores


def _called(fallback: Fallback, b: Builder, ref: Ref, tensor: str) -> LibraryCall:
    return aten_call(b, ref, tensor) if ref.name in fallback.calls else call_of(b, ref, tensor)
