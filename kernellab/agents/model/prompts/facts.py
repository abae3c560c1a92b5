"""Facts for prompts, from the task, the chip and the record: sizes, bytes, bounds, limits, and a kernel's figures.

What a sketch costs is :mod:`kernellab.agents.model.prompts.cost`.
"""

from __future__ import annotations

from math import prod

from kernellab.agents.briefs import NOTHING, Attempt, Brief, CodeBrief, DesignBrief, RouteBrief, best_of
from kernellab.agents.rules.sampled import other_load, time_goes
from kernellab.agents.rules.sketch_cost import work_of
from kernellab.agents.rules.suggestions import CALL_MS
from kernellab.conditions import flags, labels
from kernellab.errors import duration, kilobytes
from kernellab.lowering.embedded_sketch import same_code
from kernellab.operations.sketch import OPS
from kernellab.records import Verdict
from kernellab.target import Chip
from kernellab.task import Task
from kernellab.verifier.audit.bound import Rates, Roofline, roofline
from kernellab.verifier.cases import device
from kernellab.verifier.cases.device import runs_tf32
from kernellab.verifier.compare.records import Limits

#: What determines a time, by the cost model's term.
DECIDES = {"compute": "arithmetic", "memory": "memory traffic"}
#: Ending of a dtype's name -> bytes per element.
_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1, "bool": 1}


def own_sizes(task: Task) -> dict[str, int]:
    """The sizes of the Dims in the task's own inputs."""
    return dict(task.module().default_sizes())


def width(dtype: str) -> int:
    """Bytes per element of a torch dtype's name (including ``float8_e4m3fn``)."""
    if dtype.startswith("float8"):
        return 1
    return next((size for ending, size in _BYTES.items() if dtype.endswith(ending)), 4)


def compulsory_bytes(task: Task) -> dict[str, int]:
    """Bytes of each tensor argument and output at the task's own sizes: the minimum traffic."""
    sizes = own_sizes(task)
    bytes_by_name = {a.name: width(a.dtype) * prod(a.extents(sizes)) for a in task.tensors}
    for number, output in enumerate(task.outputs):
        name = "output" if len(task.outputs) == 1 else f"output {number}"
        bytes_by_name[name] = width(output.dtype) * prod(output.extents(sizes))
    return bytes_by_name


def roofline_of(task: Task, chip: Chip) -> Roofline | None:
    """The task's bound on a chip, from the facts of the chip; None if its rates are unknown."""
    dtype = next((a.dtype for a in task.tensors if a.is_float), "float32")
    name = {"float64": "f64", "float16": "f16", "bfloat16": "bf16"}.get(dtype, "f32")
    plain_rate = chip.peak_flops.get("f32", 0.0)
    product_rate = chip.peak_flops.get(name) or plain_rate
    if not (chip.bandwidth and product_rate and plain_rate):
        return None
    return roofline(work_of(task), Rates(chip.bandwidth, product_rate, plain_rate, shared=chip.kind == "cpu"))


def bound_lines(brief: Brief) -> list[str]:
    """The sizes, the ideal traffic and arithmetic, and the resulting bound."""
    task, chip = brief.task, brief.target.chip
    by_tensor = compulsory_bytes(task)
    sizes = ", ".join(f"{n}={s}" for n, s in own_sizes(task).items())
    total = sum(by_tensor.values())
    lines = [
        f"At {sizes or 'the fixed sizes'}: {', '.join(f'{n} {megabytes(b)}' for n, b in by_tensor.items())}.",
        _work_line(task, total),
    ]
    limit = roofline_of(task, chip)
    bound = brief.bound_ms or (limit.ms if limit else None)
    if bound is None:
        return lines
    is_compute = limit is not None and limit.flops_ms > limit.bytes_ms
    decides = f"; {DECIDES['compute' if is_compute else 'memory']} decides it" if limit else ""
    call = f"; any call takes longer than {duration(CALL_MS)}, which it does not count" if bound < CALL_MS else ""
    lines.append(f"The bound is {rough(brief)}{duration(bound)}{decides}{call}.")
    if limit is not None and is_compute:
        lines.append(
            "It counts the reference's operations, integer ones too; fewer may pass it "
            f"(memory alone: {rough(brief)}{duration(limit.bytes_ms)})."
        )
    elif limit is not None and total <= cache_bytes(chip):
        cache = kilobytes(cache_bytes(chip))
        lines.append(f"It is by the memory's rate; what a call finds in the cache of {cache} comes faster.")
    if rough(brief):
        lines.append("It is rough: it rests on the rates above, which are not the judge's own yet.")
    return lines


def _work_line(task: Task, total_bytes: int) -> str:
    """The minimum traffic and the reference's arithmetic."""
    work = work_of(task)
    flops = work.total_flops + work.other_flops
    sentence = f"Each input read once and each output written once: {megabytes(total_bytes)}"
    sentence += f"; all arithmetic: {operations(flops)}" if flops else ""
    if work.other_flops:
        sentence += f", a division counted as {OPS['div'].flops:.0f} and an exp as {OPS['exp'].flops:.0f}"
    products = f" ({operations(work.total_flops)} of it in products)" if work.total_flops else ""
    return f"{sentence}{products}."


def cache_bytes(chip: Chip) -> int:
    """Bytes of a CPU's last cache, which keeps the previous call's data; 0 on a GPU, where it is cleared."""
    return (chip.l3_bytes or chip.l2_bytes or 0) if chip.kind == "cpu" else 0


def rough(brief: Brief) -> str:
    """The prefix of a time that is based on rates which no judge has measured on this machine."""
    return "" if brief.target.chip.judged or brief.bound_ms is not None else "roughly "


def limit_lines(brief: Brief) -> list[str]:
    """The allowed error, the precision, and whether the library may be called."""
    task = brief.task
    dtypes = dict.fromkeys(output.dtype for output in task.outputs)
    float_dtypes = [dtype for dtype in dtypes if dtype.startswith(("float", "bfloat", "complex"))]
    exact_dtypes = [dtype for dtype in dtypes if dtype not in float_dtypes]
    with device.on("cuda" if brief.target.chip.kind == "gpu" else "cpu"):
        tf32 = runs_tf32(task)
    rules = [f"{dtype} by {_tolerance_text(Limits.of(dtype, dict(task.tolerance), tf32))}" for dtype in float_dtypes]
    rules += [f"{' and '.join(exact_dtypes)} must be equal to the reference's"] if exact_dtypes else []
    against = " from float64 (more where eager is far)" if float_dtypes else ""
    lines = [f"Tolerance{against}: {'; '.join(rules)}."] if rules else []
    if exact_dtypes and any(arg.is_float for arg in task.args):
        lines.append(
            "Where integers or bools are made of floats, those that a rounding of the floats puts on the other side of "
            "a limit are no fault."
        )
    lines += [f"Precision of {name}: {value}." for name, value in sorted(task.precision.items())]
    if task.strict:
        lines.append(
            "float32 must be right to 1e-4 (rtol and atol) compared with float32 eager: products in TF32 are not."
        )
    if brief.allow_library:
        lines.append("A kernel may also compose with the framework's library here; it is labelled so.")
    return lines


def _tolerance_text(limits: Limits) -> str:
    """The allowed distance of an output from float64's result, on the task's own inputs."""
    return (
        f"{limits.floor:g} of its norm, {limits.element():g} of an element plus the rms, and "
        f"{100 * (1 - limits.tau):g} % of elements by {limits.tau:g} of themselves"
    )


def shown_kernel(brief: Brief) -> Attempt | None:
    """The attempt whose code or sketch a prompt shows: an earlier one if later ones were not better."""
    if isinstance(brief, RouteBrief):
        return Attempt(brief.candidate, brief.sketch, brief.gate, brief.verdict)
    candidates = [a for a in reversed(brief.history) if a.candidate is not None]
    if isinstance(brief, CodeBrief) and brief.redesigned:
        return None  # it begins with the lowering of the new sketch
    if isinstance(brief, CodeBrief) and brief.previous is not None:
        candidates = [a for a in candidates if a.candidate and same_code(a.candidate.source, brief.previous)]
    elif isinstance(brief, DesignBrief) and brief.previous is not None:
        candidates = [a for a in candidates if a.sketch == brief.previous]
        best = best_of(candidates)
        return best or next(iter(candidates), None)
    return next(iter(candidates), None)


def time_lines(brief: Brief) -> list[str]:
    """The time and speedup of the kernel that is shown, or of the last one that was timed."""
    shown_attempt = shown_kernel(brief)
    verdict = shown_attempt.verdict if shown_attempt is not None else None
    title = "The kernel that is shown takes"
    if verdict is None or verdict.time is None:
        verdict = next((a.verdict for a in reversed(brief.history) if a.verdict and a.verdict.time), None)
        title = "The last kernel that was timed, which is not shown, took"
    if verdict is None or verdict.time is None:
        return []
    eager = verdict.against("eager")
    return [f"{title} {duration(verdict.time.median_ms)}{f', {eager.text}' if eager else ''}."]


def hot_text(brief: Brief, without: frozenset[str] = NOTHING) -> list[str]:
    """Where the time of the shown kernel goes, in at most four lines; empty if unknown. Lines of another kernel do not
    describe the shown code."""
    return [] if "profile" in without | brief.ablation else hot_of_kernel(shown_kernel(brief))


def hot_of_kernel(shown: Attempt | None) -> list[str]:
    """Where the time of an attempt's kernel goes, in at most four lines; empty if unknown."""
    if shown is None or shown.candidate is None or shown.verdict is None:
        return []
    if not shown.verdict.passed or shown.verdict.time is None:
        return []
    return time_goes(shown.candidate.source, shown.verdict)


def chip_lines(chip: Chip) -> list[str]:
    """The facts from which a schedule is chosen; unknown ones are omitted."""
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


def verdict_figures(verdict: Verdict) -> list[str]:
    """A passed verdict's times, ratios and share of the bound, and its limits relative to the task, one per line."""
    lines = []
    if verdict.time is not None:
        t = verdict.time
        lines.append(f"time: {duration(t.median_ms)} (quartiles {duration(t.q1_ms)} to {duration(t.q3_ms)})")
    for c in verdict.comparisons:
        note = "" if c.distinguishable else "; not distinguishable from 1"
        lines.append(f"speedup against {c.baseline}: {c.speedup:.3g}x (95 %: {c.low:.3g}x to {c.high:.3g}x{note})")
    if verdict.bound_share is not None:
        lines.append(f"share of the bound: {100 * verdict.bound_share:.3g} %")
    if verdict.time is not None and (load := other_load(verdict)):
        lines.append(f"other work was on the machine ({load}): times are rough")
    if limits := limits_of(verdict):
        lines.append(f"right, but for these conditions of the verdict: {', '.join(limits)}")
    return lines + [f"flag: {flag}" for flag in flags(c for c in verdict.conditions if c.concern == "kernel")]


def limits_of(verdict: Verdict) -> list[str]:
    """The restrictions of a passed kernel relative to the task, one label each."""
    return labels(c for c in verdict.conditions if c.concern == "kernel")


def numbered(text: str) -> str:
    """``text`` with line numbers, to which findings refer."""
    lines = text.strip("\n").splitlines()
    return "\n".join(f"{n:>{len(str(len(lines)))}} | {line}" for n, line in enumerate(lines, start=1))


def operations(count: float) -> str:
    """A number of floating-point operations with a unit."""
    scale, unit = next(((s, u) for s, u in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= s), (1.0, ""))
    return f"{count / scale:.3g} {unit}FLOP"


def megabytes(count: float) -> str:
    """Transferred bytes, in the units of a bandwidth: ``1.6 MB``, ``48.7 kB``."""
    scale, unit = next(((s, u) for s, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= s), (1.0, "bytes"))
    return f"{count / scale:.3g} {unit}"
