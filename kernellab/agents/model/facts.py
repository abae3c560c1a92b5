"""Facts for prompts, from the task, the chip and the record: sizes, bytes, bounds, and what was tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from kernellab.agents.briefs import Attempt
from kernellab.errors import KernellabError
from kernellab.records import Evidence, GateResult, Route, Verdict
from kernellab.target import Chip, Target
from kernellab.task import Extent, Task, extent

if TYPE_CHECKING:
    from kernellab.capture import Graph, Node

_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1, "ool": 1}
_MATRIX = ("mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "dot", "mv", "addmv")


def own_sizes(task: Task) -> dict[str, int]:
    """The Dims' sizes in the task's own inputs."""
    return dict(task.module().default_sizes())


def width(dtype: str) -> int:
    """Bytes of one element of a torch dtype's name (``float8_e4m3fn`` too)."""
    if dtype.startswith("float8"):
        return 1
    return next((size for ending, size in _BYTES.items() if dtype.endswith(ending)), 4)


def compulsory_bytes(task: Task) -> dict[str, int]:
    """Bytes of each tensor argument and each output at the task's own sizes: what cannot be left unmoved."""
    sizes = own_sizes(task)
    found = {a.name: width(a.dtype) * prod(a.extents(sizes)) for a in task.tensors}
    for number, output in enumerate(task.outputs):
        found["output" if len(task.outputs) == 1 else f"output {number}"] = width(output.dtype) * prod(
            output.extents(sizes)
        )
    return found


def matrix_flops(task: Task) -> float | None:
    """FLOPs of matrix products, convolutions and attention at the task's own sizes; None when it is not known."""
    from kernellab.capture import capture

    try:
        graph, sizes = capture(task), own_sizes(task)
        shapes = _shapes(graph)
        return sum(_node_flops(node, shapes, sizes) for node in graph.nodes)
    except (KernellabError, KeyError, ValueError, IndexError):
        return None


def _shapes(graph: Graph) -> dict[str, tuple[Extent, ...]]:
    return {i.name: i.shape for i in graph.inputs} | {n.name: n.shape for n in graph.nodes}


def _node_flops(node: Node, shapes: Mapping[str, tuple[Extent, ...]], sizes: Mapping[str, int]) -> float:
    word = node.op.split(".")[1] if "." in node.op else node.op
    operands = [[extent(e, sizes) for e in shapes[r.name]] for r in node.refs() if r.name in shapes]
    out = prod(extent(e, sizes) for e in node.shape)
    if word in _MATRIX and len(operands) >= 2:
        left = operands[1] if word in ("addmm", "baddbmm", "addmv") else operands[0]
        return 2.0 * out * left[-1]
    if "convolution" in word or word.startswith("conv"):
        return 2.0 * out * prod(operands[1][1:])
    if "attention" in word and len(operands) >= 3:
        query, key, value = operands[:3]
        return 2.0 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return 0.0


def bound_lines(task: Task, target: Target) -> list[str]:
    """The ideal traffic and arithmetic, the time that the chip needs for them, and which of the two decides."""
    by_tensor = compulsory_bytes(task)
    total = sum(by_tensor.values())
    sizes = ", ".join(f"{n}={s}" for n, s in own_sizes(task).items())
    lines = [f"At {sizes or 'the fixed sizes'}: {', '.join(f'{n} {megabytes(b)}' for n, b in by_tensor.items())}."]
    lines.append(f"Reading each input once and writing each output once moves {megabytes(total)}.")
    chip, flops = target.chip, matrix_flops(task)
    byte_ms = 1e3 * total / chip.bandwidth if chip.bandwidth else None
    flop_ms = _flop_ms(task, chip, flops)
    if flops:
        lines.append(f"Its products take {flops / 1e9:.3g} GFLOP.")
    if byte_ms is not None:
        lines.append(f"Those bytes take {byte_ms:.3g} ms at {chip.bandwidth / 1e9:.0f} GB/s.")
    if flop_ms:
        lines.append(f"Those products take {flop_ms:.3g} ms at the chip's peak for their precision.")
        if byte_ms is not None:
            decides = "arithmetic" if flop_ms > byte_ms else "memory traffic"
            lines.append(f"So {decides} decides the time.")
    elif byte_ms is not None and flops is not None:
        lines.append("There is no matrix product, so memory traffic decides the time.")
    return lines


def _flop_ms(task: Task, chip: Chip, flops: float | None) -> float | None:
    if not flops:
        return None
    wide = next((a.dtype for a in task.tensors if a.is_float), "float32")
    name = {"float64": "f64", "float16": "f16", "bfloat16": "bf16"}.get(wide, "f32")
    peak = chip.peak_flops.get(name) or chip.peak_flops.get("f32")
    return 1e3 * flops / peak if peak else None


def chip_lines(chip: Chip) -> list[str]:
    """The facts that a schedule is chosen by; unknown ones are left out."""
    word = "streaming multiprocessors" if chip.kind == "gpu" else "cores"
    lines = [f"- {chip.cores} {word}" + (f", vectors of {chip.simd_bits} bits" if chip.simd_bits else "")]
    if chip.isa:
        lines.append(f"- instruction sets: {' '.join(chip.isa)}")
    sizes = (
        ("L1 cache of a core", chip.l1_bytes),
        ("L2 cache of a core" if chip.kind == "cpu" else "L2 cache", chip.l2_bytes),
        ("L3 cache", chip.l3_bytes),
        ("shared memory of one block", chip.shared_bytes),
    )
    lines += [f"- {name}: {kilobytes(size)}" for name, size in sizes if size]
    if chip.registers_per_core:
        lines.append(f"- registers of one multiprocessor: {chip.registers_per_core} of 32 bits")
    if chip.on_chip_bytes:
        lines.append(f"- the tiles of one parallel iteration must fit into {kilobytes(chip.on_chip_bytes)}")
    if chip.bandwidth:
        lines.append(f"- memory bandwidth: {chip.bandwidth / 1e9:.0f} GB/s")
    if chip.peak_flops:
        peaks = ", ".join(f"{name} {rate / 1e12:.3g}" for name, rate in chip.peak_flops.items())
        lines.append(f"- peak arithmetic, dense, TFLOP/s: {peaks}")
    return lines


def cost_lines(sketch: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> list[str]:
    """Where a sketch's bytes and FLOPs go, by the cost model; empty when it cannot be costed."""
    from kernellab.agents.performance import cost_at

    try:
        found = cost_at(sketch, task, target, constexpr)
    except KernellabError:
        return []
    ideal = sum(compulsory_bytes(task).values())
    lines = [
        f"By the cost model it moves {megabytes(found.bytes_slow)} from memory ({found.bytes_slow / max(ideal, 1):.2f} "
        f"times the ideal {megabytes(ideal)}); the tiles of one iteration take {kilobytes(found.footprint)}; "
        f"{found.parallelism:.0f} iterations can run at once."
    ]
    if found.time_ms is not None:
        lines.append(f"Its roofline time is {found.time_ms:.3g} ms; {found.bound} bounds it.")
    for tensor in sorted(found.tensors, key=lambda t: -t.slow):
        again = (
            f", {tensor.slow / tensor.unique:.1f} times each"
            if tensor.unique and tensor.slow > 1.05 * tensor.unique
            else ""
        )
        lines.append(f"- {tensor.tensor}: {megabytes(tensor.slow)}{again} (line {tensor.line})")
    return lines


def verdict_figures(verdict: Verdict) -> list[str]:
    """A passed verdict's times, ratios and share of the bound, one a line."""
    lines = []
    if verdict.time is not None:
        t = verdict.time
        lines.append(f"time: {t.median_ms:.4g} ms (quartiles {t.q1_ms:.4g} ms to {t.q3_ms:.4g} ms)")
    for c in verdict.comparisons:
        told = "" if c.distinguishable else "; not distinguishable from 1"
        lines.append(f"speedup against {c.baseline}: {c.speedup:.3g}x (95 %: {c.low:.3g}x to {c.high:.3g}x{told})")
    if verdict.sol_ms is not None:
        lines.append(f"speed-of-light bound: {verdict.sol_ms:.4g} ms")
        if verdict.time is not None and verdict.time.median_ms:
            lines.append(f"share of the bound: {100 * verdict.sol_ms / verdict.time.median_ms:.3g} %")
    return lines


def history_text(history: Sequence[Attempt], last: int | None = None, told: Route | None = None) -> str:
    """The rounds, oldest first, each with its evidence in a few lines; ``last`` keeps the latest few only.

    ``told`` is a route that the prompt states elsewhere.
    """
    numbered = list(enumerate(history, start=1))
    if last is not None:
        numbered = numbered[-last:]
    return "\n".join(line for number, attempt in numbered for line in _attempt(number, attempt, told))


def _attempt(number: int, attempt: Attempt, told: Route | None) -> list[str]:
    lines = [f"Round {number}:"]
    if attempt.gate is not None:
        lines.append(f"- the sketch is {gate_words(attempt.gate)}")
    verdict = attempt.verdict
    if verdict is not None and verdict.passed:
        lines.append("- the kernel passed; " + "; ".join(verdict_figures(verdict)))
    elif verdict is not None:
        lines.append(f"- the kernel failed at {verdict.stage.value}: {verdict.reason}")
        evidence = verdict.evidence or Evidence()
        if evidence.signature:
            lines.append(f"- pattern of the error: {evidence.signature}")
    route = attempt.route
    if route is not None and route != told:
        lines.append(f"- sent to {route.to.value}" + (f": {route.suggestion}" if route.suggestion else ""))
    return lines


def gate_words(gate: GateResult) -> str:
    """The gate's answer in one sentence."""
    return f"{gate.state.value}: {gate.reason}"


def numbered(text: str) -> str:
    """``text`` with line numbers, so that a finding's line can be found."""
    lines = text.strip("\n").splitlines()
    return "\n".join(f"{n:>{len(str(len(lines)))}} | {line}" for n, line in enumerate(lines, start=1))


def megabytes(count: float) -> str:
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else kilobytes(count)


def kilobytes(count: float) -> str:
    if count >= 1 << 20:
        return f"{count / (1 << 20):.4g} MiB"
    return f"{count / 1024:.4g} KiB" if count >= 1024 else f"{count:.0f} bytes"
