"""Times a session's best kernel against more baselines in the background, without changing the tree of turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import SessionError
from kernellab.records import Verdict
from kernellab.session.compare import MOST_PAIRED, passed_source
from kernellab.session.engine.engine import Engine
from kernellab.session.record.events import Compared, Event, Paired
from kernellab.session.record.records import SessionStatus
from kernellab.session.record.state import State
from kernellab.session.turn.context import Bench
from kernellab.session.turn.sweeping import at_sizes, check_sizes
from kernellab.session.turn.verifying import compare

log = logging.getLogger("kernellab.session")

Told = Callable[["Verdict | BaseException"], None]


@dataclass(frozen=True)
class Timed:
    """One measurement: the kernels of ``turns`` (ids) next to each other and to ``baselines``."""

    turns: tuple[str, ...]
    baselines: tuple[str, ...]


class Comparing:
    """Runs one comparison at a time, on the engine thread. ``write`` appends events to the journal; ``rested`` is
    called when one ends."""

    def __init__(
        self, engine: Engine, bench: Bench, write: Callable[[Event], None], rested: Callable[[], None]
    ) -> None:
        self._engine, self._bench = engine, bench
        self._write, self._rested = write, rested
        #: Whether to also time a finished session's best against torch.compile in the background.
        self.wanted = False
        self._measuring: asyncio.Future[None] | None = None
        #: What is being timed; None at rest.
        self.timed: Timed | None = None
        #: Turns whose comparison was started here, so that a failing one is tried only once.
        self._begun: set[str] = set()

    @property
    def runs(self) -> bool:
        return self._measuring is not None

    def begin(self, state: State, baselines: tuple[str, ...], done: Told) -> None:
        """Time the best candidate against ``baselines`` in one run; ``done`` receives the verdict or the error.

        Raises:
            SessionError: no kernel has passed yet.
        """
        best = state.best()
        if best is None:
            raise SessionError("No candidate has passed yet.", "Wait for one, or see why with the last verdict.")
        source, turn = best.candidate.source, best.turn.id
        self._measure(
            lambda: compare(self._bench, source, baselines),
            lambda verdict: _event(turn, verdict),
            done,
            Timed((turn,), baselines),
        )

    def begin_paired(self, state: State, turns: Sequence[str], sizes: Mapping[str, int], done: Told) -> None:
        """Time the kernels of two to eight turns in one run, with calls in turns; at other ``sizes`` of the task's
        Dims, if given.

        Raises:
            SessionError: a measurement is running, there are too few or too many kernels, one has not passed, or the
            task
                has no such sizes.
        """
        if self.runs:
            raise SessionError("Kernels are being timed already.", "Wait until that is done.")
        sources = {turn: passed_source(state, turn) for turn in turns}
        if not 2 <= len({source.hash for source in sources.values()}) <= MOST_PAIRED:
            raise SessionError(
                f"{len(sources)} kernels cannot be timed in one run.", f"Choose 2 to {MOST_PAIRED} different ones."
            )
        task = self._bench.task()
        default_sizes = task.module().default_sizes()
        changed_sizes = {name: size for name, size in sizes.items() if size != default_sizes.get(name)}
        if changed_sizes:
            check_sizes(task, changed_sizes)
        first, *rest = turns
        rivals = {f"turn {state.turns[turn].number}": sources[turn] for turn in rest}

        def event(verdict: Verdict) -> Event:
            figures = {c.baseline: c for c in verdict.comparisons}
            if untimed := [name for name in rivals if name not in figures]:
                raise SessionError(
                    f"The kernel of {untimed[0]} could not be timed.", "Verify it again, or leave it out."
                )
            ratios = tuple(figures[name] for name in rivals)
            return Paired(turns=tuple(turns), comparisons=ratios, sizes=changed_sizes, conditions=verdict.conditions)

        def work() -> Verdict:  # to read the task at other sizes may run its reference
            return compare(
                self._bench,
                sources[first],
                ("eager",),
                rivals,
                at_sizes(task, changed_sizes) if changed_sizes else task,
            )

        self._measure(work, event, done, Timed(tuple(turns), ("eager",)))

    def _measure(
        self, work: Callable[[], Verdict], event: Callable[[Verdict], Event], done: Told, timed: Timed
    ) -> None:
        async def measure() -> None:
            try:
                verdict = await self._engine.in_thread(work)
                # a kernel that no longer passes is reported by its own turn; a comparison does not judge
                if verdict.passed and verdict.time is not None:
                    self._write(event(verdict))
                done(verdict)
            except BaseException as error:
                done(error)
            finally:
                self._measuring = self.timed = None
                self._rested()

        self.timed = timed
        self._measuring = asyncio.ensure_future(measure())

    def begin_if_due(self, state: State) -> None:
        """Time the best of a finished session against torch.compile, if it has a time but not that one."""
        best = state.best()
        if not (self.wanted and state.status is SessionStatus.FINISHED and best is not None and not self.runs):
            return
        if best.verdict.against("eager") and not best.verdict.against("compile") and best.turn.id not in self._begun:
            self._begun.add(best.turn.id)
            self.begin(state, ("eager", "compile"), self._tell)

    def _tell(self, result: Verdict | BaseException) -> None:
        if isinstance(result, Exception) and not self._engine.closing:
            log.warning("the comparison failed: %s", result)


def _event(turn: str, verdict: Verdict) -> Compared:
    assert verdict.time is not None
    return Compared(
        turn=turn,
        timing=verdict.time,
        comparisons=tuple(verdict.comparisons),
        reason=verdict.reason,
        conditions=verdict.conditions,
    )


def drop(finishing: asyncio.Future[Any]) -> None:
    """Handle background work: log its failure."""
    if not finishing.cancelled() and finishing.exception() is not None:
        log.warning("work in the background failed: %s", finishing.exception())
