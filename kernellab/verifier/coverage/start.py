"""A case from which others are made, as the changes that lead to it from the task's own inputs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kernellab.task.sample.inputs import Family
from kernellab.verifier.cases import cases
from kernellab.verifier.coverage.placing import Placing

if TYPE_CHECKING:
    from kernellab.verifier.cases.cases import Case
    from kernellab.verifier.coverage.stage import Covered


class Element(NamedTuple):
    """A number of one element of a tensor, by its place among all, or of each (None)."""

    place: int | None
    number: Any


class Change(NamedTuple):
    """Another value of the argument at ``position``: a scalar, or one :class:`Element`."""

    position: int
    value: Any


@dataclass(frozen=True)
class Start:
    """A case from which others are made: its sizes by Dim, the changes of its arguments, and where they lie."""

    sizes: tuple[tuple[str, int], ...]
    seed: int
    changes: tuple[Change, ...] = ()
    placing: Placing = field(default_factory=Placing)

    def case(self, covered: Covered) -> Case:
        """Return the case. Raises KernellabError for sizes that the task does not accept."""
        plain = cases.Case(covered.stages.task, self.sizes, Family.OWN, self.seed)
        if not self.changes:
            return plain
        args = list(plain.args)
        for position, value in self.changes:
            if not isinstance(value, Element):
                args[position] = value
                continue
            changed = args[position].contiguous().clone()
            if value.place is None:
                changed.fill_(value.number)
            else:
                changed.view(-1)[value.place % max(changed.numel(), 1)] = value.number
            args[position] = changed
        return plain.given(tuple(args))

    def with_size(self, name: str, size: int) -> Start:
        return replace(self, sizes=tuple((k, size if k == name else n) for k, n in self.sizes))

    def with_value(self, position: int, value: Any) -> Start:
        kept = tuple(c for c in self.changes if c.position != position or isinstance(value, Element))
        return replace(self, changes=(*kept, Change(position, value)))
