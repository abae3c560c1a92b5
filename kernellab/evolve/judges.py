"""Who measures candidates on this machine: the process's one Verifier, one candidate at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kernellab.errors import VerifierError
from kernellab.evolve.jobs import Ranked, score_of
from kernellab.records import Source, Stage, Verdict
from kernellab.session.engine.engine import engine
from kernellab.target import Target
from kernellab.task import Task
from kernellab.verifier import RankOptions, Verifier, VerifyOptions

#: seconds of timed calls in a rank: what goes before takes longer, and a search lives by telling candidates apart
BUDGET = 1.0


class LocalJudge:
    """Takes the Verifier in turn with the sessions of this process, so that a machine has one judge."""

    def __init__(self) -> None:
        self.cancel = threading.Event()

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        """A quick look: a few cases, then the clock, compared with the reference. Raises TaskError, TargetError."""
        with self._verifier() as verifier:
            began = time.perf_counter()
            options = RankOptions(
                allow_library=allow_library, precision=task.fidelity, budget=BUDGET,  # type: ignore[arg-type]
            )  # fmt: skip
            found = verifier.rank(task, source, target, options=options, cancel=self.cancel)
            seconds = time.perf_counter() - began
        built = found.stage not in (Stage.STATIC, Stage.BUILD)
        return Ranked(score_of(found) if found.ranked else None, found.reason, seconds, built)

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        """The full verdict. Raises TaskError, TargetError, VerifierError."""
        with self._verifier() as verifier:
            return verifier.verify(task, source, target, options=options, cancel=self.cancel)

    @contextmanager
    def _verifier(self) -> Iterator[Verifier]:
        with engine().verifying:
            try:
                yield engine().verifier()
            except VerifierError:
                engine().drop_verifier()
                raise
