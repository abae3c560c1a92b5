"""Measures the speed of a session's kernels on request: against baselines, each other, and over sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from kernellab.errors import SessionError, lasting
from kernellab.export.exportable import VerifiedKernel
from kernellab.export.joined import Joined
from kernellab.records import Ranking, Source, Verdict
from kernellab.session.compare import compare_candidates
from kernellab.session.edits import edited
from kernellab.session.engine.comparing import Measurement, Report
from kernellab.session.engine.driver import Driver
from kernellab.session.engine.engine import engine
from kernellab.session.engine.requests import Requests
from kernellab.session.record.records import Turn
from kernellab.session.turn.context import Bench
from kernellab.session.turn.sweeping import Sweep, SweepPoint, sizes_of, sweep
from kernellab.session.turn.verifying import rank


class Timings:
    """The measurements of one session. Calls block unless stated otherwise; timeouts are in seconds."""

    def __init__(self, driver: Driver, bench: Bench, requests: Requests) -> None:
        self._driver, self._bench, self._requests = driver, bench, requests

    @property
    def running(self) -> bool:
        """Whether the best kernel is being timed against more baselines in the background."""
        return self._driver.comparing.runs

    @property
    def timed(self) -> Measurement | None:
        """What is being timed in the background; None at rest."""
        return self._driver.comparing.current

    def compare(self, *baselines: str, timeout: float | None = None) -> Verdict:
        """Time the best kernel against ``baselines`` (eager, compile) in one run; its turn's verdict receives the
        figures.

        Raises:
            SessionError: no kernel has passed yet, a baseline does not exist, or the time limit is reached.
            VerifierError: the judging failed.
        """
        against = baselines or ("eager", "compile")
        return self._waited_for(
            lambda report: self._driver.comparing.begin(self._driver.state, against, report), timeout
        )

    def compare_when_done(self) -> None:
        """When the session has finished, also time the best against torch.compile; does not block."""
        self._requests.later(lambda: self._driver.comparing.compare_when_finished(self._driver.state))

    def again(
        self, *turns: int | str | Turn, sizes: Mapping[str, int] | None = None, wait: bool = True,
        timeout: float | None = None,
    ) -> Verdict | None:  # fmt: skip
        """Time the kernels of two to eight turns in one paired run; :meth:`side_by_side` then uses it to report which
        is faster. The verdict is the first kernel's, against the others by name ("turn 5"); None without ``wait``. With
        ``sizes`` of some Dims other than the task's own, the run applies only to these sizes.

        Raises:
            SessionError: a kernel has not passed, another measurement runs, the task has no such sizes, or the time
                limit is reached.
            VerifierError: the judging failed.
        """
        ids = list(dict.fromkeys(self._driver.state.id_of(turn) for turn in turns))

        def begin(report: Report) -> None:
            self._driver.comparing.begin_paired(self._driver.state, ids, sizes or {}, report)

        if not wait:
            self._requests.put(lambda: begin(self._show_failure))
            return None
        return self._waited_for(begin, timeout)

    def side_by_side(self, a: int | str | Turn, b: int | str | Turn) -> dict[str, Any]:
        """Compare two turns' kernels: diffs of sketch and source, figures with intervals, and which one measured
        faster. Raises SessionError if a turn does not exist or has no kernel."""
        state = self._driver.state
        return compare_candidates(state, state.id_of(a), state.id_of(b))

    def over(self, dim: str, told: Callable[[SweepPoint], None] = lambda _: None, sizes: Sequence[int] = ()) -> Sweep:
        """The best kernel's speed relative to eager over the declared range of ``dim``, or at ``sizes``.

        Raises:
            SessionError: no kernel has passed yet, or the task has no such Dim.
            TargetError, VerifierError: the kernel cannot be ranked.
        """
        best = self._driver.state.best()
        if best is None:
            raise SessionError("No candidate has passed yet.", "Wait for one, or see why with the last verdict.")
        return sweep(self._bench, best.candidate.source, dim, told, sizes)

    def sizes(self, dim: str) -> list[int]:
        """The default sizes of :meth:`over`. Raises SessionError if the task has no such Dim."""
        return sizes_of([self._bench.task()], dim)

    def rank(self, source: str | Mapping[str, str] | Source) -> Ranking:
        """Rank a source for this session's task quickly, to choose among many: makes no verdict and no turn, and never
        the best. Waits for a running verification.

        Raises:
            TargetError: the target is Triton's interpreter, which has no meaningful speed.
            VerifierError: the judging failed.
        """
        edited_source = source if isinstance(source, Source) else edited(None, source, self._bench.target().dsl)
        return rank(self._bench, edited_source)

    def as_one(self, joined: Joined) -> VerifiedKernel:
        """Verify several kernels of this session's task as one on its device; makes no turn. Waits for a running
        verification. Raises VerifierError if the judging failed."""
        with engine().verifying:
            return joined.verified(engine().verifier(), self._bench.target(), self._bench.options())

    def _show_failure(self, result: Verdict | BaseException) -> None:
        """Show why a background measurement failed. Runs on the engine thread."""
        if isinstance(result, BaseException):
            self._driver.message = str(result)
        elif not result.passed:
            self._driver.message = f"The kernel does not pass now: {result.reason}"

    def _waited_for(self, begin: Callable[[Report], None], timeout: float | None) -> Verdict:
        """Begin a measurement and wait for its verdict; raise the error that ended it."""
        result: Future[Verdict] = Future()

        def report(ended: Verdict | BaseException) -> None:
            if isinstance(ended, BaseException):
                result.set_exception(ended)
            else:
                result.set_result(ended)

        self._requests.put(lambda: begin(report))
        try:
            return result.result(timeout)
        except FutureTimeout:
            if result.done():
                return result.result()  # it ended meanwhile, or this is the measurement's own error
            name = self._driver.state.created.name
            message = f"{name} is still being timed after {lasting(timeout or 0)}."
            raise SessionError(message, "Wait longer.") from None
