"""How fast a session's kernels are, measured when a person asks: against baselines, each other, and over sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab.errors import SessionError, lasting
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.joined import Joined
from kernellab.records import Ranking, Source, Verdict
from kernellab.session.compare import compare_candidates
from kernellab.session.edits import edited
from kernellab.session.engine.comparing import Told
from kernellab.session.engine.driver import Driver
from kernellab.session.engine.engine import engine
from kernellab.session.engine.requests import Requests
from kernellab.session.record.records import Turn
from kernellab.session.turn.context import Bench
from kernellab.session.turn.execute import rank
from kernellab.session.turn.sweeping import Sweep, SweepPoint, sizes_of, sweep


class Timings:
    """The measurements of one session. Calls block unless they say otherwise; timeouts are in seconds."""

    def __init__(self, driver: Driver, bench: Bench, requests: Requests) -> None:
        self._driver, self._bench, self._requests = driver, bench, requests

    @property
    def running(self) -> bool:
        """Is the best kernel being timed against more baselines in the background?"""
        return self._driver.comparing.runs

    def compare(self, *baselines: str, timeout: float | None = None) -> Verdict:
        """Time the best kernel against ``baselines`` (eager, compile) in one run; its turn's verdict becomes this.

        Raises:
            SessionError: nothing has passed yet, no such baseline, or the time is up.
            VerifierError: it could not be judged.
        """
        return self._waited_for(lambda tell: self._driver.compare(baselines or ("eager", "compile"), tell), timeout)

    def compare_when_done(self) -> None:
        """Time the best against torch.compile too when the session has finished; does not block."""
        self._requests.later(self._driver.compare_when_done)

    def again(
        self, *turns: int | str | Turn, sizes: Mapping[str, int] | None = None, wait: bool = True,
        timeout: float | None = None,
    ) -> Verdict | None:  # fmt: skip
        """Time the kernels of two to eight turns in one paired run; :meth:`side_by_side` then says by it which is
        faster. The verdict is of the first, against the others by name ("turn 5"); None without ``wait``. ``sizes``
        of some Dims that are not the task's own: the run tells of these sizes alone.

        Raises:
            SessionError: one of them has not passed, another measurement runs, the task has no such sizes, or the time
                is up.
            VerifierError: it could not be judged.
        """
        ids = list(dict.fromkeys(self._driver.state.id_of(turn) for turn in turns))
        if not wait:
            self._requests.put(lambda: self._driver.time_again(ids, sizes or {}, self._show_failure))
            return None
        return self._waited_for(lambda tell: self._driver.time_again(ids, sizes or {}, tell), timeout)

    def side_by_side(self, a: int | str | Turn, b: int | str | Turn) -> dict[str, Any]:
        """Two turns' kernels: diffs of sketch and source, numbers with intervals, and which is faster, by what was
        measured. Raises SessionError: there is no such turn, or none has a kernel."""
        state = self._driver.state
        return compare_candidates(state, state.id_of(a), state.id_of(b))

    def over(self, dim: str, told: Callable[[SweepPoint], None] = lambda _: None, sizes: Sequence[int] = ()) -> Sweep:
        """The best kernel's speed next to eager's over the declared range of ``dim``, or at ``sizes``.

        Raises:
            SessionError: nothing has passed yet, or the task has no such Dim.
            TargetError, VerifierError: it cannot be ranked.
        """
        best = self._driver.state.best()
        if best is None:
            raise SessionError("No candidate has passed yet.", "Wait for one, or see why with the last verdict.")
        return sweep(self._bench, best.candidate.source, dim, told, sizes)

    def sizes(self, dim: str) -> list[int]:
        """The sizes at which :meth:`over` times by itself. Raises SessionError: the task has no such Dim."""
        return sizes_of([self._bench.task()], dim)

    def rank(self, source: str | Mapping[str, str] | Source) -> Ranking:
        """A quick look at a source for this session's task, for choosing among many: no verdict, no turn, and never the
        best. It waits for a verification that runs.

        Raises:
            TargetError: in Triton's interpreter, which says nothing of speed.
            VerifierError: it could not be judged.
        """
        whole = source if isinstance(source, Source) else edited(None, source, self._bench.target().dsl)
        return rank(self._bench, whole)

    def as_one(self, joined: Joined) -> VerifiedKernel:
        """Several kernels of this session's task verified as one on its device; no turn. It waits for a verification
        that runs. Raises VerifierError: it could not be judged."""
        with engine().verifying:
            return joined.verified(engine().verifier(), self._bench.target(), self._bench.options())

    def _show_failure(self, result: Verdict | BaseException) -> None:
        """Shows why a measurement that no one waits for gave nothing. On the engine thread."""
        if isinstance(result, BaseException):
            self._driver.message = str(result)
        elif not result.passed:
            self._driver.message = f"The kernel does not pass now: {result.reason}"

    def _waited_for(self, begin: Callable[[Told], None], timeout: float | None) -> Verdict:
        results: list[Verdict | BaseException] = []
        done = threading.Event()

        def tell(result: Verdict | BaseException) -> None:
            results.append(result)
            done.set()

        self._requests.put(lambda: begin(tell))
        if not done.wait(timeout):
            name = self._driver.state.created.name
            raise SessionError(f"{name} is still being timed after {lasting(timeout or 0)}.", "Wait longer.")
        if isinstance(results[0], BaseException):
            raise results[0]
        return results[0]
