"""Conversion of a reference to a graph: the operations that a Task computes, over symbolic shapes.

:func:`capture` exports the reference (``torch.export``) and converts the result to plain data: a :class:`Graph` of
:class:`Node` whose shapes are expressions over the Task's Dims and whose scalar arguments stay symbolic. Softmax, the
normalisations, convolution and attention are not decomposed, so that families stay visible.

:func:`run_graph` executes a graph; in float64 mode every float dtype becomes float64, including those that the
reference sets explicitly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from kernellab.capture.graph import LOOP, Extent, Graph, Input, Node, Ref, Sym
from kernellab.errors import CaptureError
from kernellab.task import ArgKind, Task, load_task
from kernellab.task.dtypes import computable, parts


def capture(task: Task) -> Graph:
    """Return the graph of ``task``'s reference, checked against it at size 1, the smallest sizes and a prime.

    Arguments that the reference writes into are additional outputs after its own.

    Raises:
        CaptureError: data-dependent control flow, randomness, a call that cannot be traced, a Dim that the reference
            fixes; the message names the line of the task and the construct.
    """
    return _capture(task.name, task.text)


@lru_cache(maxsize=64)
def _capture(name: str, text: str) -> Graph:
    from kernellab.capture.export import export_graph

    task = load_task(text, name)
    graph = export_graph(task)
    problem = check_graph(task, graph)
    if problem and any(a.kind is ArgKind.SCALAR and a.dtype == "float64" and a.default is None for a in task.args):
        # a scalar argument reached the graph in an unrecognised form: fix it at its sample value
        graph = export_graph(task, symbolic_scalars=False)
        problem = check_graph(task, graph)
    if problem and any(node.op == LOOP for node in graph.nodes):
        # a few steps were traced, and another does something else by its number
        with suppress(CaptureError):
            unrolled = export_graph(task, loops=False)
            if not check_graph(task, unrolled):
                return unrolled
    if problem and graph.branches:
        line, condition = graph.branches[0]
        raise CaptureError(
            f"Line {line} of {task.name!r} takes different branches at different sizes (traced where {condition}), and "
            f"what was traced does not hold {problem}.",
            "Write both cases with torch.where or as arithmetic of the size, or make two tasks of it.",
        )
    if problem:
        raise CaptureError(
            f"The captured graph of {task.name!r} does not agree with its reference {problem}.",
            "Write the reference so that it does not depend on a size or value, or let a person or a model design it.",
        )
    return graph


def check_graph(task: Task, graph: Graph) -> str:
    """Return where ``graph`` and the reference disagree ("at N = 1"), or "" if they agree at all sizes tried."""
    import torch

    from kernellab.task.sample.sizes import runs_at

    module = task.module()
    for sizes in _check_sizes(task):
        if sizes and not runs_at(task, tuple(sizes.items())):
            continue
        at = f"at {', '.join(f'{k} = {v}' for k, v in sizes.items())}" if sizes else "on its own inputs"
        args = module.sample(sizes)
        try:
            want = tuple(map(parts, module.results(args)))
        except Exception:
            continue
        try:
            got = run_graph(graph, args)
        except (RuntimeError, IndexError, ValueError, ArithmeticError):  # numbers in it hold at the traced sizes alone
            return at
        if len(got) != len(want):
            return at
        for g, w in zip(got, want, strict=True):
            if g.shape != w.shape or g.dtype != w.dtype:
                return at
            narrow = w.dtype in (torch.float16, torch.bfloat16)
            g, w = computable(g), computable(w)
            tolerance = 1e-2 if narrow else 1e-4
            # sums in a narrow dtype were rounded at the magnitude of their terms; filled values are equal
            differing = w[g != w].abs().nan_to_num(posinf=0) if narrow else w.new_empty(0)
            largest = float(differing.max()) if differing.numel() else 1.0
            close = torch.allclose(g, w, rtol=tolerance, atol=tolerance * max(1.0, largest), equal_nan=True)
            if not close and not (w.is_floating_point() and _agree_in_double(task, graph, args)):
                return at
    return ""


def _agree_in_double(task: Task, graph: Graph, args: Sequence[Any]) -> bool:
    """Return whether graph and reference agree where neither rounds much. The reference may lose digits in its dtype
    (such as cdist by products, for equal rows)."""
    import torch

    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    try:
        want = tuple(map(parts, task.module().results(wide)))
    except Exception:
        return False
    if not all(w.dtype == torch.float64 for w in want if w.is_floating_point()):
        return False
    got = run_graph(graph, wide, f64=True)
    pairs = zip(got, want, strict=True)
    return all(torch.allclose(computable(g), computable(w), rtol=1e-6, atol=1e-6, equal_nan=True) for g, w in pairs)


def _check_sizes(task: Task) -> list[dict[str, int]]:
    if not task.dims:
        # a graph of fixed shapes cannot depend on a size: run it once if it is cheap
        shapes = [a.shape for a in task.tensors] + [o.shape for o in task.results]
        elements = sum(math.prod(int(e) for e in shape) for shape in shapes)
        return [{}] if elements <= 1 << 20 else []
    smallest = {d.name: max(1, d.min) for d in task.dims}
    prime = {d.name: min(max(p, d.min), d.max) for d, p in zip(task.dims, _primes(), strict=False)}
    return [smallest, prime]


def _primes() -> Iterator[int]:
    yield from (13, 29, 17, 11, 7, 19, 23, 31)
    while True:
        yield 37


def run_graph(graph: Graph, args: Sequence[Any], f64: bool = False) -> tuple[Any, ...]:
    """Return the graph's outputs for the kernel's flattened arguments; complex numbers are pairs, [..., 2].

    With ``f64`` every float tensor and every float dtype inside the graph becomes float64: the exact value that a
    kernel without rounding would return.
    """
    from kernellab.capture.run import execute

    return execute(graph, args, f64)


__all__ = ["Extent", "Graph", "Input", "Node", "Ref", "Sym", "capture", "check_graph", "run_graph"]
