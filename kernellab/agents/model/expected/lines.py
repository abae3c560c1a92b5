"""The expected values at the first wrong element in lines for a prompt, and the change of the sketch that fits."""

from __future__ import annotations

from math import isclose, isfinite
from typing import TYPE_CHECKING, NamedTuple

from kernellab.agents.briefs import CodeBrief
from kernellab.agents.model.expected.element import Step, steps_to, value_at
from kernellab.agents.model.expected.narrow import Call, narrowed
from kernellab.agents.model.expected.variants import Variant, variants
from kernellab.errors import KernellabError
from kernellab.records import Evidence, Stage, Verdict
from kernellab.sketch.run.confined import one_worker, used
from kernellab.target.threads import one_thread
from kernellab.task.sample.sizes import input_bytes

if TYPE_CHECKING:
    from kernellab.sketch.program.program import Program
    from kernellab.task import Task

#: Seconds of this thread's time for the recorded run, and for all variants.
_FOLLOW_S, _VARIANTS_S = 1.5, 1.5
#: Size of inputs above which they are not generated again.
_MOST_BYTES = 128 << 20
#: Relative difference up to which two values are equal: the kernel's is rounded, the sketch's is not.
_TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2}
_TOLERANCE_ELSE = 2e-5
#: Relative difference up to which the reference's value, rounded on the way, equals the sketch's.
_ROUNDED = 1e-2
#: Maximum number of statements, and of fitting changes, in a prompt.
_MOST_STEPS, _MOST_FITTING = 16, 2


def expected_lines(brief: CodeBrief, verdict: Verdict | None) -> tuple[str, ...]:
    """Describe what the sketch computes for the first wrong element of a failed kernel, statement by statement.

    Empty if there is nothing to compare: no such element, inputs that cannot be generated again, a sketch that does not
    give the reference's value there, or one that takes too long.
    """
    evidence = verdict.evidence if verdict is not None and not verdict.passed else None
    if evidence is None or not brief.sketch.strip() or evidence.seed is None or evidence.first_wrong is None:
        return ()
    if evidence.signature == "race" or verdict is None or verdict.stage is Stage.FAST:
        return ()  # another run is wrong at other elements; a timed call's inputs are not stored
    try:
        with one_worker(), one_thread():  # its time is limited, and a verification may be timing at the same time
            return _lines(brief, evidence)
    except (KernellabError, RuntimeError, LookupError, ValueError, OverflowError):
        return ()


def _lines(brief: CodeBrief, evidence: Evidence) -> tuple[str, ...]:
    from kernellab.sketch.check import load_program

    program = load_program(brief.sketch)
    call = _call(program, brief, evidence)
    if call is None:
        return ()
    small = narrowed(program, call)
    steps = steps_to(small, call, _FOLLOW_S)
    expected = value_at(small, call, _FOLLOW_S)
    if not steps or not _same(expected, evidence.want, _ROUNDED):
        return ()  # other inputs than those that failed, or the sketch itself is wrong
    # the kernel's value has about the reference's rounding error
    reference_error = abs(expected - float(evidence.want or 0.0)) / max(abs(expected), 1e-30)
    of_dtype = _TOLERANCES.get(brief.task.outputs[evidence.output or 0].dtype, _TOLERANCE_ELSE)
    tolerance = max(of_dtype, min(_ROUNDED, 4 * reference_error))
    lines = [_line(step) for step in steps[-_MOST_STEPS:]]
    lines.append(f"stored: {expected:.6g}; the kernel has {_shown(evidence.got)}")
    if _is_telling(evidence.got):
        fitting = _fitting(small, call, expected, evidence.got, tolerance)
        lines += filter(None, [_change_text(fitting)])
    return tuple(lines)


def _call(program: Program, brief: CodeBrief, evidence: Evidence) -> Call | None:
    """The failing case's inputs and element by the sketch's names; None if the inputs would be too large."""
    from kernellab.sketch.program.bind import bind
    from kernellab.verifier.cases.cases import make_args

    task: Task = brief.task
    sizes = evidence.sizes if task.dims else {}
    if input_bytes(task, sizes or None) > _MOST_BYTES or evidence.seed is None:
        return None
    args = make_args(task, sizes, evidence.family or "inputs", evidence.seed)
    binding = bind(program, task, brief.constexpr)
    symbols = binding.sizes(lambda position, dim: args[position].shape[dim])
    spec = task.outputs[evidence.output or 0]
    element = 0
    for size, at in zip(spec.extents(sizes), evidence.first_wrong or (), strict=True):
        element = element * size + at
    return Call(
        inputs=binding.inputs(args),
        symbols={**dict(program.sizes), **symbols},
        constexpr={**binding.constexpr, **{n: args[p] for n, p in binding.scalars.items()}},
        tensor=binding.outputs[evidence.output or 0].tensor,
        element=element,
    )


class _Fitting(NamedTuple):
    """The first variants whose value at the element is the kernel's, and whether time sufficed for all."""

    variants: list[Variant]
    all_tried: bool


def _fitting(program: Program, call: Call, expected: float, got: float | str | None, tolerance: float) -> _Fitting:
    deadline = used() + _VARIANTS_S
    matches: list[Variant] = []
    for variant in variants(program):
        seconds_left = deadline - used()
        if seconds_left <= 0 or len(matches) == _MOST_FITTING:
            return _Fitting(matches, False)
        try:
            value = value_at(variant.program, call, seconds_left)
        except (KernellabError, RuntimeError):
            continue  # the changed program does not run
        if _same(value, got, tolerance) and not _same(value, expected, tolerance):
            matches.append(variant)
    return _Fitting(matches, True)


def _change_text(fitting: _Fitting) -> str:
    """The change of the sketch that gives the kernel's value, in a sentence; "" if it is unknown whether one does."""
    if not fitting.variants:
        return "No change of one operation of the sketch gives the kernel's value." if fitting.all_tried else ""
    changes = "; or ".join(f"in line {variant.line} ({variant.words})" for variant in fitting.variants)
    # many changes of a mask give the same value
    is_single = len(fitting.variants) == 1
    end = "Look there first." if is_single else "One element does not tell which: look at what they share."
    return f"The kernel's value is what the sketch gives with one change {changes}. {end}"


def _is_telling(got: float | str | None) -> bool:
    """Whether few mistakes give the value. Many give 0, 1 or NaN."""
    return got is not None and isfinite(float(got)) and abs(float(got)) not in (0.0, 1.0)


def _same(value: float, other: float | str | None, tolerance: float) -> bool:
    if other is None:
        return False
    number = float(other)
    if not (isfinite(value) and isfinite(number)):
        return str(value) == str(number)
    return isclose(value, number, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def _line(step: Step) -> str:
    suffix = f", ... ({step.count} values)" if step.count > len(step.values) else ""
    suffix += "" if step.alone else ", not for this element alone"
    text = f"line {step.line}: {step.name} = {', '.join(f'{v:.6g}' for v in step.values)}{suffix}"
    return f"{text}; {', '.join(f'{v:.6g}' for v in step.last)} in the last step" if step.last else text


def _shown(value: float | str | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
