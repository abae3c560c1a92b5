"""What the rankings of one task share.

A search ranks one candidate of a task after the other, and to draw tens of megabytes of inputs takes longer than
anything else of a ranking on a CPU. Each candidate has a separate process, which knows nothing of an earlier one's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.task import Task
from kernellab.task.sample.sizes import input_bytes
from kernellab.verifier.protocol.rules import RANK

if TYPE_CHECKING:
    from kernellab.verifier.ranking.cases import RankCases


@dataclass
class Recent:
    """The cases of the task that was ranked last, for some rankings more."""

    task: Task | None = None
    cases: RankCases | None = None
    uses: int = 0

    def of(self, task: Task, make: Callable[[Task], RankCases]) -> RankCases:
        """Cases for ``task``: those of the ranking before, or where that was of another task, or they have been used
        often, what ``make`` makes."""
        if self.cases is None or self.task != task or self.uses >= RANK.uses:
            self.task, self.cases, self.uses = task, make(task), 0
        self.uses += 1
        found = self.cases
        if any(arg.static for arg in task.args) or input_bytes(task) > RANK.kept_bytes:
            # what is static is another for each candidate
            self.cases = None
        return found
