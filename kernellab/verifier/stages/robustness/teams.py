"""Teams of other sizes: one thread, more threads than cores, and many threads on two long rows, which all share.

With several threads, random delays are inserted where they access memory that torch allocates: a non-atomic update is
then lost, however short its window.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kernellab.errors import counted
from kernellab.sandbox.sandbox import most_threads
from kernellab.task.sample.draw import Family
from kernellab.task.sample.sizes import runs_at
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.selection import all_long
from kernellab.verifier.protocol.rules import CORRECT, HONEST
from kernellab.verifier.stages import evidence
from kernellab.verifier.stages.refused import Refused

if TYPE_CHECKING:
    from kernellab.task.dims import Dim
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.stages.candidate import Stages

#: Seconds in which a worker changes its number of threads.
_TEAM_SECONDS = 10.0


class Team(NamedTuple):
    """One call: its number of threads, its case, and whether delays are inserted."""

    threads: int
    case: Case
    delays: bool = False


def check_teams(stages: Stages, base: Case) -> None:
    """Check the kernel with each of the teams, on ``base`` or on sizes derived from it. Raises Refused."""
    fenced_at_most = _large_team()
    for team in _teams(stages, base):
        stages.worker.team(team.threads, stages.context.left(_TEAM_SECONDS))
        try:
            stages.check(replace(team.case, seed=team.case.seed), op="slowly" if team.delays else "call")
        except Refused as refused:
            report = evidence.as_race(refused.evidence)
            words = counted(team.threads, "thread")
            words += ", and fences around what it allocates" if 1 < team.threads <= fenced_at_most else ""
            raise Refused(f"With {words}: {refused.reason}", report) from refused
        finally:
            if not stages.worker.gone():
                stages.worker.team(stages.threads, stages.context.left(_TEAM_SECONDS))


def _teams(stages: Stages, base: Case) -> Iterator[Team]:
    cores, large = len(os.sched_getaffinity(0)), _large_team()
    two_rows = cases.case(stages.task, _with_two_rows(stages, base), Family.OWN)
    ragged = _ragged(stages, base)
    # teams may begin at a number of elements alone
    longest = all_long(stages.task, HONEST.reread_bytes) or two_rows
    yield Team(1, base)
    # Neither the longest case nor a ragged one has delays.
    yield Team(cores + 3, base, delays=base is not ragged)
    yield Team(large, two_rows, delays=two_rows is not longest)
    for number in _named_sizes(stages, large):
        yield Team(number + 1, two_rows)
    yield Team(large, longest)
    yield Team(4, longest)
    for threads in (4, 8, secrets.choice((2, 16))):
        yield Team(threads, ragged)


def _large_team() -> int:
    """Return the number of threads of a large team: more than any buffer for one thread a core has room for."""
    return max(CORRECT.large_team, len(os.sched_getaffinity(0)) + 3)


def _named_sizes(stages: Stages, large: int) -> list[int]:
    """Return the smallest and the largest number of the source that may be a number of threads: a buffer for so many
    fails with one more."""
    # torch and the kernel may each have an OpenMP runtime.
    most = min(CORRECT.max_team, most_threads() // 2 - 4)
    numbers = sorted(n for n in stages.ahead.numbers if large <= n <= most)
    return list(dict.fromkeys([*numbers[:1], *numbers[-1:]][: CORRECT.team_literals]))


def _with_two_rows(stages: Stages, base: Case) -> dict[str, int]:
    """Return the sizes of ``base`` with a first Dim of 2, where the task accepts them."""
    sizes = dict(base.sizes)
    if len(sizes) < 2:
        return sizes
    wanted = {**sizes, next(iter(sizes)): 2}
    two_rows = {d.name: max(d.min, min(d.max, wanted[d.name])) for d in stages.task.dims}
    return two_rows if runs_at(stages.task, tuple(two_rows.items())) else sizes


def _ragged(stages: Stages, base: Case) -> Case:
    """Return a case with odd sizes next to those of ``base``; ``base`` itself where the task refuses them."""
    sizes = dict(base.sizes)
    odd = {dim.name: odd_size(sizes[dim.name], dim) for dim in stages.task.dims}
    accepted = odd and runs_at(stages.task, tuple(odd.items()))
    return cases.case(stages.task, odd, Family.OWN) if accepted else base


def odd_size(size: int, dim: Dim) -> int:
    """Return an odd size next to ``size`` within the range of ``dim``, or ``size`` if there is none."""
    return next((n for n in (size, size - 1, size + 1) if n % 2 and dim.min <= n <= dim.max), size)
