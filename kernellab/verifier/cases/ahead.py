"""Cases that are made, with the reference's answers, while a candidate is compiled.

They lie in the judge's memory alone, as the later cases of a stage do while the candidate runs an earlier one: these
are made by a thread of their own, for the judge mostly waits for the worker, or compares what it gave.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import islice

from kernellab.task import Task
from kernellab.task.sample.inputs import Family
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import cases
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.protocol.rules import CORRECT

#: cases that wait ready beside the one that is worked with
_COMING = 2


class Ahead:
    """The cases of the first stages, each given out once: those that :meth:`make` came to are ready, the rest are made
    when they are asked for. Closed with the candidate."""

    def __init__(self, task: Task, interpreted: bool) -> None:
        self.task, self.interpreted = task, interpreted
        self._smoke: Case | None = None
        self._correct: list[Case] = []
        self._small: list[Case] = []
        self._timed: Case | None = None
        self._canaries: list[Case] = []
        self._of_canaries: Case | None = None
        self._thread: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """Ends the thread; what it works on comes to its end before."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None

    def make(self) -> Iterator[None]:
        """Makes them, one at each step, in the order in which they are met: what is static keeps its first values.

        Nothing of a task so large that a build would have to wait for a case.
        """
        if input_bytes(self.task) > CORRECT.large_bytes:
            return
        # a step that takes nothing, for a source that is built at once
        yield
        self._smoke = cases.smoke_case(self.task, self.interpreted)
        yield from _made([self._smoke])
        self._correct = cases.correct_cases(self.task, self.interpreted)
        yield from _made(self._correct)
        self._small = [cases.small_case(self.task, self.interpreted) for _ in range(2)]
        yield from _made(self._small)

    def smoke(self) -> Case:
        found, self._smoke = self._smoke, None
        return found or cases.smoke_case(self.task, self.interpreted)

    def correct(self) -> list[Case]:
        found, self._correct = self._correct, []
        return found or cases.correct_cases(self.task, self.interpreted)

    def small(self) -> Case:
        """A new case at the size that the families run at."""
        return self._small.pop(0) if self._small else cases.small_case(self.task, self.interpreted)

    def timed(self) -> Case:
        """What the timed calls' contents are made of."""
        found, self._timed = self._timed, None
        return found or cases.case(self.task, self.task.module().default_sizes(), Family.OWN)

    def canaries(self, timed: Case) -> list[Case]:
        """Those that were made for the case ``timed``; none where none were."""
        found, self._canaries = self._canaries, []
        return found if timed is self._of_canaries else []

    @contextmanager
    def beside(self, timed: Case, canaries: Sequence[Case]) -> Iterator[None]:
        """Has the thread make these cases while the caller does something else, for :meth:`timed` and
        :meth:`canaries`. None is under way when this ends."""
        self._timed = self._of_canaries = timed
        self._canaries = list(canaries)
        making = [self._begin(case) for case in canaries if case.device == "cpu"]
        try:
            yield
        finally:
            wait([one for one in making if not one.cancel()])

    def in_turn(self, found: Sequence[Case]) -> Iterator[Case]:
        """The cases in order, each with the reference's answers; while the caller works with one, a thread makes those
        that come next. On the CPU alone: a device has one queue."""
        if self.interpreted or not found or found[0].device != "cpu":
            yield from found
            return
        rest = iter(found)
        begun: deque[tuple[Case, Future[None]]] = deque()
        try:
            for _ in found:
                begun.extend((case, self._begin(case)) for case in islice(rest, 1 + _COMING - len(begun)))
                case, making = begun.popleft()
                if not making.cancel():
                    wait([making])
                yield case
        finally:
            for _, making in begun:
                making.cancel()

    def _begin(self, case: Case) -> Future[None]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "cases", initializer=_alone)
        return self._thread.submit(_make, case)


def _alone() -> None:
    import torch

    torch.set_num_threads(1)


def _make(case: Case) -> None:
    # whatever is wrong, who asks for the case meets it again and tells it
    with suppress(Exception):
        _ = case.references


def _made(found: list[Case]) -> Iterator[None]:
    for case in found:
        try:
            _ = case.references
        except Exception:  # whatever it is, the stage that asks for the case meets it again and tells it
            return
        yield
