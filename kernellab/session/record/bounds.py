"""A task's speed-of-light bound is one number on a chip in all that a session or a search says.

Every verification measures the machine's rates again, so each verdict comes with its own bound. The first one
holds, with the rates that it was reckoned by: all that a session reports of the task rests on them. Where a
verified kernel or a baseline is faster than it allows, it was measured badly, and the lowest counts; where even that
one is passed, it is believed of no kernel (:attr:`Verdict.bound_share`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from kernellab.records import BOUND_PASSED, Environment, Verdict

Key = TypeVar("Key")


@dataclass(frozen=True)
class Measured:
    """A bound in ms, and the rates that it rests on: those of ``where``."""

    ms: float
    where: Environment


@dataclass(frozen=True)
class Bounds:
    """What the verdicts on one chip tell of a task's bound."""

    #: as the first verification measured it, and as the lowest of all did
    first: Measured | None = None
    lowest: Measured | None = None
    #: the least time in ms, of a verified kernel or of a baseline
    least_ms: float | None = None

    @property
    def held(self) -> Measured | None:
        """The bound that is reported; None before one was measured."""
        return self.lowest if self.first is not None and self._passed(self.first.ms) else self.first

    @property
    def ms(self) -> float | None:
        return self.held.ms if self.held is not None else None

    @property
    def said(self) -> tuple[float | None, float | None]:
        """The bound that is reported, and the least time where that passes it too: what all verdicts are to say."""
        bound = self.ms
        return bound, self.least_ms if bound is not None and self._passed(bound) else None

    def seen(self, verdict: Verdict, again: bool = False) -> Bounds:
        """With one verdict more; ``again``: one that was timed again, whose bound is known."""
        fastest = verdict.fastest_ms if verdict.passed else None
        least = min((ms for ms in (self.least_ms, fastest) if ms), default=None)
        if not verdict.sol_ms or again:
            return replace(self, least_ms=least)
        found = Measured(verdict.sol_ms, verdict.environment)
        lowest = min(self.lowest or found, found, key=lambda measured: measured.ms)
        return Bounds(self.first or found, lowest, least)

    def told(self, verdict: Verdict) -> Verdict:
        """``verdict`` with the bound of all, if it has one."""
        held, (bound, least) = self.held, self.said
        if not verdict.sol_ms or held is None:
            return verdict
        where = verdict.environment.model_copy(update=held.where.rates)
        if (verdict.sol_ms, verdict.least_ms, verdict.environment) == (bound, least, where):
            return verdict
        return verdict.model_copy(update={"sol_ms": bound, "least_ms": least, "environment": where})

    def met(
        self, key: Key, verdict: Verdict, held: Iterable[tuple[Key, Verdict]], again: bool = False
    ) -> tuple[Bounds, dict[Key, Verdict]]:
        """The bounds with one ``verdict`` more, and what it and those ``held`` on its chip say now; of thousands that
        say it already, none is looked at."""
        bounds = self.seen(verdict, again)
        others = [pair for pair in held if _same_chip(pair[1], verdict)] if bounds.said != self.said else []
        return bounds, {k: bounds.told(v) for k, v in (*others, (key, verdict))}

    def _passed(self, bound: float) -> bool:
        return self.least_ms is not None and bound > BOUND_PASSED * self.least_ms


def _same_chip(one: Verdict, other: Verdict) -> bool:
    return one.environment.chip == other.environment.chip


__all__ = ["Bounds"]
