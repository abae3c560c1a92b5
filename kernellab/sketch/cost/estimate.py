"""The cost of a sketch: FLOPs, bytes from the slowest level, footprint, and a roofline time, each by loop.

A model of the text alone, which runs nothing and does not need torch. Loops with many iterations are sampled.
``bytes_slow`` assumes that what fits in the chip's last cache is fetched once, and anything larger each time it is
read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from kernellab.sketch.cost.model import Model, Node, build
from kernellab.sketch.program.library import is_library
from kernellab.sketch.program.program import Program
from kernellab.sketch.run import constexpr_values
from kernellab.target import Chip


@dataclass(frozen=True)
class LoopCost:
    """The totals of one loop over the whole run, inner loops included; the first row of each kernel is the kernel
    itself."""

    kernel: str
    line: int
    label: str
    parallel: bool
    iterations: float
    flops: float
    bytes_total: float
    #: bytes of the tiles of one iteration
    footprint: int


@dataclass(frozen=True)
class TensorCost:
    """One tensor's traffic: distinct bytes, bytes of all loads and stores, bytes from the slowest level."""

    tensor: str
    unique: float
    total: float
    slow: float
    #: line of the load or store with most bytes
    line: int


@dataclass(frozen=True)
class OperationCost:
    """One operation of one line: its weighted FLOPs over the whole run, and its share of all FLOPs (0 to 1)."""

    operation: str
    line: int
    flops: float
    share: float


@dataclass(frozen=True)
class Cost:
    """Totals over all kernels. ``flops`` by precision class (f32, tf32, bf16, i8 ...); bytes from global memory."""

    flops: Mapping[str, float]
    bytes_unique: float
    bytes_total: float
    bytes_slow: float
    #: largest bytes of tiles that are live at one time in one parallel iteration, over all kernels
    footprint: int
    #: FLOPs for each byte of ``bytes_slow``
    intensity: float
    #: None without a chip of known rates
    time_ms: float | None
    #: the bound of ``time_ms``: "memory" or "compute"
    bound: str
    #: iterations that can run at once
    parallelism: float
    loops: tuple[LoopCost, ...]
    tensors: tuple[TensorCost, ...]
    #: operations with arithmetic, the most costly first
    operations: tuple[OperationCost, ...] = ()
    #: the cost of each launch, in order of the calls; empty in a launch's cost
    launches: tuple[LaunchCost, ...] = ()


@dataclass(frozen=True)
class LaunchCost:
    """One kernel of a sketch, or one call of the framework's library (``library``), and its own cost."""

    kernel: str
    line: int
    library: bool
    cost: Cost


def cost(
    program: Program,
    symbols: Mapping[str, int],
    constexpr: Mapping[str, int | float] | None = None,
    chip: Chip | None = None,
) -> Cost:
    """Return the cost of ``program`` at ``symbols``; the time in ms is the sum of the kernels' roofline times.

    Raises:
        NotRunnable: a constexpr without a value.
        KeyError: a symbol that ``symbols`` does not have and that has no value in the sketch.
    """
    numbers = constexpr_values(program, constexpr or {}, 128 if chip is not None and chip.kind == "gpu" else None)
    names = {**{k: int(v) for k, v in numbers.items() if float(v).is_integer()}, **dict(program.sizes), **symbols}
    cache = (chip.l3_bytes or chip.l2_bytes) if chip is not None else 0
    models = [build(kernel, names, cache) for kernel in program.kernels]
    calls = {kernel.name for kernel in program.kernels if is_library(kernel)}
    launches = [LaunchCost(m.kernel, m.root.line, m.kernel in calls, _total([m], calls, chip)) for m in models]
    return replace(_total(models, calls, chip), launches=tuple(launches))


def _total(models: Sequence[Model], calls: Collection[str], chip: Chip | None) -> Cost:
    """Return the cost of ``models`` in sequence; ``calls`` has the names of library calls."""
    flops: dict[str, float] = {}
    for model in models:
        for name, count in model.root.flops.items():
            flops[name] = flops.get(name, 0.0) + count
    tensors = _tensors(models)
    slow = sum(t.slow for t in tensors)
    known_times = [t for model in models if (t := _roofline(model, chip, model.kernel in calls)) is not None]
    memory_time = sum(t.memory for t in known_times)
    compute_time = sum(t.arithmetic for t in known_times)
    return Cost(
        flops=flops,
        bytes_unique=sum(t.unique for t in tensors),
        bytes_total=sum(t.total for t in tensors),
        bytes_slow=slow,
        footprint=max((m.root.footprint for m in models), default=0),
        intensity=sum(flops.values()) / slow if slow else float("inf"),
        time_ms=1e3 * sum(map(max, known_times)) if models and len(known_times) == len(models) else None,
        bound="compute" if compute_time > memory_time else "memory",
        parallelism=min((m.parallelism for m in models if m.kernel not in calls), default=1.0),
        loops=tuple(row for model in models for row in _rows(model, model.root)),
        tensors=tensors,
        operations=_operations(models),
    )


def _operations(models: Sequence[Model]) -> tuple[OperationCost, ...]:
    counted = [(name, line, flops) for model in models for (name, line), flops in model.operations.items() if flops]
    total = sum(flops for *_, flops in counted)
    costs = [OperationCost(name, line, flops, flops / total) for name, line, flops in counted]
    return tuple(sorted(costs, key=lambda o: -o.flops))


class _Seconds(NamedTuple):
    """The two sides of a roofline; the larger one is the time."""

    arithmetic: float
    memory: float


def _roofline(model: Model, chip: Chip | None, library: bool) -> _Seconds | None:
    """Return the seconds of one kernel or library call; None if the chip's rates are unknown."""
    if chip is None or not chip.bandwidth:
        return None
    compute = 0.0
    for name, count in model.root.flops.items():
        peak = _peak(chip, name)
        if not peak:
            return None
        compute += count / peak
    if library:
        # it uses the whole chip, and reads its operands once
        return _Seconds(compute / LIBRARY_RATE, sum(model.unique.values()) / chip.bandwidth)
    # fewer iterations than cores leave cores idle
    used = min(1.0, model.parallelism / chip.cores) if chip.cores else 1.0
    if chip.kind == "cpu":
        compute += model.atomics * ATOMIC_S / max(chip.cores, 1)
    return _Seconds(compute / used, sum(model.slow.values()) / chip.bandwidth)


#: share of a chip's peak in its library's products. Measured on an H200: cuBLAS 51.3 of 67 TFLOP/s in f32
#: and 701 of 989 in bf16, cuDNN 357 of 494 in TF32
LIBRARY_RATE = 0.75

#: least seconds of an atomic add on a CPU core: a locked exchange without contention.
#: 4.5 ns were measured on an EPYC with AVX-512 at positions within its L2 cache
ATOMIC_S = 3e-9

#: precision class -> the classes whose rate is taken where the chip states none
_INSTEAD = {"tf32": ("f32",), "bf16": ("f16", "f32"), "f16": ("bf16", "f32"), "f8": ("f16", "f32"), "i8": ("f32",)}


def _peak(chip: Chip, name: str) -> float:
    """Return the FLOP/s of a precision class, or of the nearest class in the chip's facts."""
    if name == "f64" and "f64" not in chip.peak_flops:
        return chip.peak_flops.get("f32", 0.0) / 2
    options = (name, *_INSTEAD.get(name, ("f32",)))
    return next((chip.peak_flops[o] for o in options if chip.peak_flops.get(o)), 0.0)


def _rows(model: Model, node: Node) -> list[LoopCost]:
    row = LoopCost(
        kernel=model.kernel,
        line=node.line,
        label=node.label,
        parallel=node.parallel,
        iterations=node.iterations,
        flops=sum(node.flops.values()),
        bytes_total=node.bytes_total,
        footprint=node.footprint,
    )
    return [row, *(r for child in node.children.values() for r in _rows(model, child))]


def _tensors(models: Sequence[Model]) -> tuple[TensorCost, ...]:
    costs: dict[str, TensorCost] = {}
    for model in models:
        for name in model.slow:
            accesses = [a for a in model.accesses if a.tensor == name]
            if not accesses:
                continue
            most = max(accesses, key=lambda a: a.bytes)
            total = sum(a.bytes for a in accesses)
            before = costs.get(name, TensorCost(name, 0.0, 0.0, 0.0, most.line))
            costs[name] = TensorCost(
                name,
                before.unique + model.unique[name],
                before.total + total,
                before.slow + min(model.slow[name], total),
                before.line,
            )
    return tuple(costs.values())
