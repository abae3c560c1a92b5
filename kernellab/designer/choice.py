"""Which schedules a graph has, the cost model's favourite first."""

from __future__ import annotations

from dataclasses import replace

from kernellab.capture import Graph
from kernellab.designer.graph.cuts import PRODUCTS
from kernellab.designer.schedule import Scheduled, scheduled, sketch_text, styles
from kernellab.designer.tile.styles import Style
from kernellab.errors import DesignError, KernellabError
from kernellab.target import Target
from kernellab.task import Task


def schedules(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[Style]:
    """Every style for ``target``; where the graph has an attention, in one launch and with its scores stored.

    ``algebra``: sums of a product may be made of its factors' sums.
    """
    apart = [replace(style, algebra=algebra) for style in styles(target)]
    operations = [n.op.split(".")[1] for n in graph.nodes]
    if "scatter" in operations:
        first = apart[0]
        apart.insert(1, replace(first, repeats=True, title=f"{first.title}, repeated indices", why=_REPEATS))
    if "scaled_dot_product_attention" not in operations and sum(o in PRODUCTS for o in operations) < 2:
        return apart
    fused = [replace(s, fused=True, title=f"{s.title}, one launch", why=_WHY) for s in apart]
    times = [_time(task, graph, target, style) for style in (fused[0], apart[0])]
    if times[0] is None:
        return apart
    stored = times[1] is not None and _MARGIN * times[1] < times[0]
    return [*apart, *fused] if stored else [*fused, *apart]


def in_parts(target: Target, part: int, algebra: bool = True) -> Style:
    """The blocked schedule with tiles of 1/``part`` of their elements."""
    blocked = styles(target)[1]
    return replace(
        blocked, title=f"{blocked.title}, in {part} parts", why=_IN_PARTS, flat=blocked.flat // part,
        row_block=blocked.row_block // part, columns=max(blocked.columns // part, 1), algebra=algebra,
    )  # fmt: skip


def composed(task: Task, graph: Graph, target: Target, algebra: bool = True) -> list[tuple[Style, Scheduled]]:
    """The schedules in which the library makes the products, and their sketches: those that can be designed."""
    found = []
    for style in styles(target):
        style = replace(style, library=True, algebra=algebra, title="products by the library", why=_COMPOSED)
        try:
            found.append((style, scheduled(task, graph, target, style)))
        except DesignError:
            continue
    return found


_COMPOSED = "It composes with the framework's library, which makes each product; what is around them is our own."

#: how much faster stored scores must look: the model knows no wait between launches. At a width of 128 in f32 they look
#: 1.16 times as fast on an H200 and take 1.23 times as long; at 1024 they look 5.6 times as fast, and are 8 times
_MARGIN = 1.5
_IN_PARTS = "An iteration holds many values at once: smaller tiles leave room for them."
_REPEATS = "Each place looks for the last index that names it, which holds where an index comes twice."
_WHY = "The softmax runs online beside both products; the scores are never stored."


def _time(task: Task, graph: Graph, target: Target, style: Style) -> float | None:
    """The roofline time of one style in ms; None where it cannot be designed, inf where rates are unknown."""
    try:
        return model_time(task, sketch_text(task, graph, target, style), target)
    except KernellabError:
        return None


def model_time(task: Task, text: str, target: Target) -> float | None:
    """The roofline time of a sketch in ms; None where it cannot be costed, inf where rates are unknown."""
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost

    sizes = dict(task.module().default_sizes()) if task.dims else {}
    try:
        found = cost(load_program(text), sizes, chip=target.chip).time_ms
    except KernellabError:
        return None
    return float("inf") if found is None else found
