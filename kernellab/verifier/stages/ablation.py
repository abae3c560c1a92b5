"""The ghost test, the judge's side: without the candidate's own kernels its results must be wrong.

The worker leaves launches out (:mod:`kernellab.verifier.worker.ghost`); what comes out is compared here. Runs with all
kernels left out and runs with the same wrappers and nothing left out come in a random order, and the latter must be
right: code that answers with rubbish as soon as it sees itself watched is refused for that.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from kernellab.conditions import CachedResult, IdleKernel, Mark, cached_result
from kernellab.errors import TaskError
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.sample.inputs import Family, families
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.compare.compare import NUMERIC, Mismatch, compare, metadata
from kernellab.verifier.compare.fast_accept import beyond_doubt
from kernellab.verifier.judge.process import WorkerFailure
from kernellab.verifier.protocol.rules import DEADLINES, HONEST
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused
from kernellab.verifier.worker.ghost import ALL

if TYPE_CHECKING:
    from kernellab.task.task import Arg
    from kernellab.verifier.stages.candidate import Stages


#: what a limit of the judge ended says nothing of why it took so much
_OF_LIMITS = frozenset(("hang", "processor", "memory", "disk", "processes", "printed"))


def ghost_test(stages: Stages) -> str:
    """Refused when none of the candidate's kernels matters; a single idle one is a label. The note of the stage.

    Where no launch is seen at all nothing can be said: a flag, and for Triton, whose launches are always seen, a
    refusal. ``allow_library`` turns refusals into labels. On a device, launches may have been recorded once and be
    replayed since as a CUDA graph; then the same is asked of fresh processes, which record without them.
    """
    case = normal_case(stages)
    # the quiet ones are calls like those that are timed, where nothing poisons memory and code sees no difference.
    # Without kernels all get new contents: the result of an earlier call may lie where the new one is put, and weights
    # that are packed once for their digest stay for it as they were left
    modes = (False,) if stages.context.interpreted else (False, True)
    runs = [(run, quiet) for run in ("watched", "without") for quiet in modes]
    random.SystemRandom().shuffle(runs)
    seen: list[str] = []
    matters = True
    for run, quiet in runs:
        if run == "watched":
            seen = list(dict.fromkeys([*seen, *_watched(stages, case, quiet)]))
            continue
        tried = replace(cases.case(stages.task, dict(case.sizes), case.family), double=False)
        right, names = _run(stages, tried, [ALL], quiet)
        seen = list(dict.fromkeys([*seen, *names]))
        # fresh memory holds zeros, or an earlier call's answer: where that would be right too, only poisoned memory
        # tells
        matters = matters and not (right and not (quiet and (_constant(tried) or _alike(stages, case, tried))))
    if not seen and stages.context.request.backend is Backend.CUDA and not stages.context.options.allow_library:
        seen, matters = _recorded(stages, case)
        stages.replays = seen
    if not seen:
        return _unseen(stages, case)
    if not matters:
        shown = ", ".join(seen[:4])
        message = f"the result is right without the kernels that it launches ({shown}): they do not compute it"
        if not stages.context.options.allow_library:
            raise _refused(stages, case, message)
        stages.context.findings.add(Mark(kind="ghost"))
        return message
    several = len(seen) > 1 and not stages.replays
    idle = [name for name in seen[: HONEST.ghosts] if several and _run(stages, case, [name])[0]]
    for name in idle:
        if _caches(stages, case, name):
            if not stages.context.options.allow_library:
                raise _refused(stages, case, cached_result(name), "cache")
            stages.context.findings.add(CachedResult(kernel=name))
    stages.context.findings.add(*(IdleKernel(kernel=name) for name in idle))
    return (
        f"{len(seen)} own kernel{'s' if len(seen) > 1 else ''}{' recorded in a graph' if stages.replays else ''}, "
        "the result is wrong without" + (f", {', '.join(idle)} idle" if idle else "")
    )


def _caches(stages: Stages, case: Case, name: str) -> bool:
    """Is a launch that was idle on the contents of ``case`` needed as soon as any one argument is new, whichever?

    What is kept of one argument alone (weights packed once for a digest of theirs) is needed for new contents of that
    one only, and is no result. Arguments on which the answer does not depend say nothing.
    """
    asked = 0
    for position in _changing(stages, case):
        new = _with_new(stages, case, position)
        if new is None or _alike(stages, case, new):
            continue
        asked += 1
        # the answer is right with the launch, wrong without it, and right without it once it has been seen
        without = _with_new(stages, case, position)
        if without is None or _run(stages, without, [name], quiet=True)[0]:
            return False
        if not _run(stages, new, [], quiet=True)[0] or not _run(stages, new, [name], quiet=True)[0]:
            return False
    return asked > 0


def _changing(stages: Stages, case: Case) -> list[int]:
    args = zip(stages.task.args, case.args, strict=True)
    return [i for i, (spec, a) in enumerate(args) if isinstance(a, torch.Tensor) and a.numel() and not _is_kept(spec)]


def _is_kept(spec: Arg) -> bool:
    return spec.static or spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)


def _with_new(stages: Stages, case: Case, position: int) -> Case | None:
    """The case with new contents of one argument; None where the reference does not take them."""
    drawn = replace(cases.case(stages.task, dict(case.sizes), case.family), double=False)
    held = tuple(None if i == position else a for i, a in enumerate(case.args))
    new = replace(drawn, held=held)
    try:
        _ = new.references
    except TaskError:
        return None
    return new


def _constant(case: Case) -> bool:
    """Does the reference give one value throughout?"""
    return all(not r.native.numel() or bool((r.native == r.native.reshape(-1)[0]).all()) for r in case.references)


def _alike(stages: Stages, earlier: Case, now: Case) -> bool:
    """Would the answer to the ``earlier`` contents be taken for the answer to those of ``now``? A sum of very many
    terms hardly depends on what they are."""
    limits = stages.limits_for(now)
    pairs = zip(earlier.references, now.references, limits, strict=True)
    return all(r.native.shape == n.native.shape and compare(r.native, n, limit)[0] is None for r, n, limit in pairs)


def _recorded(stages: Stages, case: Case) -> tuple[list[str], bool]:
    """The names of launches that the first call of a process makes, and does the result rest on them? The process that
    is left has recorded with all of them."""
    stages.restart()
    right, without = _run(stages, case, [ALL], quiet=True, first=True)
    if not without:
        return [], True
    stages.restart()
    seen = _watched(stages, case, quiet=True, first=True)
    return list(dict.fromkeys([*without, *seen])), not right


def _watched(stages: Stages, case: Case, quiet: bool, first: bool = False) -> list[str]:
    """The names of the launches of a run that leaves none out, which must be right. What fails or is wrong without the
    wrappers, too, is refused for that: the watching is blamed only where the result changes with it, and does again."""
    for last in (False, True):
        right, seen = _run(stages, case, [], quiet, first)
        if right:
            return seen
        if not last:
            stages.outputs(case, "honest", stages.context.left(DEADLINES.smoke * stages.slower))  # may compile
            stages.check(case)
            if first:
                stages.restart()
    raise _refused(stages, case, "the result is right, and wrong or missing as soon as its launches are intercepted")


def normal_case(stages: Stages) -> Case:
    """The stage's case of random normal inputs where they are legal, small where the shapes allow; drawn once."""
    if stages.normal is None:
        stages.normal = _normal_case(stages)
    return stages.normal


def _normal_case(stages: Stages) -> Case:
    family = Family.NORMAL if Family.NORMAL in families(stages.task) else Family.OWN
    interpreted = stages.context.interpreted
    base = cases.smoke_case(stages.task, True) if interpreted else cases.small_case(stages.task)
    return cases.case(stages.task, dict(base.sizes), family)


def _run(
    stages: Stages, case: Case, off: list[str], quiet: bool = False, first: bool = False
) -> tuple[bool, list[str]]:
    """Is the result right with the launches in ``off`` left out, and which launches were seen? The ``first`` call of a
    process may compile."""
    seen: list[str] = []
    right = False
    try:
        stages.worker.ghost(off, stages.context.left(HONEST.ghost_seconds))
        right = _right(stages, case, quiet, DEADLINES.smoke if first else None)
        seen = stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))
    except WorkerFailure as failure:
        if not off and failure.kind in _OF_LIMITS:
            raise stages.failed("honest", failure, case) from failure
    if not stages.restart_ended() and not seen:
        # it raised in the middle: what was armed must be taken away
        seen = stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))
    return right, seen


def _right(stages: Stages, case: Case, quiet: bool, seconds: float | None) -> bool:
    try:
        call = stages.call(case, seconds, poison=not quiet)
    except WorkerFailure as failure:
        if failure.kind in ("exception", "output"):
            return False
        raise
    if metadata([(o.shape, o.dtype) for o in call.outputs], case.native):
        return False
    for i, (output, limits) in enumerate(zip(call.outputs, stages.limits_for(case), strict=True)):
        got = stages.worker.read(output)
        if beyond_doubt(got, case.native[i], limits) is not None:
            continue
        mismatch, error = compare(got, case.references[i], limits)
        if mismatch is None:
            continue
        # another run in float64 is not asked about what is nowhere near
        near = mismatch.rule in NUMERIC and not error > HONEST.nowhere
        if not near or compare(got, case.nudged[i], limits)[0] is not None:
            return False
    return True


def _unseen(stages: Stages, case: Case) -> str:
    if stages.source.dsl == "triton" and not stages.context.options.allow_library:
        raise _refused(stages, case, "no kernel of the source is launched for these inputs")
    stages.context.findings.add(Mark(kind="launches-not-seen"))
    return "no launch of an own kernel could be seen"


def _refused(stages: Stages, case: Case, message: str, name: str = "ghost") -> Refused:
    found = evidence.of_mismatch(stages.source, case, 0, None, None, Mismatch(name, message), name=name)
    return Refused(f"{message[:1].upper()}{message[1:]} ({case.words}).", found)
