"""The part of capture that calls ``torch.export``: sample sizes, the export itself, conversion of errors to
sentences."""

from __future__ import annotations

import logging
import math
import operator
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import torch
from torch.func import functional_call

from kernellab.capture.arithmetic import symbolic_sizes
from kernellab.capture.decompositions.tables import APART, EARLY, SIGNAL_WINDOWS, WITH_PLACES
from kernellab.capture.graph import Graph
from kernellab.capture.loops.long import TooLong, shortest
from kernellab.capture.loops.roll import UnevenSteps, rolled
from kernellab.capture.loops.trace import Loops
from kernellab.capture.pairs import Pair, view_as_complex, view_as_real
from kernellab.capture.read import OneSize, ProgramReader
from kernellab.capture.size_terms import REMEDY
from kernellab.capture.writes import joined, select_scatter
from kernellab.errors import CaptureError
from kernellab.operations.aten import ATEN, Capture
from kernellab.operations.sketch import OPS
from kernellab.task import ArgKind, Task, TaskForm
from kernellab.task.dtypes import parts
from kernellab.task.fakes import fake_arguments
from kernellab.task.faking import faking, tracing
from kernellab.task.recurrent import called
from kernellab.task.sample.sizes import runs_at
from kernellab.task.values import in_written_order

#: a task's own function that computes the same as its reference and can be traced where that cannot (a backward)
PLAIN = "plain"
#: distinct primes, so that no two Dims are confused; large enough that a quarter of one is not 1 either
_SAMPLES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)
#: factors applied to them if the reference does not run at these sizes
_STEPS = (2, 8, 32, 128)
#: number of elements of fixed-shape inputs above which no values are drawn
_LARGE = 1 << 22
#: largest number of writes into parts of tensors, each of which is a copy of the whole tensor, and a launch
_MOST_WRITES = 256
#: far from the sample value, so that a constant derived from it in an unknown way is found by the check
_PERTURB = 0.8137205519482161


def export_graph(task: Task, symbolic_scalars: bool = True, loops: bool = True) -> Graph:
    """Return ``task``'s reference as a Graph; with ``symbolic_scalars``, float scalar arguments without a default stay
    symbolic; without ``loops``, a long range of a plain number is unrolled."""
    sizes = _sample_sizes(task)
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
    module = (
        task.new_module()
    )  # values that the reference caches during an export (a table in an lru_cache) have no data
    args = _fake_arguments(task) if _large(task) and not module.needs_values else list(module.sample(sizes))
    scalars: dict[str, float] = {}
    if symbolic_scalars:
        for i, spec in enumerate(task.args):
            if spec.kind is ArgKind.SCALAR and spec.dtype == "float64" and spec.default is None:
                scalars[spec.name] = args[i] = _perturb(float(args[i]), i)
    values = _some_sizes(task, args, sizes)

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


def _sample_sizes(task: Task) -> dict[str, int]:
    """Return sizes at which the reference runs: some references require multiples, most often along one Dim."""
    all_dims = frozenset(d.name for d in task.dims)
    single_dims = [frozenset([name]) for name in sorted(all_dims)] if len(all_dims) > 1 else []
    plain = _multiples(task, 1, all_dims)
    candidates = (_multiples(task, step, along) for step in _STEPS for along in (*single_dims, all_dims))
    return next((s for s in chain((plain,), candidates) if not s or runs_at(task, tuple(s.items()))), plain)


def _multiples(task: Task, step: int, along: frozenset[str]) -> dict[str, int]:
    """Return distinct sizes; those of the Dims ``along`` are multiples of ``step`` if their ranges allow it."""
    sizes: dict[str, int] = {}
    for dim, prime in zip(task.dims, _SAMPLES, strict=False):
        by = step if dim.name in along else 1
        size = min(max(prime * by, dim.min), dim.max)
        while size in sizes.values() and size + by <= dim.max:
            size += by
        sizes[dim.name] = size
    return sizes


def _perturb(value: float, position: int) -> float:
    if not math.isfinite(value):
        return value
    return (value if value else 0.37) * (_PERTURB + position * 1.0123e-3)


def _some_sizes(task: Task, args: Sequence[Any], sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the sizes of a trace, and others, with the scalar arguments."""
    scalars = {spec.name: args[i] for i, spec in enumerate(task.args) if spec.kind is ArgKind.SCALAR}
    return [{**scalars, **{name: size + by for name, size in sizes.items()}} for by in (0, 1, 2)]


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
                with _line_marks(task.name, module.filename, loops):
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
            decompositions = _decompositions() | _wanted(program)
            if loops.counts:  # writes of each step, which are a result of all steps
                decompositions.pop(torch.ops.aten.select_scatter.default)
            return program.run_decompositions(decompositions), [_marked(n) for n in writes]
    except CaptureError:
        raise
    except Exception as error:
        raise _explain(task, module, error) from error


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


def _line_marks(name: str, filename: str, loops: Loops) -> Any:
    """Return a mode that writes the task's current line into every node created under it, and stops a trace that grows
    long."""
    import sys

    class Marks(torch.overrides.TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            frame = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != filename:
                frame = frame.f_back  # type: ignore[assignment]
            line = frame.f_lineno if frame is not None else 0
            self.calls += 1
            if self.calls > loops.most:
                raise TooLong(
                    f"The reference of {name!r} makes more than {loops.most} calls of torch (at line {line}).",
                    "Give the loop fewer steps, or write it with cumsum or another scan.",
                )
            rows = loops.rows(func, args, kwargs or {})
            joined = rows if rows is not None else loops.joined(func, args, kwargs or {}, line)
            if joined is not None:
                return joined
            with loops.marked(line):
                turned = loops.turned(func, args, kwargs or {})
                if turned is not None:
                    return loops.keep(turned)
                return loops.keep(called(func, EARLY, *args, **(kwargs or {})))

    return Marks()


def _tensors(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return tuple(_tensors(r) for r in result)
    if isinstance(result, dict):
        return tuple(_tensors(r) for r in result.values())
    if isinstance(result, Pair):
        return view_as_real(result)
    return parts(result if isinstance(result, torch.Tensor) else torch.as_tensor(result))


@lru_cache(maxsize=1)
def _decompositions() -> dict[Any, Any]:
    """Return the decompositions as a plain dict: torch's own table queries the dispatcher for every operator at each
    use."""
    table: dict[Any, Any] = {
        op: apart
        for op, apart in torch.export.default_decompositions().decomp_table.items()
        if not _is(op, Capture.WHOLE)
    }
    all_decompositions = torch._decomp.decomposition_table
    table |= {op: apart for op, apart in all_decompositions.items() if _is(op, Capture.APART)}
    pooling = torch.ops.aten._adaptive_avg_pool2d.default
    table[pooling] = partial(_unless_even, all_decompositions[pooling])
    table |= {op: APART[name] for name, op in _operators(APART).items()}
    place = torch.ops.aten.select_scatter.default
    table[place] = select_scatter(all_decompositions[place])
    return {**{op: SIGNAL_WINDOWS[name] for name, op in _operators(SIGNAL_WINDOWS).items()}, **table}


def _is(op: Any, capture: Capture) -> bool:
    """Return whether the table of operations has ``capture`` for this overload. For an operation of a sketch, the
    overload must have that operation's operands, all tensors: numbers have a dtype that torch's decomposition
    settles."""
    schema: Any = getattr(op, "_schema", None)
    space, _, name = schema.name.partition("::") if schema else ("", "", "")
    row = ATEN.get(name) if space == "aten" else None
    if row is None or row.capture is not capture:
        return False
    operands = [str(a.type) for a in schema.arguments if not a.kwarg_only]
    if row.direct and operands != ["Tensor"] * OPS[row.sketch[0]].arity:
        return False
    return not row.overloads or (op._overloadname or "default") in row.overloads


def _wanted(program: Any) -> dict[Any, Any]:
    """Return decompositions of the poolings whose positions are used; a pooling without positions stays whole."""
    pooling_names = {str(n.args[0].target).removeprefix("aten.") for n in program.graph.nodes if _is_second(n)}
    if "max_pool1d_with_indices.default" in pooling_names:
        pooling_names.add("max_pool2d_with_indices.default")
    return {op: WITH_PLACES[name] for name, op in _operators(WITH_PLACES).items() if name in pooling_names}


def _is_second(node: Any) -> bool:
    """Return whether the node selects an operation's second result, and is used."""
    return node.target is operator.getitem and node.args[1] == 1 and bool(node.users)


def _operators(names: Iterable[str]) -> dict[str, Any]:
    """Return the operators of these names that this version of torch has."""
    operators = {}
    for name in names:
        base, overload = name.split(".")
        operator = getattr(getattr(torch.ops.aten, base, None), overload, None)
        if operator is not None:
            operators[name] = operator
    return operators


def _unless_even(apart: Callable[..., Any], x: Any, size: Sequence[int]) -> Any:
    """Apply ``apart`` to a pooling whose windows differ in size; others stay whole, since they are plain windows."""
    even = all(isinstance(n, int) and n % length == 0 for n, length in zip(x.shape[-2:], size, strict=True))
    return NotImplemented if even else apart(x, size)


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


def _explain(task: Task, module: Any, error: BaseException) -> CaptureError:
    line = _line_of_error(task, module, error)
    at = f"line {line} of {task.name!r}" if line else f"the reference of {task.name!r}"
    text = str(error)
    if "DataDependent" in type(error).__name__ or "data-dependent" in text or "item()" in text:
        return CaptureError(
            f"{at.capitalize()} decides by a tensor's values (data-dependent control flow or a read of a value).",
            "Use torch.where instead of if, and keep values in tensors.",
        )
    if ".numpy()" in text or "numpy" in type(error).__module__:
        return CaptureError(
            f"{at.capitalize()} leaves PyTorch for NumPy, so that it cannot be traced.",
            "Write the reference in PyTorch alone or in NumPy alone.",
        )
    if _causes(error) & {"PendingUnbackedSymbolNotFound", "DynamicOutputShapeException"}:
        return CaptureError(
            f"{at.capitalize()} makes a tensor whose size PyTorch knows by its values only.",
            "State that size: fix the Dim that it comes from, or compute the places by arange and comparisons.",
        )
    if "specialized" in text or "Constraints violated" in text:
        return CaptureError(f"{at.capitalize()} works for one size of a Dim only.", "Declare that extent as fixed.")
    first = next((s for s in text.strip().splitlines() if s.strip()), type(error).__name__)
    return CaptureError(f"{at.capitalize()} cannot be traced: {first.strip()[:200]}", REMEDY)


def _causes(error: BaseException | None) -> set[str]:
    """Return the types' names of an exception and of those that it came from."""
    names = set()
    while error is not None:
        names.add(type(error).__name__)
        error = error.__cause__ or error.__context__
    return names


def _line_of_error(task: Task, module: Any, error: BaseException | None) -> int:
    line = 0
    while error is not None:
        trace = error.__traceback__
        while trace:
            if trace.tb_frame.f_code.co_filename == module.filename:
                line = trace.tb_lineno
            trace = trace.tb_next
        match = re.search(re.escape(module.filename) + r'",? line (\d+)', str(error))
        if match:
            line = int(match.group(1))
        error = error.__cause__ or error.__context__
    return line
