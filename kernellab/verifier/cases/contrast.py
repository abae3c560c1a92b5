"""At which public sizes a failing candidate is right, by running it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kernellab.records.tried import Tried
from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes, runs_at
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.judge.process_stats import crowding
from kernellab.verifier.protocol.rules import CORRECT

#: Sizes at which a failing kernel is tried: single elements, whole tiles and their neighbours.
PROBES = (1, 2, 8, 15, 16, 29, 32, 33, 64, 65)
#: Seconds to spend on small sizes after a wrong answer, and then on the size from which it is wrong.
SMALL_SECONDS, LIMIT_SECONDS = 2.0, 4.0


@dataclass
class _Trials:
    task: Task
    is_right: Callable[[Case], bool]
    tried: list[Tried] = field(default_factory=list)

    def run(self, case: Case) -> bool:
        right = self.is_right(case)
        self.tried.append(Tried(sizes=dict(case.sizes), family=case.family.value, right=right))
        return right


def contrast(task: Task, failing: Case, is_right: Callable[[Case], bool], end: float) -> list[Tried]:
    """Run public cases until a time limit, ``end`` at most (in seconds of :func:`time.monotonic`).

    Small sizes come first. If a case of the task's own inputs fails and all smaller ones are right, the size from which
    it is wrong follows, unless the nearest whole tiles are right: then the last tile is the cause, not the size. The
    nearest whole tiles are also run if all smaller ones fail, since a kernel may store whole tiles alone. On a busy
    machine the time limits grow.
    """
    trials = _Trials(task, is_right)
    until = min(time.monotonic() + SMALL_SECONDS * crowding(), end)
    for case in probes(task, failing) if task.dims else ():
        if time.monotonic() > until:
            break
        trials.run(case)
    is_own = failing.family is Family.OWN and not failing.change and not failing.held
    right = {one.right for one in trials.tried}
    if is_own and len(right) == 1:
        near = whole_near(task, failing)
        is_known = near is not None and dict(near.sizes) in [one.sizes for one in trials.tried]
        is_right_near = near is not None and (right == {True} if is_known else trials.run(near))
        if right == {True} and not is_right_near:
            _halve(trials, dict(failing.sizes), min(time.monotonic() + LIMIT_SECONDS * crowding(), end))
    return trials.tried


def _halve(trials: _Trials, wrong: dict[str, int], end: float) -> None:
    """Run sizes between the largest right ones and the ``wrong`` ones, halving what lies between along the Dim that
    decides."""
    below = [t.sizes for t in trials.tried if t.right and all(n <= wrong[name] for name, n in t.sizes.items())]
    if not below:
        return
    sizes = max(below, key=lambda one: sum(one.values()))
    for name, size in wrong.items():
        if sizes[name] == size:
            continue
        raised = {**sizes, name: size}
        if raised != wrong and _runs(trials, raised, end) is not False:
            sizes = raised
            continue
        low, high = sizes[name], size
        while high - low > 1:
            middle = (low + high) // 2
            right = _runs(trials, {**sizes, name: middle}, end)
            if right is None:
                return
            low, high = (middle, high) if right else (low, middle)
        return


def _runs(trials: _Trials, sizes: dict[str, int], end: float) -> bool | None:
    """Whether it is right at ``sizes``; None if the time is up or the reference does not run there."""
    if time.monotonic() > end or not runs_at(trials.task, tuple(sizes.items())):
        return None
    return trials.run(cases.case(trials.task, sizes, Family.OWN))


def whole_near(task: Task, failing: Case, limit_bytes: int = CORRECT.family_bytes) -> Case | None:
    """Return the failing case at its nearest multiples of 64 (rounded up if the range allows), or None."""
    sizes = dict(failing.sizes)
    for dim in task.dims:
        up = -(-sizes[dim.name] // 64) * 64
        sizes[dim.name] = up if up <= dim.max else max(up - 64, dim.min)
    fits = input_bytes(task, sizes) <= limit_bytes and runs_at(task, tuple(sizes.items()))
    return cases.case(task, sizes, Family.OWN) if fits and tuple(sizes.items()) != failing.sizes else None


def probes(task: Task, failing: Case) -> Iterator[Case]:
    """Yield small cases that locate a failure: all Dims at one size, then each Dim next to a multiple of 64 while the
    others are whole. If the failing family is not the task's own, the failing sizes come first, with the own family."""
    if failing.family is not Family.OWN:
        yield cases.case(task, dict(failing.sizes), Family.OWN)
    visited: set[tuple[tuple[str, int], ...]] = {failing.sizes}
    tile_sizes = {d.name: min(max(64, d.min), d.max) for d in task.dims}
    equal_sizes = [{d.name: min(max(n, d.min), d.max) for d in task.dims} for n in PROBES]
    single_dim = [tile_sizes | {d.name: min(max(33, d.min), d.max)} for d in task.dims] if len(task.dims) > 1 else []
    for sizes in (*equal_sizes, *single_dim):
        key = tuple(sizes.items())
        if key not in visited and input_bytes(task, sizes) <= CORRECT.family_bytes and runs_at(task, key):
            visited.add(key)
            yield cases.case(task, sizes, Family.OWN)
