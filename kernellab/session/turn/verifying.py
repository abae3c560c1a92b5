"""The Verifier's turn: a verdict on a candidate, and kernels timed or ranked in other runs. Blocking."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernellab.agents.briefs import unsure
from kernellab.conditions import Mark, joined
from kernellab.errors import SessionError, VerifierError
from kernellab.records import Author, Candidate, Comparison, Ranking, Role, Source, Verdict
from kernellab.session.engine.engine import engine
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench, Channel, charging_gpu_time
from kernellab.session.turn.refuting import counterexamples, refuted

if TYPE_CHECKING:
    from kernellab.task import Task
    from kernellab.verifier.protocol.options import VerifyOptions

#: Time limit of a baseline's compilation in the background, and the polling interval; chosen, not measured.
_COMPILE_SECONDS = 300.0
_LOOK_SECONDS = 0.4


def verified(bench: Bench, state: State, turn: Turn, channel: Channel) -> Turn:
    """Return the turn with the verdict on the candidate of its line, or with an earlier one on the same source."""
    task, target = bench.task(), bench.target()
    candidate = state.candidate(turn.parent)
    assert candidate is not None
    judged_turn = state.verdict_of(candidate.source.hash, answered=True)
    if judged_turn is not None:
        return turn.model_copy(update={"verdict": judged_turn.verdict, "reused": judged_turn.id})
    options = options_of(bench, state, candidate)
    with engine().verifying:
        _refuse_stopped(channel.cancel)
        with charging_gpu_time(bench, target):
            options = options.model_copy(update={"counterexamples": counterexamples(task, state)})
            judge = engine().verifier()
            verdict = judge.verify(
                task, candidate.source, target, options=options, progress=channel.progress, cancel=channel.cancel
            )
            verdict, no_counters = _with_counters(bench, candidate.source, verdict)
    verdict = _with_task_flags(bench, verdict)
    turn = turn.model_copy(
        update={
            "next_to_best": _next_to_best(bench, state, candidate.source, verdict, channel),
            "refuted": _refuted(bench, state, turn, verdict, channel),
        }
    )
    exchanges = (exchange for ancestor in state.up(turn.parent) for exchange in state.exchanges(ancestor.id))
    if engine().has_agents or any(exchange.shared_machine for exchange in exchanges):
        verdict = verdict.model_copy(
            update={"conditions": joined(verdict.conditions, [Mark(kind="agent-shared-machine")])}
        )
    return turn.model_copy(update={"verdict": verdict, "rationale": no_counters or turn.rationale})


def _refuse_stopped(cancel: threading.Event | None) -> None:
    """
    Raises:
        VerifierError: the work was stopped while it waited; a request would end the judge that all sessions share.
    """
    if cancel is not None and cancel.is_set():
        raise VerifierError("The verification was stopped.", "There is no verdict; verify again.")


def _next_to_best(
    bench: Bench, state: State, source: Source, verdict: Verdict, channel: Channel
) -> tuple[str, Comparison] | None:
    """Time a kernel in one run with the previous best, if it is ``unsure`` which is faster. Return the best turn's id
    and the comparison, or None."""
    best = state.best()
    if best is None or not unsure(best.verdict, verdict):
        return None
    name = f"turn {best.number}"
    channel.say(f"timing it in one run with {name}, the best so far")
    try:
        with charging_gpu_time(bench, bench.target()):
            judged = compare(bench, source, ("eager",), {name: best.candidate.source}, cancel=channel.cancel)
    except (VerifierError, SessionError):
        return None  # both have verdicts already
    comparison = judged.against(name)
    return (best.turn.id, comparison) if comparison is not None else None


def _refuted(bench: Bench, state: State, turn: Turn, verdict: Verdict, channel: Channel) -> tuple[str, Verdict] | None:
    best, code_turn = state.best(), state.source_turn(turn.parent)
    if best is None or code_turn is None:
        return None
    return refuted(bench, best, verdict, code_turn.number, options_of(bench, state, best.candidate), channel)


def _with_counters(bench: Bench, source: Source, verdict: Verdict) -> tuple[Verdict, str]:
    """Add GPU counters to the verdict of a kernel that passed T2, if the session allows it; else return why not."""
    if not (bench.created.counters and bench.target().chip.kind == "gpu" and verdict.passed and verdict.time):
        return verdict, ""
    from kernellab.lens.counters.read import count

    try:
        counters = count(source, bench.task(), unsandboxed=bench.created.counters)
    except SessionError as error:
        return verdict, f"No counters of the GPU were read: {error.message} {error.remedy}".strip()
    return verdict.model_copy(update={"counters": counters}), ""


def options_of(bench: Bench, state: State, candidate: Candidate) -> VerifyOptions:
    """The session's options. A kernel by the rules may use library calls that its design contains; it is labelled."""
    options: VerifyOptions = bench.options()
    if candidate.source.origin is not Author.RULES:
        return options
    turns = (t for t in state.turns.values() if t.role is Role.DESIGNER and t.author is Author.RULES)
    designs = [t for t in turns if t.sketch == candidate.sketch]
    allow_library = options.allow_library or any(t.library_calls for t in designs)
    return options.model_copy(update={"rewritten": any(t.rewritten for t in designs), "allow_library": allow_library})


def compare(
    bench: Bench, source: Source, baselines: tuple[str, ...], rivals: Mapping[str, Source] | None = None,
    task: Task | None = None, cancel: threading.Event | None = None,
) -> Verdict:  # fmt: skip
    """Return a verdict on a source that passed, timed against ``baselines`` and other kernels in one paired run, for
    the session's task or for ``task``: the same task at other sizes. Blocking.

    Raises:
        VerifierError, SessionError: judging failed, ``cancel`` was set, or a baseline does not exist.
    """
    from pydantic import ValidationError

    from kernellab.verifier.protocol.options import VerifyOptions

    try:
        fields = {**bench.created.options, "baselines": baselines, "rivals": dict(rivals or {})}
        options = VerifyOptions.model_validate(fields)
    except ValidationError:
        raise SessionError(f"{', '.join(baselines)} cannot all be compared with.", "Choose eager or compile.") from None
    task, target = task or bench.task(), bench.target()
    deadline = time.monotonic() + _COMPILE_SECONDS
    # torch.compile takes many seconds: meanwhile other verifications may use the judge
    while not engine().verifier().prepare(task, target, options) and time.monotonic() < deadline:
        if cancel is not None and cancel.is_set():
            break
        time.sleep(_LOOK_SECONDS)
    with engine().verifying:
        _refuse_stopped(cancel)
        return _with_task_flags(bench, engine().verifier().verify(task, source, target, options=options, cancel=cancel))


def rank(bench: Bench, source: Source, task: Task | None = None) -> Ranking:
    """Rank a source for a search, on the session's task or on ``task``: the same task at other sizes. Blocking.
    Raises VerifierError, TargetError."""
    from kernellab.verifier.protocol.options import RankOptions, VerifyOptions

    defaults = VerifyOptions.model_validate(bench.created.options)
    options = RankOptions(
        allow_library=defaults.allow_library, unsandboxed=defaults.unsandboxed, threads=defaults.threads,
        precision=defaults.precision,
    )  # fmt: skip
    with engine().verifying:
        return engine().verifier().rank(task or bench.task(), source, bench.target(), options=options)


def _with_task_flags(bench: Bench, verdict: Verdict) -> Verdict:
    """Add the task's weaknesses as conditions, and name the reference's framework in the comparisons."""
    from kernellab.task.audit import weaknesses

    numpy = bench.task().framework == "numpy"
    update = {"called": "NumPy"} if numpy else {}
    comparisons = [c.model_copy(update=update) if c.baseline == "eager" else c for c in verdict.comparisons]
    conditions = joined(verdict.conditions, weaknesses(bench.admitted()))
    return verdict.model_copy(update={"conditions": conditions, "comparisons": comparisons})
