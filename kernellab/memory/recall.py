"""The memory's entries for a session, a tuner or a search, for one task on one target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.capture import capture
from kernellab.capture.family import family_of
from kernellab.memory.features import Features, features
from kernellab.memory.memory import Memory
from kernellab.memory.records import Failure, Purpose, Skill
from kernellab.memory.retrieval import Hit, Query
from kernellab.memory.stale import stale
from kernellab.memory.transfer import Carried, carried

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.task import Task

#: Values of a ``memory`` setting other than a store's place.
ON, OFF = "on", "off"
#: Minimum similarity of computations between which values are carried over.
_LIKE = 0.5
#: Maximum number of starts from the memory in a race.
_STARTS = 3


@dataclass(frozen=True)
class Start:
    """A design of a list with the values of a remembered kernel for its tunables."""

    carried: Carried
    hit: Hit


@dataclass
class Recall:
    """``held_out`` excludes every kernel of the task's own computation, as a benchmark must."""

    memory: Memory
    task: Task
    target: Target
    held_out: bool = False
    _features: Features | None = field(default=None, repr=False)

    @property
    def features(self) -> Features:
        """The task's features. Raises CaptureError if the task cannot be captured."""
        if self._features is None:
            self._features = features(self.task, capture(self.task))
        return self._features

    def query(self, purpose: Purpose, dsl: str | None = None) -> Query:
        """The query of this task on its target. Raises CaptureError."""
        family = family_of(capture(self.task)).value
        without = (self.features.hash,) if self.held_out else ()
        target = self.target
        return Query(
            self.features, dsl if dsl is not None else target.dsl, target.backend.value, family, target.chip.name,
            purpose, without,
        )  # fmt: skip

    def hits(self, purpose: Purpose = Purpose.DRAFT, k: int = 3, distinct: bool = True) -> list[Hit]:
        """Return the best ``k``, with ``distinct`` one per computation, labelled if their figures do not apply here.

        Raises:
            CaptureError, MemoryStoreError.
        """
        query, chip = replace(self.query(purpose), distinct=distinct), self.target.chip
        results = self.memory.search(query, k)
        return [hit.on(stale(hit.kernel, chip.name, None, chip.family), chip.family) for hit in results]

    def starts(self, designs: Sequence[str], whys: Sequence[str] = (), k: int = _STARTS) -> list[Start]:
        """Return where remembered kernels of similar computations start among ``designs``, best first, without
        duplicates.

        Raises:
            CaptureError, MemoryStoreError, SketchError.
        """
        by_point: dict[tuple[int, tuple[tuple[str, float], ...]], Start] = {}
        for hit in self.hits(Purpose.DRAFT, 2 * k, distinct=False):
            if hit.logic < _LIKE or hit.kernel.sketch is None or hit.kernel.dsl != self.target.dsl:
                continue
            carried_over = carried(hit.kernel.sketch, hit.kernel.constexpr, designs, hit.kernel.rationale, whys)
            if carried_over is not None:
                by_point.setdefault((carried_over.design, carried_over.values), Start(carried_over, hit))
        return list(by_point.values())[:k]

    def cures(self, signature: str, k: int = 2) -> list[Failure]:
        """Return fixes of failures like this one; without those of the task's own computation if it is held out."""
        own_hash = self.features.hash
        failures = self.memory.cures(self.target.dsl, signature, own_hash, k + 8)
        return [f for f in failures if not (self.held_out and f.graph == own_hash)][:k]

    def skills(self, k: int = 3) -> list[Skill]:
        """Return approved advice for this class of operators or for all, the largest effect first."""
        family = family_of(capture(self.task)).value
        own_store = self.memory.own
        fits = [
            s for s in (own_store.skills("approved = true") if own_store is not None else ())
            if s.operator_class in ("", family) and s.dsl in ("", self.target.dsl)
        ]  # fmt: skip
        # skills have no computation, so their origin is unknown: a benchmark gets none
        return [] if self.held_out else sorted(fits, key=lambda s: -s.ratio)[:k]


def place_named(name: str) -> str:
    """The store's place in a setting; "" if it is a keyword, which means the workspace's own."""
    return "" if name in ("", ON, OFF) else name


def open_recall(workspace: Path, name: str, task: Task, target: Target, held_out: bool = False) -> Recall | None:
    """Open the memory for a task: ``name`` is "on", "off", a store's place, or "" (if the workspace has one).

    Raises:
        MemoryStoreError: the memory cannot be opened.
    """
    if name == OFF:
        return None
    uri = place_named(name)
    memory = Memory.open(workspace, uri) if name == ON else Memory.open_existing(workspace, uri)
    return None if memory is None else Recall(memory, task, target, held_out)


__all__ = ["OFF", "ON", "Recall", "Start", "open_recall", "place_named"]
