"""Cases prepared with the reference's answers while a candidate is compiled.

They exist only in the judge's memory, like the later cases of a stage while the candidate runs an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.cases import selection
from kernellab.verifier.cases.cases import Case
from kernellab.verifier.cases.extents import Sizes
from kernellab.verifier.protocol.rules import CORRECT, DEVICE
from kernellab.verifier.survey.survey import Survey


class Ahead:
    """The cases of the first stages, each returned once. Cases that :meth:`make` has reached are ready; the others are
    made on request."""

    def __init__(
        self, task: Task, interpreted: bool, numbers: Sequence[int] = (), sizes: Sequence[Sizes] = (),
        pairs: Sequence[tuple[int, int]] = (), most: int = 0,
    ) -> None:  # fmt: skip
        """``numbers``: integers in the source; ``pairs``: those that stand together; ``sizes``: requested sizes;
        ``most``: bytes of inputs of the cases that are ready at once, 0 means no limit."""
        self.task, self.interpreted, self.numbers, self.sizes, self.pairs = task, interpreted, numbers, sizes, pairs
        self.most = most
        self._smoke: Case | None = None
        self._correct: list[Case] = []
        self._more: list[Case] = []
        self._small: list[Case] = []
        self._survey: Survey | None = None
        self._steps: Iterator[None] = iter(())

    def make(self) -> Iterator[None]:
        """Make the cases, one at each step, in the order of use, because static arguments keep their first values.

        Makes none for a task so large that a build would have to wait for a case, and no more once they have
        ``most`` bytes.
        """
        if input_bytes(self.task) > CORRECT.large_bytes:
            return
        # An empty step, for a source that builds at once.
        yield
        self._smoke = selection.smoke_case(self.task, self.interpreted)
        try:
            yield from _made([self._smoke])
            self._correct = self._cases()
            held = 0
            for case in self._correct:
                held += input_bytes(self.task, dict(case.sizes))
                if self.most and held > self.most:
                    return
                _ = case.native
                yield
            self._small = [selection.small_case(self.task, self.interpreted) for _ in range(2)]
            yield from _made(self._small)
            self._begin_survey()
            # Do not use `yield from`: a build that ends closes this iterator, which would also close the survey's
            # steps.
            for _ in self._steps:
                yield
        except Exception:  # the stage that requests the case raises it again and reports it
            self._survey = None

    def _cases(self) -> list[Case]:
        return selection.correct_cases(self.task, self.interpreted, self.numbers, self.sizes, self.pairs)

    def smoke(self) -> Case:
        """Return the case of the stage smoke."""
        case, self._smoke = self._smoke, None
        return case or selection.smoke_case(self.task, self.interpreted)

    def correct(self) -> list[Case]:
        """Return the cases of the stage correct."""
        made_cases, self._correct = self._correct, []
        return made_cases or self._cases()

    def more(self) -> Iterator[Case]:
        """Yield cases at sizes from the whole Dim ranges, without end."""
        while self._more:
            yield self._more.pop(0)
        yield from selection.more_cases(self.task)

    def sized(self) -> list[Case]:
        """Return the cases of the stage correct, made now, and the first cases from the whole Dim ranges."""
        self._correct = self._correct or self._cases()
        self._more = self._more or list(islice(selection.more_cases(self.task), DEVICE.rehearsed_sizes))
        return [*self._correct, *self._more]

    def small(self) -> Case:
        """Return a new case at the size of the families."""
        return self._small.pop(0) if self._small else selection.small_case(self.task, self.interpreted)

    def declared(self) -> Case:
        """Return a case of the task's own inputs at the declared sizes, possibly the one of the stage correct."""
        last = self._correct[-1] if self._correct else None
        full = selection.declared_case(self.task, self.interpreted)
        return last if last is not None and (last.sizes, last.family) == (full.sizes, full.family) else full

    def survey(self) -> Survey:
        """Return the completed survey of drawn inputs."""
        if self._survey is None:
            self._begin_survey()
        for _ in self._steps:
            pass
        assert self._survey is not None
        return self._survey

    def _begin_survey(self) -> None:
        self._survey = Survey(selection.drawn_base(self.task, self.interpreted))
        self._steps = self._survey.make()


def _made(made_cases: Sequence[Case]) -> Iterator[None]:
    """Draw the inputs of each case and compute the reference's answers, a case at each step."""
    for case in made_cases:
        _ = case.native
        yield
