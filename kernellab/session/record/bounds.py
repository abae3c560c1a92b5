"""Keeps a task's speed-of-light bound on a chip the same in everything that a session or a search reports.

Every verification measures the machine's rates again, so each verdict has its own bound. The first bound applies, with
its rates: all reports about the task use them. If a verified kernel or a baseline is faster than it allows, it was
measured badly, and the lowest bound applies. If even that one is exceeded, no kernel is credited with it
(:attr:`Verdict.bound_share`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from kernellab.records import BOUND_PASSED, Environment, Verdict

Key = TypeVar("Key")


@dataclass(frozen=True)
class Measured:
    """A bound in ms and the rates from which it was computed: those of ``where``."""

    ms: float
    where: Environment


@dataclass(frozen=True)
class Bounds:
    """The facts of the verdicts on one chip about a task's bound."""

    #: The bound of the first verification, and the lowest of all.
    first: Measured | None = None
    lowest: Measured | None = None
    #: The least time in ms of a verified kernel or a baseline.
    least_ms: float | None = None

    @property
    def held(self) -> Measured | None:
        """The bound that is reported; None before the first measurement."""
        return self.lowest if self.first is not None and self._passed(self.first.ms) else self.first

    @property
    def ms(self) -> float | None:
        return self.held.ms if self.held is not None else None

    @property
    def said(self) -> tuple[float | None, float | None]:
        """The reported bound, and the least time if it is below the bound: the values that all verdicts must have."""
        bound = self.ms
        return bound, self.least_ms if bound is not None and self._passed(bound) else None

    def seen(self, verdict: Verdict, again: bool = False) -> Bounds:
        """Return the bounds with one more verdict; ``again``: one that was timed again, whose bound is known."""
        fastest = verdict.fastest_ms if verdict.passed else None
        least = min((ms for ms in (self.least_ms, fastest) if ms), default=None)
        if not verdict.sol_ms or again:
            return replace(self, least_ms=least)
        bound = Measured(verdict.sol_ms, verdict.environment)
        lowest = min(self.lowest or bound, bound, key=lambda measured: measured.ms)
        return Bounds(self.first or bound, lowest, least)

    def told(self, verdict: Verdict) -> Verdict:
        """Return ``verdict`` with the shared bound, if it has a bound."""
        shared, (bound, least) = self.held, self.said
        if not verdict.sol_ms or shared is None:
            return verdict
        environment = verdict.environment.model_copy(update=shared.where.rates)
        if (verdict.sol_ms, verdict.least_ms, verdict.environment) == (bound, least, environment):
            return verdict
        return verdict.model_copy(update={"sol_ms": bound, "least_ms": least, "environment": environment})

    def met(
        self, key: Key, verdict: Verdict, held: Iterable[tuple[Key, Verdict]], again: bool = False
    ) -> tuple[Bounds, dict[Key, Verdict]]:
        """Return the bounds with one more ``verdict``, and the updated verdicts of it and of those ``held`` on its
        chip. If the shared values do not change, ``held`` is not read."""
        bounds = self.seen(verdict, again)
        affected = [pair for pair in held if _same_chip(pair[1], verdict)] if bounds.said != self.said else []
        return bounds, {k: bounds.told(v) for k, v in (*affected, (key, verdict))}

    def _passed(self, bound: float) -> bool:
        return self.least_ms is not None and bound > BOUND_PASSED * self.least_ms


def _same_chip(one: Verdict, other: Verdict) -> bool:
    return one.environment.chip == other.environment.chip


__all__ = ["Bounds"]
