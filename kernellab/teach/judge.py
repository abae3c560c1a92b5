"""An answer judged: checked, run at the gate, held against the exercise's goals, built and verified.

A sketch goes through the checker, the gate and the goals before any code is built, so that most faults are reported
within a second; then it is lowered and the Verifier gives a quick look (T1), or a whole verdict (T2) where the learner
asks to pass. A cell that is no sketch is a kernel, and goes to the Verifier at once; one in Triton that is right in the
interpreter is compiled for a GPU as well.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from kernellab import python_tree
from kernellab.errors import KernellabError, Overtime, SessionError, TargetError
from kernellab.records import Author, CompilerLine, GateResult, GateState, Source, Stage, Trust, Verdict
from kernellab.sketch.check import check
from kernellab.sketch.gate import gate
from kernellab.sketch.program.bind import bind
from kernellab.sketch.program.library import PREFIX, library_call
from kernellab.sketch.program.program import Program
from kernellab.target import Backend, Target
from kernellab.target.chips import find_chip
from kernellab.task import Task
from kernellab.teach.exercise import Goals, Mistake
from kernellab.teach.goals import Facts, Missed, asked, endless, facts, missed, missed_by_call
from kernellab.teach.read.dry_calls import COURSE_GPU, dry_calls
from kernellab.teach.read.host_code import Fault, host_fault, library_fault
from kernellab.teach.read.kernel_code import kernel_fault
from kernellab.teach.read.limits import processor_time, too_long
from kernellab.teach.read.machine import packed_share
from kernellab.teach.read.notebooks import is_blank
from kernellab.teach.uses import refilled, without
from kernellab.teach.wrong import ErrorMap, mistake_key, mistake_of, wrong_elements
from kernellab.verifier.protocol.options import VerifyOptions

#: what verifies an answer: the notebook's warm judge, or a test's own
Verify = Callable[[Task, Source, VerifyOptions], Verdict]

#: seconds of a thread's own time after which an answer's cases end; several times what the slowest needs
_SECONDS = 60.0
#: seconds of the main thread's processor time for all that is done with an answer's text, the gate among it
READING = 90.0
#: seconds of the processor's time that a worker of an answer may use: answers in the interpreter and sketches use 4 at
#: most; what builds C++ itself may need a minute
_WORKER_SECONDS, _BUILD_SECONDS = 30.0, 150.0
#: bytes of inputs at most in a quick look: sixty students' judges share a server's memory, and a lesson's own sizes are
#: smaller; an answer that asks to pass meets all of them
_LONGEST = 8 << 20
#: a refused answer whose relative error is below this is drawn again, so many times
_NEAR, _DRAWN_AGAIN = 1e-2, 4


class Reached(str, Enum):
    """How far an answer came."""

    UNREADABLE = "not a sketch yet"
    OTHER = "not what is asked"
    WRONG = "wrong"
    GOAL = "right, and not yet what is asked"
    REFUSED = "refused by the Verifier"
    RIGHT = "right"
    PASSED = "passed"

    @property
    def good(self) -> bool:
        return self in (Reached.RIGHT, Reached.PASSED)


@dataclass(frozen=True)
class Outcome:
    """``keys`` are words of the fault, the most telling first: hints are found by them; of a kernel they name all goals
    that it misses. ``line`` is of the sketch."""

    reached: Reached
    sentence: str
    keys: tuple[str, ...] = ()
    line: int | None = None
    wrong: ErrorMap | None = None
    facts: Facts | None = None
    verdict: Verdict | None = None

    @property
    def trust(self) -> Trust | None:
        return self.verdict.trust if self.verdict is not None and self.verdict.passed else None


def is_sketch(text: str) -> bool:
    """Is the cell a sketch, and no module of Python?"""
    first = next((line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")), "")
    return first.startswith("sketch ") or first.startswith("opaque:")


def judge(
    text: str, task: Task, goals: Goals, verify: Verify, level: Trust = Trust.T1, mistakes: Sequence[Mistake] = ()
) -> Outcome:
    """How far ``text`` comes for ``task``. Never raises on a bad answer.

    Raises:
        VerifierError, TargetError: it cannot be judged on this machine.
    """
    if sentence := too_long(text):
        return Outcome(Reached.UNREADABLE, sentence, ("length",))
    if is_blank(text):
        return Outcome(Reached.UNREADABLE, "There is no answer in the cell yet.", ("empty", "check"))
    if not is_sketch(text):
        return _kernel(text, task, goals, verify, level)
    if goals.dsl:
        sentence = f"This is a sketch, and the exercise asks for a kernel in {goals.dsl}."
        return Outcome(Reached.OTHER, sentence, ("goal-dsl", "check"))
    try:
        with processor_time(READING):
            outcome, program = judge_sketch(text, task, goals, mistakes)
            source = _source(program, task) if program is not None else outcome
    except Overtime as error:
        return Outcome(Reached.REFUSED, error.message, ("processor", "refused"))
    if isinstance(source, Outcome):
        return replace(source, facts=outcome.facts)
    return _verified(source, task, verify, level, outcome.facts)


def verified_sketch(text: str, task: Task, verify: Verify) -> Outcome:
    """What the Verifier's quick look says of a sketch that is right at the gate and misses a goal. Raises as
    :func:`judge`."""
    from kernellab.sketch.check import load_program

    with processor_time(READING):
        source = _source(load_program(text), task)
    return source if isinstance(source, Outcome) else _verified(source, task, verify, Trust.T1, None)


def _source(program: Program, task: Task) -> Source | Outcome:
    try:
        return lowered(program, task)
    except KernellabError as error:
        return Outcome(Reached.UNREADABLE, str(error), ("lowering", "check"))


def judge_sketch(
    text: str, task: Task, goals: Goals, mistakes: Sequence[Mistake] = ()
) -> tuple[Outcome, Program | None]:
    """Checker, gate and goals alone; the program where all are content. Raises TargetError as :func:`judge`."""
    checked = check(text)
    if checked.program is None:
        first = checked.errors[0]
        sentence = f"Line {first.line}: {first.message} {first.remedy}".strip()
        return Outcome(Reached.UNREADABLE, sentence, (first.rule or first.code, "check"), line=first.line), None
    program = checked.program
    if call := next(filter(None, map(library_call, program.kernels)), None):
        sentence = f"Line {call.span.line}: It calls {PREFIX}{call.op}; an answer computes by itself."
        return Outcome(Reached.OTHER, sentence, ("goal-library", "check"), line=call.span.line), None
    if sentence := endless(program, task):
        return Outcome(Reached.UNREADABLE, sentence, ("not-runnable", "check")), None
    # the sentence names sizes, and a learner sees the same one on every machine
    at_gate = gate(program, task, seconds=_SECONDS, whole=True)
    if at_gate.state is GateState.NOT_RUNNABLE:
        return Outcome(Reached.UNREADABLE, at_gate.reason, ("not-runnable", "check")), None
    if at_gate.state is not GateState.RIGHT:
        return _wrong_at_gate(program, task, at_gate, mistakes), None
    sketch_facts = facts(program, task)
    goal = next(unmet(text, program, task, goals, sketch_facts), None)
    if goal is not None:
        return Outcome(Reached.GOAL, f"It is right. {goal.sentence}", (goal.key, "goal"), facts=sketch_facts), None
    return Outcome(Reached.RIGHT, at_gate.reason, facts=sketch_facts), program


def _wrong_at_gate(program: Program, task: Task, at_gate: GateResult, mistakes: Sequence[Mistake]) -> Outcome:
    """The outcome of a sketch that the gate finds wrong: the known mistake that it computes is its first key, then the
    signature of its errors."""
    wrong = wrong_elements(program, task, at_gate.sizes)
    mistake = mistake_of(program, task, mistakes)
    keys = [mistake_key(mistake)] if mistake is not None else []
    keys += [wrong.signature] if wrong else []
    return Outcome(Reached.WRONG, at_gate.reason + _exchanged(wrong), (*keys, "wrong"), wrong=wrong)


def unmet(text: str, program: Program, task: Task, goals: Goals, sketch_facts: Facts | None) -> Iterator[Missed]:
    """The goals that a sketch does not meet; what has to be compiled comes last."""
    yield from missed(goals, program, task, text, sketch_facts)
    if goals.packed is not None and (sentence := _unpacked(program, task, goals.packed)):
        yield Missed("goal-packed", sentence)


def _exchanged(wrong: ErrorMap | None) -> str:
    if wrong is None or not wrong.other:
        return ""
    return f" {wrong.output} holds what the reference returns as number {wrong.other}: outputs count as declared."


def _unpacked(program: Program, task: Task, least: float) -> str:
    """What is said where less of the compiled arithmetic than ``least`` works on whole vectors; "" where it is met.
    Raises TargetError: there is no compiler here that shows it."""
    try:
        source = lowered(program, task, "cpp")
    except KernellabError:
        return ""  # the build says it better
    try:
        share = packed_share(source)
    except SessionError as error:
        raise TargetError(f"The exercise asks what the compiler makes of it: {error.message}", error.remedy) from None
    if share is None or share >= least:
        return ""
    return (
        f"Of the float instructions in the hottest loop of its compiled C++ {share:.0%} work on whole vectors; "
        f"at least {least:.0%} is asked."
    )


def lowered(program: Program, task: Task, dsl: str | None = None) -> Source:
    """The program as code of this machine's DSL. Raises SketchError, LoweringError, TargetError."""
    from kernellab.dsls.machine import detect_target
    from kernellab.lowering import lower

    target = detect_target(dsl)
    return lower(program, bind(program, task, {}, target), target)


def source_of(text: str, task: Task, dsl: str | None = None) -> Source:
    """A cell as something to verify: a sketch lowered, a module as it is.

    Raises:
        SketchError, LoweringError, TargetError: it is a sketch that cannot be lowered.
    """
    from kernellab.dsls.detect import dsl_of
    from kernellab.sketch.check import load_program
    from kernellab.verifier.protocol.option_words import plain_dsl

    if is_sketch(text):
        return lowered(load_program(text), task, dsl)
    files = {"kernel.py": text}
    return Source(dsl=dsl or dsl_of(files) or plain_dsl(), files=files, origin=Author.HUMAN)


def _kernel(text: str, task: Task, goals: Goals, verify: Verify, level: Trust) -> Outcome:
    try:
        module = python_tree.parse(text, "kernel.py")
    except SyntaxError as error:
        sentence = f"Line {error.lineno}: {error.msg}." if error.lineno else f"{error.msg.capitalize()}."
        return Outcome(Reached.UNREADABLE, sentence, ("syntax", "check"), line=error.lineno)
    except (MemoryError, RecursionError):
        return Outcome(Reached.UNREADABLE, "It is nested too deeply to be read.", ("syntax", "check"))
    except UnicodeEncodeError as error:
        sentence = f"It holds a character that no file can: {error.reason}."
        return Outcome(Reached.UNREADABLE, sentence, ("syntax", "check"))
    if not any(isinstance(s, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)) for s in module.body):
        # lines of Python where a sketch is asked; the Verifier would ask for a module, which no one mentioned
        return Outcome(Reached.UNREADABLE, "An answer begins with `sketch NAME {`, as the cell did.", ("check",))
    source = source_of(text, task)
    if goals.dsl:
        if source.dsl != goals.dsl:
            sentence = f"It is written in {source.dsl}; the exercise asks for {goals.dsl}."
            return Outcome(Reached.OTHER, sentence, ("goal-dsl", "check"))
        if goals.dsl == "triton" and (fault := _not_asked(module, task, goals)) is not None:
            return fault
        outcome = _verified(source, task, verify, level, None)
        if goals.dsl != "triton":
            return outcome
        if outcome.reached.good:
            return _compiled(outcome, source, task, goals, verify)
        return _by_other(outcome, source, task, verify)
    elif sentences := asked(goals):
        # what is asked is counted on sketches alone: a module would have the points for nothing
        sentence = (
            f"This exercise asks for more than a right kernel, and counts it on a sketch: {'; '.join(sentences)}."
        )
        return Outcome(Reached.OTHER, sentence, ("goal-sketch", "check"))
    return _verified(source, task, verify, level, None)


def _by_other(outcome: Outcome, source: Source, task: Task, verify: Verify) -> Outcome:
    """A refused kernel in Triton, with the word "other" first where it is right with another number in the masked
    elements that it loads: wrong values alone say little of the fault."""
    text = refilled(source.files[source.entry_file]) if outcome.wrong is not None else ""
    if not text:
        return outcome
    other = source.model_copy(update={"files": {**source.files, source.entry_file: text}})
    if not verify(task, other, _options(other, Trust.T1)).passed:
        return outcome
    return replace(outcome, keys=("other", *outcome.keys))


def _not_asked(module: ast.Module, task: Task, goals: Goals) -> Outcome | None:
    """What is said of an answer in Triton that does what its exercise does not ask for, by its text."""
    tensors = [place for place, arg in enumerate(task.args) if arg.is_tensor]
    checks: dict[str, Callable[[], Fault | None]] = {
        "goal-host": lambda: host_fault(module, tensors),
        "goal-avoids": lambda: library_fault(module, goals.avoids),
        "goal-kernel": lambda: kernel_fault(module),
    }
    try:
        with processor_time(READING):
            for key, check_text in checks.items():
                fault = check_text()
                if fault is not None:
                    sentence = f"Line {fault.line}: {fault.sentence}"
                    return Outcome(Reached.OTHER, sentence, (key, "check"), line=fault.line)
    except Overtime as error:
        return Outcome(Reached.REFUSED, error.message, ("processor", "refused"))
    except RecursionError:
        return Outcome(Reached.UNREADABLE, "It is nested too deeply to be read.", ("syntax", "check"))
    return None


def _compiled(outcome: Outcome, source: Source, task: Task, goals: Goals, verify: Verify) -> Outcome:
    """A right kernel in Triton held against Triton's compiler for a GPU, since the interpreter runs any Python, and
    against the exercise's goals: at the task's own sizes, where it was verified, and where a goal depends on sizes at
    the largest. Where there is no sandbox to call it in, it stays right."""
    try:
        calls, refused = dry_calls(source, task, goals)
    except Overtime as error:
        return Outcome(Reached.REFUSED, error.message, ("processor", "refused"))
    if refused:
        sentence = f"Right in Triton's interpreter, and no kernel of a GPU: {refused}"
        return Outcome(Reached.REFUSED, sentence, ("goal-compiles", "refused"))
    for place, call in zip(("At the task's own sizes", "At its largest sizes"), calls, strict=False):
        if call.ran is None or not call.kernels or not call.ran.error:
            continue
        sentence = f"Right on small shapes. {place} Triton's interpreter ends with {call.ran.error.removesuffix('.')}."
        return Outcome(Reached.REFUSED, sentence, ("goal-runs", "refused"))
    for call in calls:
        missed_goals = list(missed_by_call(goals, call)) if call.kernels else []
        if missed_goals:
            keys = (*(goal.key for goal in missed_goals), "goal")
            return Outcome(Reached.GOAL, f"It is right. {missed_goals[0].sentence}", keys)
    sentence = next(filter(None, (_needless(source, task, name, verify) for name in goals.uses)), "")
    return Outcome(Reached.GOAL, f"It is right. {sentence}", ("goal-uses", "goal")) if sentence else outcome


def _needless(source: Source, task: Task, name: str, verify: Verify) -> str:
    """Why a right kernel does not use the operation ``name``, as it is asked to; "" where it needs it."""
    texts = without(source.files[source.entry_file], name)
    if not texts:
        return f"No call in it names {name}: write it by its name."
    for text in texts:
        other = source.model_copy(update={"files": {**source.files, source.entry_file: text}})
        if verify(task, other, _options(other, Trust.T1)).passed:
            return f"It does not need {name} yet: with another result of {name}, it is as right."
    return ""


def target_of(source: Source) -> Target:
    """What an answer is judged for: this machine, and in Triton's interpreter the GPU that the course compiles for.
    Raises TargetError."""
    from kernellab.dsls.machine import detect_target

    target = detect_target(source.dsl)
    chip = find_chip(COURSE_GPU)
    return replace(target, chip=chip) if target.backend is Backend.INTERPRETER and chip is not None else target


def _verified(source: Source, task: Task, verify: Verify, level: Trust, sketch_facts: Facts | None) -> Outcome:
    verdict = first = verify(task, source, _options(source, level))
    # where inputs tie, a right kernel may lie beyond a limit once in a thousand draws: it is refused by two of five
    for _ in range(_DRAWN_AGAIN if _near(first) else 0):
        verdict = verify(task, source, _options(source, level))
        if not verdict.passed:
            verdict = first
            break
    if verdict.passed:
        reached = Reached.PASSED if level is not Trust.T1 else Reached.RIGHT
        sentence = verdict.reason if level is not Trust.T1 else "Right on small shapes."
        return Outcome(reached, sentence, facts=sketch_facts, verdict=verdict)
    evidence = verdict.evidence
    signature = evidence.signature if evidence is not None else None
    keys = tuple(filter(None, (signature, verdict.stage.value, "refused")))
    wrong = _map_of(verdict)
    sentence = verdict.reason
    if evidence is not None and evidence.compiler:
        line: CompilerLine = evidence.compiler[0]
        sentence = f"{sentence} {line.place}: {line.message}"
    return Outcome(Reached.REFUSED, sentence, keys, wrong=wrong, facts=sketch_facts, verdict=verdict)


def _options(source: Source, level: Trust) -> VerifyOptions:
    """A quick look has a limit on the processor's time, which no load of the machine moves, and one on memory."""
    most = _WORKER_SECONDS if source.origin is Author.RULES or source.dsl == "triton" else _BUILD_SECONDS
    quick = level is Trust.T1
    return VerifyOptions(level=level, processor=most if quick else 0.0, longest=_LONGEST if quick else 0)


def _near(verdict: Verdict) -> bool:
    """Is it refused for values that are near the reference's, in inputs that were drawn?"""
    evidence = verdict.evidence
    if verdict.passed or evidence is None or verdict.stage not in (Stage.CORRECT, Stage.ROBUST):
        return False
    if evidence.signature == "race":
        return False
    return evidence.rel_frobenius is not None and evidence.rel_frobenius < _NEAR


def _map_of(verdict: Verdict) -> ErrorMap | None:
    """The Verifier's own map of the errors, at most 16 rows of 48 characters."""
    evidence = verdict.evidence
    if evidence is None or not evidence.error_map:
        return None
    at = ", ".join(f"{k} = {v}" for k, v in evidence.sizes.items()) or "the task's own shapes"
    rows = tuple(evidence.error_map)
    got, want = (v if isinstance(v, float) else float("nan") for v in (evidence.got, evidence.want))
    return ErrorMap(
        output=f"output {evidence.output or 0}", at=at, shape=(), rows=rows, first=tuple(evidence.first_wrong or ()),
        got=got, want=want, count=0, signature=evidence.signature or "",
    )  # fmt: skip
