"""A turn's work: what each role is told, and the record of what it answered. Blocking; runs in worker threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import CodeBrief, DesignBrief, RouteBrief
from kernellab.agents.roles import is_model, make_role
from kernellab.errors import KernellabError, SessionError, SketchError, VerifierError
from kernellab.records import Author, Candidate, Diagnostic, GateResult, GateState, Role, Source, StageResult, Verdict
from kernellab.session.engine import engine
from kernellab.session.records import Created, Turn, TurnState
from kernellab.session.state import State

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task, TaskFlag

Progress = Callable[[StageResult], None]

#: how long a baseline may compile in the background, and how often that is looked at
_COMPILE_SECONDS = 300.0
_LOOK_SECONDS = 0.4


class Bench:
    """What a session works with in this process: its task, target, roles; each made when it is first needed."""

    def __init__(self, created: Created, objects: Mapping[Role, Any], task: Task | None, target: Target | None) -> None:
        self.created = created
        self._objects = dict(objects)
        self._task = task
        self._target = target
        self._made: dict[tuple[Role, str], Any] = {}
        self._task_lock = threading.Lock()
        #: a lock of its own: the judge starts for the target while the task imports torch
        self._target_lock = threading.Lock()

    def task(self) -> Task:
        """Raises TaskError."""
        from kernellab.task import load_task

        with self._task_lock:
            if self._task is None:
                self._task = load_task(self.created.text, self.created.name)
            return self._task

    def admitted(self) -> tuple[TaskFlag, ...]:
        """What is weak about the task as a test of kernels. Raises TaskError when no kernel can pass."""
        from kernellab.task_quality import admit

        return admit(self.task())

    def target(self) -> Target:
        """Raises TargetError."""
        from kernellab.target_detect import detect_target

        with self._target_lock:
            if self._target is None:
                self._target = detect_target(self.created.dsl, self.created.chip)
            return self._target

    def role(self, role: Role, spec: str) -> Any:
        """The object that plays ``role`` now. Raises SessionError when this process cannot have it."""
        if spec.startswith("object:") and role in self._objects:
            return self._objects[role]
        key = role, spec
        if key not in self._made:
            self._made[key] = make_role(role, spec)
        return self._made[key]

    def put(self, role: Role, player: Any) -> None:
        self._objects[role] = player

    def options(self) -> Any:
        from kernellab.verifier.options import VerifyOptions

        return VerifyOptions.model_validate(self.created.options)


def perform(bench: Bench, state: State, turn: Turn, progress: Progress) -> Turn:
    """Do ``turn``'s work and return its finished record. What the role cannot do is a FAILED turn, not an exception.

    Raises:
        TaskError, TargetError: the session itself cannot go on.
    """
    task, target = bench.task(), bench.target()
    bench.admitted()
    began = time.perf_counter()
    try:
        done = _WORK[turn.role](bench, state, turn, task, target, progress)
    except KernellabError as error:
        done = turn.model_copy(
            update={"state": TurnState.FAILED, "error": error.message, "remedy": error.remedy} | _findings(error)
        )
    except Exception as error:
        if turn.role is Role.VERIFIER:
            engine().drop_verifier()
        done = turn.model_copy(
            update={
                "state": TurnState.FAILED,
                "error": f"The {turn.role.value} broke: {type(error).__name__}: {error}",
                "remedy": "Set KERNELLAB_DEBUG=1 for the traceback, and report it.",
            }
        )
        _debug(error)
    seconds = time.perf_counter() - began
    if done.state is TurnState.RUNNING:
        done = done.model_copy(update={"state": TurnState.DONE})
    return done.model_copy(update={"seconds": seconds})


def _design(bench: Bench, state: State, turn: Turn, task: Task, target: Target, progress: Progress) -> Turn:
    before = next((t for t in reversed(state.path(turn.parent)) if t.sketch is not None), None) if turn.parent else None
    if turn.sketch is None:
        brief = DesignBrief(
            task=task,
            target=target,
            history=state.attempts(),
            route=_route_to(state, turn),
            previous=before.sketch if before else None,
            notes=state.notes.get(Role.DESIGNER, ()),
        )
        reply = bench.role(Role.DESIGNER, state.roles[Role.DESIGNER]).design(brief)
        turn = turn.model_copy(
            update={
                "sketch": reply.sketch,
                "constexpr": dict(reply.constexpr),
                "rationale": reply.rationale,
                "claims": tuple(reply.claims),
            }
        )
    values = {**turn.constexpr, **bench.created.constexpr}
    gate = _gate(turn, before.sketch if before else None, task, target, values)
    return turn.model_copy(update={"gate": gate})


def _gate(turn: Turn, before: str | None, task: Task, target: Target, values: dict[str, int | float]) -> GateResult:
    from kernellab.sketch.gate import gate

    assert turn.sketch is not None
    if before is not None:
        from kernellab.sketch.pins import check_pins

        breaches: list[Diagnostic] = list(check_pins(before, turn.sketch, turn.author))
        if any(b.severity == "error" for b in breaches):
            return GateResult(state=GateState.WRONG, reason=breaches[0].message, diagnostics=breaches)
    try:
        return gate(turn.sketch, task, chip=target.chip, constexpr=values)
    except SketchError as error:
        found = list(error.diagnostics) or [Diagnostic(line=1, col=1, code="SK000", message=str(error))]
        return GateResult(state=GateState.NOT_RUNNABLE, reason=error.message, diagnostics=found)


def _code(bench: Bench, state: State, turn: Turn, task: Task, target: Target, progress: Progress) -> Turn:
    designed = state.sketch_turn(turn.parent) if turn.parent else None
    if designed is None or designed.sketch is None:
        raise SessionError(
            "There is no sketch to write code from.", "Redirect to the Designer, or write one with edit_sketch(text)."
        )
    earlier = state.candidate(turn.parent)
    values = {**designed.constexpr, **bench.created.constexpr}
    brief = CodeBrief(
        task=task,
        target=target,
        sketch=designed.sketch,
        constexpr=values,
        history=state.attempts(),
        route=_route_to(state, turn),
        previous=earlier.source if earlier else None,
        notes=state.notes.get(Role.CODER, ()),
    )
    reply = bench.role(Role.CODER, state.roles[Role.CODER]).code(brief)
    candidate = Candidate(
        id=f"c{turn.number}",
        source=reply.source,
        sketch=designed.sketch,
        constexpr=dict(reply.constexpr) or values,
        parent=earlier.id if earlier else None,
        author=turn.author,
    )
    return turn.model_copy(update={"candidate": candidate, "rationale": reply.rationale})


def _verify(bench: Bench, state: State, turn: Turn, task: Task, target: Target, progress: Progress) -> Turn:
    candidate = state.candidate(turn.parent)
    assert candidate is not None
    earlier = state.verdict_of(candidate.source.hash)
    if earlier is not None:
        return turn.model_copy(update={"verdict": earlier.verdict, "reused": earlier.id})
    with engine().verifying:
        try:
            verdict = (
                engine().verifier().verify(task, candidate.source, target, options=bench.options(), progress=progress)
            )
        except VerifierError:
            engine().drop_verifier()
            raise
    return turn.model_copy(update={"verdict": _with_task_flags(bench, verdict)})


def compare(bench: Bench, source: Source, baselines: tuple[str, ...]) -> Verdict:
    """A verdict on a source that has passed, timed against ``baselines`` in one paired run. Blocking.

    Raises:
        VerifierError, SessionError: it could not be judged, or there is no such baseline.
    """
    from pydantic import ValidationError

    from kernellab.verifier.options import VerifyOptions

    try:
        options = VerifyOptions.model_validate({**bench.created.options, "baselines": baselines})
    except ValidationError:
        raise SessionError(
            f"{', '.join(baselines)} cannot all be compared with.", "There is eager and compile."
        ) from None
    task, target = bench.task(), bench.target()
    until = time.monotonic() + _COMPILE_SECONDS
    # torch.compile takes many seconds: it must not keep another verification from the judge
    while not engine().verifier().prepare(task, target, options) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    with engine().verifying:
        return _with_task_flags(bench, engine().verifier().verify(task, source, target, options=options))


def _with_task_flags(bench: Bench, verdict: Verdict) -> Verdict:
    """A verdict is worth what its task is: what weak tests it had stands beside it."""
    return verdict.model_copy(update={"flags": [*verdict.flags, *map(str, bench.admitted())]})


def _conduct(bench: Bench, state: State, turn: Turn, task: Task, target: Target, progress: Progress) -> Turn:
    parent = state.turns[turn.parent] if turn.parent else None
    designed = state.sketch_turn(turn.parent) if turn.parent else None
    judged = parent if parent and parent.verdict else None
    coded = parent is not None and parent.role in (Role.CODER, Role.VERIFIER)
    brief = RouteBrief(
        task=task,
        target=target,
        sketch=designed.sketch if designed else None,
        gate=designed.gate if designed else None,
        candidate=state.candidate(turn.parent) if coded else None,
        verdict=judged.verdict if judged else None,
        history=_without_last(state),
        turns_left=max(0, state.created.max_turns - state.unattended),
        error=f"{parent.error} {parent.remedy}".strip() if parent and parent.state is TurnState.FAILED else "",
    )
    route = bench.role(Role.CONDUCTOR, state.roles[Role.CONDUCTOR]).route(brief)
    return turn.model_copy(update={"route": route, "rationale": route.reason})


_WORK = {Role.DESIGNER: _design, Role.CODER: _code, Role.VERIFIER: _verify, Role.CONDUCTOR: _conduct}


def author_of(bench: Bench, state: State, role: Role) -> Author:
    """Who takes a turn of ``role``; an object says it itself."""
    if role is Role.VERIFIER:
        return Author.RULES
    spec = state.roles.get(role, "rules")
    if spec.startswith("object:"):
        return Author(bench.role(role, spec).author)
    return Author.MODEL if is_model(spec) else Author(spec)


def _route_to(state: State, turn: Turn) -> Any:
    parent = state.turns[turn.parent] if turn.parent else None
    return parent.route if parent else None


def _without_last(state: State) -> tuple[Any, ...]:
    """The rounds before the one that the Conductor is judging."""
    rounds = state.attempts()
    return rounds[:-1] if rounds and rounds[-1].route is None else rounds


def _findings(error: KernellabError) -> dict[str, Any]:
    if isinstance(error, SketchError) and error.diagnostics:
        lines = "\n".join(f"line {d.line}: {d.message} {d.remedy}".rstrip() for d in error.diagnostics)
        return {"note": lines}
    return {}


def _debug(error: Exception) -> None:
    import logging
    import os

    if os.environ.get("KERNELLAB_DEBUG"):
        logging.getLogger("kernellab.session").error("a role broke", exc_info=error)
