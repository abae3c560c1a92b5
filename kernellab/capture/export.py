"""The part of capture that calls ``torch.export``: sample sizes, the export itself, conversion of errors to
sentences."""

from __future__ import annotations

import logging
import math
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.func import functional_call

from kernellab.capture.arithmetic import symbolic_sizes
from kernellab.capture.decompositions.in_export import WRITE_OF_A_PLACE, decompositions, pooling_decompositions
from kernellab.capture.decompositions.tables import EARLY
from kernellab.capture.graph import Graph
from kernellab.capture.loops.long import TooLong, shortest
from kernellab.capture.loops.roll import UnevenSteps, rolled
from kernellab.capture.loops.trace import Loops
from kernellab.capture.pairs import Pair, view_as_complex, view_as_real
from kernellab.capture.read import OneSize, ProgramReader
from kernellab.capture.trace_errors import explained
from kernellab.capture.trace_sizes import perturbed, sample_sizes, sizes_to_compare
from kernellab.capture.writes import joined
from kernellab.errors import CaptureError
from kernellab.task import ArgKind, Task, TaskForm
from kernellab.task.dtypes import parts
from kernellab.task.fakes import fake_arguments
from kernellab.task.faking import faking, tracing
from kernellab.task.recurrent import called
from kernellab.task.sample.sizes import runs_at
from kernellab.task.values import in_written_order

#: a task's own function that computes the same as its reference and can be traced where that cannot (a backward)
PLAIN = "plain"
#: number of elements of fixed-shape inputs above which no values are drawn
_LARGE = 1 << 22
#: largest number of writes into parts of tensors, each of which is a copy of the whole tensor, and a launch
_MOST_WRITES = 256


def export_graph(task: Task, symbolic_scalars: bool = True, loops: bool = True) -> Graph:
    """Return ``task``'s reference as a Graph; with ``symbolic_scalars``, float scalar arguments without a default stay
    symbolic; without ``loops``, a long range of a plain number is unrolled."""
    sizes = sample_sizes(task)
    try:
        return _exported(task, sizes, symbolic_scalars, loops)
    except OneSize:
        # torch fixes what is 1 in a trace, such as the number of windows of the shortest input
        longer = {d.name: sizes[d.name] + (d.min if 1 < d.min <= d.max - sizes[d.name] else 0) for d in task.dims}
        if longer == sizes or not runs_at(task, tuple(longer.items())):
            raise
        return _exported(task, longer, symbolic_scalars, loops)


def _exported(task: Task, sizes: dict[str, int], symbolic_scalars: bool, loops: bool) -> Graph:
    """Return the graph as traced at ``sizes``."""
    # another module than the task's: values that a reference caches during an export (in an lru_cache) have no data
    module = task.new_module()
    args = _fake_arguments(task) if _large(task) and not module.needs_values else list(module.sample(sizes))
    scalars: dict[str, float] = {}
    if symbolic_scalars:
        for i, spec in enumerate(task.args):
            if spec.kind is ArgKind.SCALAR and spec.dtype == "float64" and spec.default is None:
                scalars[spec.name] = args[i] = perturbed(float(args[i]), i)
    values = sizes_to_compare(task, args, sizes)

    def traced(most: int, least: int) -> Graph:
        try:
            return _graph(task, module, args, scalars, values, Loops(least, most))
        except UnevenSteps:
            return _graph(task, module, args, scalars, values, Loops(least, most, keeps_all=True))

    return shortest(traced, loops)


def _graph(
    task: Task, module: Any, args: Sequence[Any], scalars: Mapping[str, float], values: Any, loops: Loops
) -> Graph:
    """Return the graph of one trace. Raise UnevenSteps if the trace has dropped values that none of its few steps
    reads."""
    program, written = _export(task, module, args, loops)
    reader = ProgramReader(task, program, args, scalars)
    graph = joined(reader.graph())
    if loops.counts:
        graph = replace(graph, outputs=graph.outputs[: len(graph.outputs) - len(loops.kept())])
        counts = [reader.extent(count) for count in loops.counts]
        graph = rolled(graph, reader.steps, counts, values, task)
    _check_writes(task, graph, written)
    return graph


def _large(task: Task) -> bool:
    """Return whether drawing the inputs of a task of fixed shapes would take seconds."""
    elements = sum(math.prod(int(e) for e in a.shape) for a in task.tensors) if not task.dims else 0
    return elements > _LARGE


def _fake_arguments(task: Task) -> list[Any]:
    """Return arguments without memory: an export reads only shapes and dtypes."""
    with faking():
        return fake_arguments(task)


def _export(task: Task, module: Any, args: Sequence[Any], loops: Loops) -> tuple[Any, list[int]]:
    """Return the exported program, and the lines of the writes into parts of tensors in its trace."""
    strict = task.framework == "numpy"
    tensors = [i for i, spec in enumerate(task.args) if spec.is_tensor]

    class Reference(torch.nn.Module):
        """Accepts and returns tensors; scalars are Python numbers inside."""

        def forward(self, *traced: Any) -> Any:
            full = list(args)
            for i, tensor in zip(tensors, traced, strict=True):
                # a tensor that is written into becomes a value of the graph: its new contents are outputs after the
                # others
                full[i] = tensor.clone() if i in written else as_given(i, tensor)
            if strict:
                result = module.namespace["reference"](*(a.numpy() if i in tensors else a for i, a in enumerate(full)))
            else:
                with _LineMarks(task.name, module.filename, loops):
                    result = call(full)
            outputs = () if result is None else (_tensors(result),)
            return (*outputs, *(full[i] for i in written), *map(_tensors, loops.kept()))

    def as_given(position: int, tensor: Any) -> Any:
        """Rebuild a complex argument from its parts: as a Pair if the reference itself is called with it."""
        spec = task.args[position]
        if spec.held.dtype == spec.dtype:
            return tensor
        return torch.ops.aten.view_as_complex(tensor) if strict or spec.key else view_as_complex(tensor)

    call, written = _call(task, module), module.written
    for spec in (task.args[i] for i in written):
        if spec.held.dtype != spec.dtype:
            raise CaptureError(
                f"The reference of {task.name!r} writes into its complex argument {spec.name!r}.",
                "Return the new values, or write into torch.view_as_real of it as a separate argument.",
            )
    dynamic = tuple(
        {d: torch.export.Dim.AUTO for d, e in enumerate(task.args[i].shape) if isinstance(e, str)} for i in tensors
    )
    # an oversized sample (views of one storage) must not be mistaken for aliasing by the exporter
    sample = tuple(parts(args[i].detach()).clone() for i in tensors)
    try:
        with (
            tracing(), module.calling, _quiet(), torch.no_grad(), torch.fx.traceback.preserve_node_meta(),
            warnings.catch_warnings(), symbolic_sizes(module.namespace, module.text, loops.range, loops.plain_range),
            # a contraction order that depends on sizes would hold only at the traced ones
            in_written_order(), _distributions_unchecked(),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            program = torch.export.export(Reference(), sample, dynamic_shapes=(dynamic,), strict=strict)
            writes = [n for n in program.graph.nodes if n.target is torch.ops.aten.copy_.default]
            table = decompositions() | pooling_decompositions(program)
            if loops.counts:  # writes of each step, which are a result of all steps
                table.pop(WRITE_OF_A_PLACE)
            return program.run_decompositions(table), [_marked(n) for n in writes]
    except CaptureError:
        raise
    except Exception as error:
        raise explained(task, module, error) from error


class _Unchecked:
    """torch's default for the checks of distributions; False in the thread that traces."""

    def __init__(self, default: bool) -> None:
        self.default, self.thread = default, threading.get_ident()

    def __get__(self, distribution: object, kind: type | None = None) -> bool:
        return self.default and threading.get_ident() != self.thread


@contextmanager
def _distributions_unchecked() -> Iterator[None]:
    """Disable the range checks of torch's distributions in this thread while the context is active. Traces do not
    overlap (``tracing``): the last one to end restores the original value."""
    kind: Any = torch.distributions.Distribution
    original = vars(kind)["_validate_args"]
    kind._validate_args = _Unchecked(kind._validate_args)
    try:
        yield
    finally:
        kind._validate_args = original


def _marked(node: Any) -> int:
    return int((node.meta.get("custom") or {}).get("line", 0))


def _check_writes(task: Task, graph: Graph, written: Sequence[int]) -> None:
    """Raise CaptureError if a loop fills tensors in parts that cannot be joined, for so long that the design would take
    minutes."""
    lines = set(written)
    remaining = sum(node.aten in ("slice_scatter", "where") and node.line in lines for node in graph.nodes)
    if remaining > _MOST_WRITES:
        raise CaptureError(
            f"The reference of {task.name!r} writes {remaining} pieces of tensors one by one (at line {written[-1]}), "
            "and each would be a launch.",
            "Put them together with torch.stack, or write the loop over whole tensors: x[:, None] - x[None] for pairs "
            "of rows.",
        )


def _call(task: Task, module: Any) -> Callable[[list[Any]], Any]:
    """Return the reference on flattened arguments; a Model is built before tracing starts, so only its forward is
    traced."""
    if callable(plain := module.namespace.get(PLAIN)):
        return lambda args: plain(*module.bind(args)[0])
    if task.form is not TaskForm.KERNELBENCH:
        return module.call  # type: ignore[no-any-return]
    model = module.model()
    keys = list(model.state_dict())

    def forward(args: list[Any]) -> Any:
        split = len(args) - len(keys)
        positional, keywords = module.bind(args[:split])
        with _own_copies(model):
            return functional_call(model, dict(zip(keys, args[split:], strict=True)), tuple(positional), keywords)

    return forward


@contextmanager
def _own_copies(model: Any) -> Iterator[None]:
    """Replace tensors that modules hold as plain attributes by copies while ``forward`` is traced: it may write into
    them."""
    attribute_tensors = [
        (vars(m), k, v) for m in model.modules() for k, v in vars(m).items() if isinstance(v, torch.Tensor)
    ]
    for attributes, key, value in attribute_tensors:
        attributes[key] = value.clone()
    try:
        yield
    finally:
        for attributes, key, value in attribute_tensors:
            attributes[key] = value


class _LineMarks(torch.overrides.TorchFunctionMode):
    """While active, every node that is created has the task's current line, and a trace that grows long is stopped.
    Calls go to the loops that are traced, else to the functions of EARLY, else to torch."""

    def __init__(self, name: str, filename: str, loops: Loops) -> None:
        super().__init__()
        self._name, self._filename, self._loops = name, filename, loops
        self._calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        line = self._line(sys._getframe(1))
        self._calls += 1
        if self._calls > self._loops.most:
            raise TooLong(
                f"The reference of {self._name!r} makes more than {self._loops.most} calls of torch (at line {line}).",
                "Give the loop fewer steps, or write it with cumsum or another scan.",
            )
        rows = self._loops.rows(func, args, named)
        if rows is not None:
            return rows
        joined_list = self._loops.joined(func, args, named, line)
        if joined_list is not None:
            return joined_list
        with self._loops.marked(line):
            turned = self._loops.turned(func, args, named)
            return self._loops.keep(turned if turned is not None else called(func, EARLY, *args, **named))

    def _line(self, frame: Any) -> int:
        """Return the line of the task's file that a call comes from; 0 for none."""
        while frame is not None and frame.f_code.co_filename != self._filename:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else 0


def _tensors(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(_tensors(r) for r in result)
    if isinstance(result, dict):
        return tuple(_tensors(r) for r in result.values())
    if isinstance(result, Pair):
        return view_as_real(result)
    return parts(result if isinstance(result, torch.Tensor) else torch.as_tensor(result))


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress torch's log messages, which are replaced by a single sentence."""
    loggers = [logging.getLogger(name) for name in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo")]
    disabled_before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, disabled_before, strict=True):
            logger.disabled = was
