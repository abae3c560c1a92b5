"""A task's speed-of-light bound is one number on a chip in all that a session or a search says.

Every verification measures the machine's rates anew, so each verdict comes with a bound of its own. The first one
holds. Where a verified kernel or a baseline is faster than it allows, it was measured badly, and the lowest counts;
where even that one is passed, it is believed of no kernel (:attr:`Verdict.bound_share`).
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.records import BOUND_PASSED, Verdict


@dataclass(frozen=True)
class Bounds:
    """What the verdicts on one chip tell of a task's bound."""

    #: as the verifications measured it, in ms, oldest first
    measured: tuple[float, ...] = ()
    #: the least time in ms, of a verified kernel or of a baseline
    least_ms: float | None = None

    @property
    def ms(self) -> float | None:
        """The bound that is told; None before one was measured."""
        if not self.measured:
            return None
        return min(self.measured) if self._passed(self.measured[0]) else self.measured[0]

    def seen(self, verdict: Verdict, again: bool = False) -> Bounds:
        """With one verdict more; ``again``: one that was timed again, whose bound is known."""
        measured = (*self.measured, verdict.sol_ms) if verdict.sol_ms and not again else self.measured
        times = [self.least_ms, verdict.fastest_ms if verdict.passed else None]
        return Bounds(measured, min((ms for ms in times if ms), default=None))

    def told(self, verdict: Verdict) -> Verdict:
        """``verdict`` with the bound of all, if it has one."""
        if not verdict.sol_ms or self.ms is None:
            return verdict
        least = self.least_ms if self._passed(self.ms) else None
        if (verdict.sol_ms, verdict.least_ms) == (self.ms, least):
            return verdict
        return verdict.model_copy(update={"sol_ms": self.ms, "least_ms": least})

    def _passed(self, bound: float) -> bool:
        return self.least_ms is not None and bound > BOUND_PASSED * self.least_ms


__all__ = ["Bounds"]
