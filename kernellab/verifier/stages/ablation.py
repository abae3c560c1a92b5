"""The judge's side of the ghost test: without the candidate's own kernels, its results must be wrong.

The worker skips launches (:mod:`kernellab.verifier.worker.ghost`); the results are compared here. Runs that skip all
kernels and runs with the same wrappers that skip none come in a random order. The latter must be right, so code that
returns garbage when it detects the wrappers is refused.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from kernellab.conditions import CachedResult, IdleKernel, Mark, cached_result
from kernellab.errors import TaskError, counted
from kernellab.target import Backend
from kernellab.task import ArgKind
from kernellab.task.sample.inputs import Family, families
from kernellab.verifier.cases import cases, selection
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


#: Failures caused by a limit of the judge, which do not show why so much was used.
_OF_LIMITS = frozenset(("hang", "processor", "memory", "disk", "processes", "printed"))


class GhostRuns(NamedTuple):
    """What runs without the candidate's kernels show: the names of its ``launches``, and whether the result
    ``depends`` on them."""

    launches: list[str]
    depends: bool


def ghost_test(stages: Stages) -> str:
    """Refuse if none of the candidate's kernels matters, label single idle kernels, and return the stage's note.

    If no launch is seen, nothing is known: this is a flag, or for Triton, whose launches are always seen, a refusal.
    ``allow_library`` turns refusals into labels. On a device, launches may have been recorded once and then replayed as
    a CUDA graph; fresh processes are then tested, which record without the kernels.
    """
    case = normal_case(stages)
    runs = _ghost_runs(stages, case)
    is_on_device = stages.context.request.backend is Backend.CUDA
    if not runs.launches and is_on_device and not stages.context.options.allow_library:
        runs = _recorded(stages, case)
        stages.replays = runs.launches
    if not runs.launches:
        return _unseen(stages, case)
    if not runs.depends:
        names = ", ".join(runs.launches[:4])
        message = f"the result is right without the kernels that it launches ({names}): they do not compute it"
        if not stages.context.options.allow_library:
            raise _refused(stages, case, message)
        stages.context.findings.add(Mark(kind="ghost"))
        return message
    idle = _idle(stages, case, runs.launches)
    kernels = counted(len(runs.launches), "own kernel") + (" recorded in a graph" if stages.replays else "")
    return f"{kernels}, the result is wrong without" + (f", {', '.join(idle)} idle" if idle else "")


def _ghost_runs(stages: Stages, case: Case) -> GhostRuns:
    """Run the candidate with all of its kernels, watched, and without them, in a random order.

    Quiet calls resemble timed ones: nothing poisons memory, so code sees no difference. Each run without kernels has
    new contents, because an earlier call's result may be in the new one's memory, and weights that are packed once for
    their digest stay packed.
    """
    modes = (False,) if stages.context.interpreted else (False, True)
    runs = [(is_watched, quiet) for is_watched in (True, False) for quiet in modes]
    random.SystemRandom().shuffle(runs)
    launches: dict[str, None] = {}
    depends = True
    for is_watched, quiet in runs:
        if is_watched:
            launches |= dict.fromkeys(_watched(stages, case, quiet))
            continue
        new_case = replace(cases.case(stages.task, dict(case.sizes), case.family), double=False)
        right, seen = _run(stages, new_case, [ALL], quiet)
        launches |= dict.fromkeys(seen)
        # Fresh memory holds zeros or an earlier call's answer. If that would also be right, only poisoned memory
        # decides.
        says_nothing = quiet and right and (_constant(new_case) or _alike(stages, case, new_case))
        depends = depends and (not right or says_nothing)
    return GhostRuns(list(launches), depends)


def _idle(stages: Stages, case: Case, launches: Sequence[str]) -> list[str]:
    """Return the kernels without which the result is right, and add their conditions.

    Raises:
        Refused: One of them is needed for new inputs only, so that its result is cached.
    """
    if len(launches) < 2 or stages.replays:
        return []
    idle = [name for name in launches[: HONEST.max_ghosts] if _run(stages, case, [name])[0]]
    for name in idle:
        if _caches(stages, case, name):
            if not stages.context.options.allow_library:
                raise _refused(stages, case, cached_result(name), "cache")
            stages.context.findings.add(CachedResult(kernel=name))
    stages.context.findings.add(*(IdleKernel(kernel=name) for name in idle))
    return idle


def _caches(stages: Stages, case: Case, name: str) -> bool:
    """Return whether a launch that was idle for the contents of ``case`` is needed when any single argument is new.

    Data cached from one argument only (weights packed for their digest) is needed only for new contents of that
    argument, and is not a result. Arguments that do not affect the answer are skipped.
    """
    tested = 0
    for position in _changing(stages, case):
        new = _with_new(stages, case, position)
        if new is None or _alike(stages, case, new):
            continue
        tested += 1
        # The answer is right with the launch, wrong without it, and right without it once it has run.
        without = _with_new(stages, case, position)
        if without is None or _run(stages, without, [name], quiet=True)[0]:
            return False
        if not _run(stages, new, [], quiet=True)[0] or not _run(stages, new, [name], quiet=True)[0]:
            return False
    return tested > 0


def _changing(stages: Stages, case: Case) -> list[int]:
    args = zip(stages.task.args, case.args, strict=True)
    return [i for i, (spec, a) in enumerate(args) if isinstance(a, torch.Tensor) and a.numel() and not _is_kept(spec)]


def _is_kept(spec: Arg) -> bool:
    return spec.static or spec.kind in (ArgKind.PARAMETER, ArgKind.BUFFER)


def _with_new(stages: Stages, case: Case, position: int) -> Case | None:
    """Return the case with new contents of one argument, or None if the reference does not accept them."""
    new_draw = replace(cases.case(stages.task, dict(case.sizes), case.family), double=False)
    kept_args = tuple(None if i == position else a for i, a in enumerate(case.args))
    new = replace(new_draw, held=kept_args)
    try:
        _ = new.references
    except TaskError:
        return None
    return new


def _constant(case: Case) -> bool:
    """Return whether the reference's outputs are constant."""
    return all(not r.native.numel() or bool((r.native == r.native.reshape(-1)[0]).all()) for r in case.references)


def _alike(stages: Stages, earlier: Case, now: Case) -> bool:
    """Return whether the answer to the ``earlier`` contents would be accepted for those of ``now``. A sum of very many
    terms hardly depends on them."""
    limits = stages.limits_for(now)
    pairs = zip(earlier.references, now.references, limits, strict=True)
    return all(r.native.shape == n.native.shape and compare(r.native, n, limit)[0] is None for r, n, limit in pairs)


def _recorded(stages: Stages, case: Case) -> GhostRuns:
    """Return what the first calls of two processes show, without launches and with all of them. The remaining process
    has recorded with all of them."""
    stages.restart()
    right, without = _run(stages, case, [ALL], quiet=True, first=True)
    if not without:
        return GhostRuns([], True)
    stages.restart()
    launched = _watched(stages, case, quiet=True, first=True)
    return GhostRuns(list(dict.fromkeys([*without, *launched])), not right)


def _watched(stages: Stages, case: Case, quiet: bool, first: bool = False) -> list[str]:
    """Return the launches of a run that skips none, whose result must be right. A failure that also occurs without the
    wrappers is refused as such. The wrappers are blamed only if the result changes with them, twice."""
    for last in (False, True):
        right, launched = _run(stages, case, [], quiet, first)
        if right:
            return launched
        if not last:
            stages.outputs(case, "honest", stages.context.left(DEADLINES.smoke * stages.slower))  # this may compile
            stages.check(case)
            if first:
                stages.restart()
    raise _refused(stages, case, "the result is right, and wrong or missing as soon as its launches are intercepted")


def normal_case(stages: Stages) -> Case:
    """Return the stage's case of random normal inputs if legal, small if the shapes allow; drawn once."""
    if stages.normal is None:
        stages.normal = _normal_case(stages)
    return stages.normal


def _normal_case(stages: Stages) -> Case:
    family = Family.NORMAL if Family.NORMAL in families(stages.task) else Family.OWN
    interpreted = stages.context.interpreted
    base = selection.smoke_case(stages.task, True) if interpreted else selection.small_case(stages.task)
    return cases.case(stages.task, dict(base.sizes), family)


def _run(
    stages: Stages, case: Case, off: list[str], quiet: bool = False, first: bool = False
) -> tuple[bool, list[str]]:
    """Return whether the result is right without the launches in ``off``, and the launches seen. The ``first`` call of
    a process may compile."""
    launched: list[str] = []
    right = False
    try:
        stages.worker.ghost(off, stages.context.left(HONEST.ghost_seconds))
        right = _right(stages, case, quiet, DEADLINES.smoke if first else None)
        launched = stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))
    except WorkerFailure as failure:
        if not off and failure.kind in _OF_LIMITS:
            raise stages.failed("honest", failure, case) from failure
    if not stages.restart_ended() and not launched:
        # The call raised in the middle, so the wrappers must be removed.
        launched = stages.worker.ghost(None, stages.context.left(HONEST.ghost_seconds))
    return right, launched


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
        # Skip a further float64 run for results that are far off.
        near = mismatch.rule in NUMERIC and not error > HONEST.no_digit_error
        if not near or compare(got, case.nudged[i], limits)[0] is not None:
            return False
    return True


def _unseen(stages: Stages, case: Case) -> str:
    if stages.source.dsl == "triton" and not stages.context.options.allow_library:
        raise _refused(stages, case, "no kernel of the source is launched for these inputs")
    stages.context.findings.add(Mark(kind="launches-not-seen"))
    return "no launch of an own kernel could be seen"


def _refused(stages: Stages, case: Case, message: str, name: str = "ghost") -> Refused:
    report = evidence.of_mismatch(stages.source, case, 0, None, None, Mismatch(name, message), name=name)
    return Refused(f"{message[:1].upper()}{message[1:]} ({case.words}).", report)
