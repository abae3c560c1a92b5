"""The judge's part: requests a recorded call, reads the record as data, lets a trusted worker replay it, and decides.

A candidate is sealed if its replay is right on contents that it never saw, including each timed output, and if the
candidate's figure is not better than the time of its device code. The reverse is not a fault: a call whose host code
takes longer than its kernels (small ones, several in a row) is slower than its replay, and the note says by how much.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kernellab.conditions import Mark, NotSealed
from kernellab.records import Comparison, Replay, ReplayStep
from kernellab.target import Backend
from kernellab.verifier.compare.compare import metadata
from kernellab.verifier.judge import turns
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.judge.worker_client import Worker
from kernellab.verifier.protocol import stats
from kernellab.verifier.protocol.memory import lay_out
from kernellab.verifier.protocol.rules import DEADLINES, SEAL
from kernellab.verifier.seal import Unsealable, bundle, inside, record
from kernellab.verifier.seal.bundle import Bundle, Launch
from kernellab.verifier.stages.context import numbered
from kernellab.verifier.stages.fast import own_case
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages
    from kernellab.verifier.timing.sides import Result


def sealed(stages: Stages) -> str:
    """Seal the candidate, or record the reason why not. Returns the note. Never fails a verification."""
    findings, on_host = stages.context.findings, stages.context.request.backend is Backend.CPU
    word = "native" if on_host else "sealed"
    try:
        replay, ratio = _sealed(stages)
    except (Unsealable, Refused, WorkerFailure) as failure:
        return _not(stages, word, str(failure).strip().splitlines()[0].rstrip("."))
    assert replay.time is not None and replay.called is not None
    findings.replay = replay
    replayed, called = replay.time.median_ms * 1e-3, replay.called.median_ms * 1e-3
    steps = "1 step" if len(replay.steps) == 1 else f"{len(replay.steps)} steps"
    note = (
        f"{word}: {steps} replayed from {replay.hash}, right on {replay.right_on} unseen contents and "
        f"{replay.checked} timed ones, {_us(replayed)} against {_us(called)}"
    )
    if ratio.high * (1 + SEAL.replay_share) < 1 and replayed - called > SEAL.replay_seconds:
        return _not(stages, word, f"its replay takes {_us(replayed)} where its call takes {_us(called)}")
    if on_host:
        findings.add(Mark(kind="native"))
    else:
        findings.sealed = True
    if ratio.low > 1 + SEAL.replay_share and called - replayed > SEAL.replay_seconds:
        note += f", of which host code takes {_us(called - replayed)}"
    return note


def _not(stages: Stages, word: str, reason: str) -> str:
    condition = NotSealed(native=word == "native", reason=reason)
    stages.context.findings.add(condition)
    return condition.label


def _sealed(stages: Stages) -> tuple[Replay, Comparison]:
    """The replay, and the ratio of the call's time to the replay's."""
    content, binaries = recorded(stages, [own_case(stages), own_case(stages)])
    if stages.context.request.backend is Backend.CPU:
        from kernellab.verifier.seal import native

        for binary in binaries.values():
            native.inspect(binary)
    with replayer_of(stages, content, binaries) as replayer:
        unseen = [own_case(stages) for _ in range(SEAL.unseen_contents)]
        for case in unseen:
            require_right(stages, replayer, case)
        result = _timed(stages, replayer, unseen[-1])
        called_side = next(side for side in result.baselines if side.name == "called")
        called, ours = called_side.seconds, result.candidate.seconds
        waited = called_side.waited, result.candidate.waited
        replay = Replay(
            hash=content.hash, steps=_steps(content, replayer), right_on=len(unseen), checked=result.checked,
            time=stats.timing(ours), called=stats.timing(called),
        )  # fmt: skip
        return replay, stats.compare("called", called, ours, busy=result.busy, noise=result.noise, waited=waited)


def recorded(stages: Stages, pair: Sequence[Case]) -> tuple[Bundle, dict[str, bytes]]:
    """The candidate's recording of two calls at the same sizes, checked as data."""
    worker = stages.worker
    layout = lay_out(pair[0].args)
    for slot, case in enumerate(pair):
        worker.write(slot, layout, case.args)
    try:
        seconds = stages.context.left(4 * stages.call_deadline(pair[0]))
        reason = worker.seal(layout, range(len(pair)), stages.source.dsl, seconds)
    except WorkerFailure as failure:
        raise Unsealable(f"recording it fails ({_first_line(failure)})") from failure
    if reason:
        raise Unsealable(reason)
    return bundle.read(worker.scratch / "work" / record.FOLDER)


@contextmanager
def replayer_of(stages: Stages, content: Bundle, binaries: dict[str, bytes]) -> Iterator[Worker]:
    """A trusted worker with the bundle loaded, in a sandbox like the candidate's."""
    worker = stages.context.pool.worker(stages.source.dsl, stages.context.request.backend, "replayer", stages.threads)
    try:
        worker.memory_limit = stages.worker.memory_limit
        folder = worker.scratch / record.FOLDER
        bundle.write(folder, content, binaries)
        message = {"bundle": str(folder), "precision": dict(stages.task.precision)}
        try:
            worker.build(message, stages.context.left(DEADLINES.build))
        except WorkerFailure as failure:
            raise Unsealable(f"its bundle cannot be loaded ({_first_line(failure)})") from failure
        yield worker
    finally:
        worker.close()


def require_right(stages: Stages, replayer: Worker, case: Case) -> None:
    """Raises Unsealable if the replay of a case is wrong."""
    layout = lay_out(case.args)
    try:
        replayer.write(0, layout, case.args)
        call = replayer.call(layout, (0,), stages.context.left(stages.call_deadline(case)), poison=True)
        mismatch = metadata([(o.shape, o.dtype) for o in call.outputs], [r.native for r in case.references])
        if mismatch is not None:
            raise Unsealable(f"its replay gives something else ({mismatch.message})")
        if any(replayer.trespassed(output) for output in call.outputs):
            raise Unsealable("its replay writes outside its output")
        outputs = [replayer.read(output) for output in call.outputs]
    except WorkerFailure as failure:
        raise Unsealable(f"its replay fails ({_first_line(failure)})") from failure
    wrong = stages.comparison.first_wrong(case, outputs, counted=False)
    if wrong is not None:
        message = wrong.mismatch.message
        raise Unsealable(f"its replay is wrong: something that was not recorded takes part ({message})")


def _timed(stages: Stages, replayer: Worker, case: Case) -> Result:
    """Time replay, candidate and eager in one run, on the same contents, with the replay's outputs checked."""
    from kernellab.verifier.cuda.timed import Inconsistent
    from kernellab.verifier.cuda.timed import measure as on_device
    from kernellab.verifier.timing.sides import BaselineFailed, Side, WrongWhenTimed
    from kernellab.verifier.timing.timed import measure as on_host

    v = stages.context
    measure = on_device if v.request.backend is Backend.CUDA else on_host
    eager = [
        Side(name, v.pool.baseline(
            stages.source.dsl, v.request.backend, name, stages.task, stages.threads, v.left(DEADLINES.build), number
        ))
        for name, number in numbered(["eager"])
    ]  # fmt: skip
    try:
        with turns.alone() as waited, v.pool.quiet():
            v.wait(waited)
            return measure(
                stages.task, case.args, Side("sealed", replayer), [*eager, Side("called", stages.worker)],
                stages.comparison, budget=v.left(v.options.budget), deadline=stages.call_deadline(case),
            )  # fmt: skip
    except WrongWhenTimed as wrong:
        raise Unsealable(f"its replay is wrong in a timed call ({wrong})") from wrong
    except Inconsistent as clocks:
        raise Unsealable(f"the times of its replay are implausible ({clocks})") from clocks
    except BaselineFailed as failed:
        raise Unsealable(f"it could not be timed next to its replay ({failed})") from failed
    except WorkerFailure as failure:
        raise Unsealable(f"its replay fails when timed ({_first_line(failure)})") from failure


def _steps(content: Bundle, replayer: Worker) -> list[ReplayStep]:
    """The steps in words, with the properties of each kernel that the replayer reported when it loaded it."""
    loaded: list[dict[str, Any]] = json.loads((replayer.scratch / inside.LOADED).read_text())
    facts = iter(loaded)
    return [
        ReplayStep(name=step.name, grid=step.grid, block=step.block, shared=step.shared, **next(facts, {}))
        if isinstance(step, Launch)
        else ReplayStep(name=getattr(step, "name", step.kind))
        for step in content.steps
    ]


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def _first_line(failure: WorkerFailure) -> str:
    return next((line for line in failure.message.strip().splitlines() if line.strip()), failure.kind)[:200].rstrip(".")
