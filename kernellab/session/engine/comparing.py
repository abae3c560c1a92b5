"""Times a session's best kernel against more baselines in the background, without changing the tree of turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from kernellab.task import Task

log = logging.getLogger("kernellab.session")

#: Receives a measurement's verdict, or the error that ended it, once.
Report = Callable[["Verdict | BaseException"], None]


@dataclass(frozen=True)
class Measurement:
    """The kernels of ``turns`` (ids) are timed next to each other and to ``baselines``."""

    turns: tuple[str, ...]
    baselines: tuple[str, ...]


class Comparing:
    """Runs one comparison at a time, on the engine thread. ``write`` appends events to the journal; ``on_end`` is
    called when a comparison ends."""

    def __init__(
        self, engine: Engine, bench: Bench, write: Callable[[Event], None], on_end: Callable[[], None]
    ) -> None:
        self._engine, self._bench = engine, bench
        self._write, self._on_end = write, on_end
        self._compares_when_finished = False
        self._task: asyncio.Future[None] | None = None
        #: What is being timed; None at rest.
        self.current: Measurement | None = None
        #: Turns whose comparison was started here, so that a failing one is tried only once.
        self._tried: set[str] = set()

    @property
    def runs(self) -> bool:
        return self._task is not None

    def begin(self, state: State, baselines: tuple[str, ...], report: Report) -> None:
        """Time the best candidate against ``baselines`` in one run.

        Raises:
            SessionError: no kernel has passed yet.
        """
        best = state.best()
        if best is None:
            raise SessionError("No candidate has passed yet.", "Wait for one, or see why with the last verdict.")
        source, turn = best.candidate.source, best.turn.id
        self._measure(
            Measurement((turn,), baselines),
            lambda: compare(self._bench, source, baselines),
            lambda verdict: _compared(turn, verdict),
            report,
        )

    def begin_paired(self, state: State, turns: Sequence[str], sizes: Mapping[str, int], report: Report) -> None:
        """Time the kernels of two to eight turns in one run, with calls in turns; at other ``sizes`` of the task's
        Dims, if given.

        Raises:
            SessionError: a measurement is running, there are too few or too many kernels, one has not passed, or the
                task has no such sizes.
        """
        if self.runs:
            raise SessionError("Kernels are being timed already.", "Wait until that is done.")
        sources = {turn: passed_source(state, turn) for turn in turns}
        if not 2 <= len({source.hash for source in sources.values()}) <= MOST_PAIRED:
            raise SessionError(
                f"{len(sources)} kernels cannot be timed in one run.", f"Choose 2 to {MOST_PAIRED} different ones."
            )
        task = self._bench.task()
        changed_sizes = _changed_sizes(task, sizes)
        first, *rest = turns
        rivals = {f"turn {state.turns[turn].number}": sources[turn] for turn in rest}

        def work() -> Verdict:  # to read the task at other sizes may run its reference
            task_at_sizes = at_sizes(task, changed_sizes) if changed_sizes else task
            return compare(self._bench, sources[first], ("eager",), rivals, task_at_sizes)

        self._measure(
            Measurement(tuple(turns), ("eager",)),
            work,
            lambda verdict: _paired(turns, rivals, changed_sizes, verdict),
            report,
        )

    def _measure(
        self,
        measurement: Measurement,
        work: Callable[[], Verdict],
        event: Callable[[Verdict], Event],
        report: Report,
    ) -> None:
        """Do ``work`` in a thread; write the ``event`` of its verdict, and report."""

        async def measure() -> None:
            try:
                verdict = await self._engine.in_thread(work)
                # a kernel that no longer passes is reported by its own turn; a comparison does not judge
                if verdict.passed and verdict.time is not None:
                    self._write(event(verdict))
                report(verdict)
            except BaseException as error:
                report(error)
            finally:
                self._task = None
                self.current = None
                self._on_end()

        self.current = measurement
        self._task = asyncio.ensure_future(measure())

    def compare_when_finished(self, state: State) -> None:
        """From now on, time a finished session's best against torch.compile too, in the background."""
        self._compares_when_finished = True
        self.begin_if_due(state)

    def begin_if_due(self, state: State) -> None:
        """Time the best of a finished session against torch.compile, if it has a time but not that one."""
        best = state.best()
        if not self._compares_when_finished or self.runs:
            return
        if state.status is not SessionStatus.FINISHED or best is None or best.turn.id in self._tried:
            return
        if best.verdict.against("eager") and not best.verdict.against("compile"):
            self._tried.add(best.turn.id)
            self.begin(state, ("eager", "compile"), self._log_failure)

    def _log_failure(self, result: Verdict | BaseException) -> None:
        if isinstance(result, Exception) and not self._engine.closing:
            log.warning("the comparison failed: %s", result)


def _changed_sizes(task: Task, sizes: Mapping[str, int]) -> dict[str, int]:
    """The ``sizes`` that differ from the task's own. Raises SessionError if the task cannot have them."""
    default_sizes = task.module().default_sizes()
    changed = {name: size for name, size in sizes.items() if size != default_sizes.get(name)}
    if changed:
        check_sizes(task, changed)
    return changed


def _compared(turn: str, verdict: Verdict) -> Compared:
    assert verdict.time is not None
    return Compared(
        turn=turn,
        timing=verdict.time,
        comparisons=tuple(verdict.comparisons),
        reason=verdict.reason,
        conditions=verdict.conditions,
    )


def _paired(turns: Sequence[str], rivals: Iterable[str], sizes: dict[str, int], verdict: Verdict) -> Paired:
    """Raises SessionError if one of the ``rivals`` was not timed."""
    comparisons = {c.baseline: c for c in verdict.comparisons}
    if untimed := [name for name in rivals if name not in comparisons]:
        raise SessionError(f"The kernel of {untimed[0]} could not be timed.", "Verify it again, or leave it out.")
    return Paired(
        turns=tuple(turns),
        comparisons=tuple(comparisons[name] for name in rivals),
        sizes=sizes,
        conditions=verdict.conditions,
    )


def log_failure(background: asyncio.Future[Any]) -> None:
    """Handle the end of background work that no one awaits: log its error."""
    if not background.cancelled() and background.exception() is not None:
        log.warning("work in the background failed: %s", background.exception())
