"""A session tells one bound, whatever each verification measures."""

from __future__ import annotations

from kernellab.records import Stage, Timing, Verdict
from kernellab.session.turn.briefing import bound_of


def verdict(bound: float | None, ms: float = 4.0) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, sol_ms=bound)


def test_the_first_bound_is_held_while_no_kernel_beats_it() -> None:
    assert bound_of([]) is bound_of([verdict(None)]) is None
    assert bound_of([verdict(None), verdict(2.0), verdict(1.8), verdict(2.2)]) == 2.0


def test_a_bound_that_a_kernel_beats_was_measured_badly() -> None:
    assert bound_of([verdict(2.0), verdict(1.5, ms=1.6)]) == 1.5
    # within what a measurement may be off
    assert bound_of([verdict(2.0), verdict(1.5, ms=1.95)]) == 2.0
