"""Keeps a task's speed-of-light bound on a chip the same in everything that a session or a search reports.

Every verification measures the machine's rates again, so each verdict has its own bound. The first bound applies, with
its rates: all reports about the task use them. If a verified kernel or a baseline is faster than it allows, it was
measured badly, and the lowest bound applies. If even that one is exceeded, no kernel is credited with it
(:attr:`Verdict.bound_share`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from kernellab.records import BOUND_PASSED, Environment, Verdict

Key = TypeVar("Key")


class Measured(NamedTuple):
    """A bound in ms, and the environment with the rates from which it was computed."""

    ms: float
    environment: Environment


@dataclass(frozen=True)
class Bounds:
    """The facts of the verdicts on one chip about a task's bound."""

    #: The bound of the first verification.
    first: Measured | None = None
    lowest: Measured | None = None
    #: The least time in ms of a verified kernel or a baseline.
    least_ms: float | None = None

    @property
    def reported(self) -> Measured | None:
        """The bound that all verdicts have; None before the first measurement."""
        return self.lowest if self._is_exceeded(self.first) else self.first

    @property
    def exceeding_ms(self) -> float | None:
        """The least time, if it is below the reported bound too."""
        return self.least_ms if self._is_exceeded(self.reported) else None

    def with_verdict(
        self, key: Key, verdict: Verdict, others: Iterable[tuple[Key, Verdict]], is_timed_again: bool = False
    ) -> tuple[Bounds, dict[Key, Verdict]]:
        """Return the bounds with one more ``verdict``, and the updated verdicts of it and of the ``others`` on its
        chip. If the shared values do not change, ``others`` is not read. The bound of a verdict that was timed again
        is known already."""
        bounds = self._after(verdict, is_timed_again)
        has_changed = _ms(bounds.reported) != _ms(self.reported) or bounds.exceeding_ms != self.exceeding_ms
        affected = [other for other in others if _same_chip(other[1], verdict)] if has_changed else []
        return bounds, {k: bounds._shared_by(v) for k, v in (*affected, (key, verdict))}

    def _after(self, verdict: Verdict, is_timed_again: bool) -> Bounds:
        fastest = verdict.fastest_ms if verdict.passed else None
        least = min((ms for ms in (self.least_ms, fastest) if ms), default=None)
        if not verdict.sol_ms or is_timed_again:
            return replace(self, least_ms=least)
        bound = Measured(verdict.sol_ms, verdict.environment)
        lowest = min(self.lowest or bound, bound, key=lambda measured: measured.ms)
        return Bounds(self.first or bound, lowest, least)

    def _shared_by(self, verdict: Verdict) -> Verdict:
        """Return ``verdict`` with the reported bound, if it has a bound."""
        reported = self.reported
        if not verdict.sol_ms or reported is None:
            return verdict
        environment = verdict.environment.model_copy(update=reported.environment.rates)
        shared = {"sol_ms": reported.ms, "least_ms": self.exceeding_ms, "environment": environment}
        if all(getattr(verdict, name) == value for name, value in shared.items()):
            return verdict
        return verdict.model_copy(update=shared)

    def _is_exceeded(self, bound: Measured | None) -> bool:
        """Whether something that was measured is faster than ``bound`` allows."""
        return bound is not None and self.least_ms is not None and bound.ms > BOUND_PASSED * self.least_ms


def _ms(bound: Measured | None) -> float | None:
    return bound.ms if bound is not None else None


def _same_chip(one: Verdict, other: Verdict) -> bool:
    return one.environment.chip == other.environment.chip


__all__ = ["Bounds"]
