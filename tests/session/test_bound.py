"""A session tells one bound, whatever each verification measures."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.records import Author, Role, Stage, Timing, Verdict
from kernellab.session.record.bounds import Bounds
from kernellab.session.record.records import Created, Event, Turn, TurnEnded, TurnState
from kernellab.session.record.state import fold


def verdict(bound: float | None, ms: float = 4.0) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, sol_ms=bound)


def bound_of(*verdicts: Verdict) -> float | None:
    bounds = Bounds()
    for one in verdicts:
        bounds = bounds.seen(one)
    return bounds.ms


def test_the_first_bound_is_held_while_no_kernel_beats_it() -> None:
    assert bound_of(verdict(None)) is None
    assert bound_of(verdict(None), verdict(2.0), verdict(1.8), verdict(2.2)) == 2.0


def test_a_bound_that_a_kernel_beats_was_measured_badly() -> None:
    assert bound_of(verdict(2.0), verdict(1.5, ms=1.6)) == 1.5
    # within what a measurement may be off
    assert bound_of(verdict(2.0), verdict(1.5, ms=1.95)) == 2.0


def test_held_verdicts_are_looked_at_only_where_the_bound_changes() -> None:
    looked = []

    def held() -> Iterator[tuple[int, Verdict]]:
        looked.append(True)
        yield 1, verdict(2.0)

    first, said = Bounds().met(1, verdict(2.0), held())
    assert looked == [True] and said[1].sol_ms == 2.0
    second, said = first.met(2, verdict(2.4), held())
    assert looked == [True] and {n: v.sol_ms for n, v in said.items()} == {2: 2.0}
    _, said = second.met(3, verdict(1.5, ms=1.6), held())
    assert looked == [True, True] and {n: v.sol_ms for n, v in said.items()} == {1: 1.5, 3: 1.5}


def test_every_verdict_of_a_session_tells_the_same_bound() -> None:
    events: list[Event] = [Created(name="s", text="", key="k")]
    told = []
    for number, (bound, ms) in enumerate(((2.0, 4.0), (1.6, 3.0), (1.5, 1.7)), 1):
        parent = f"t{number - 1}" if number > 1 else None
        turn = Turn(id=f"t{number}", number=number, parent=parent, role=Role.VERIFIER, author=Author.RULES,
                    state=TurnState.DONE, verdict=verdict(bound, ms))  # fmt: skip
        events.append(TurnEnded(turn=turn))
        state = fold("s-1", events)
        assert state is not None
        assert {t.verdict.sol_ms for t in state.turns.values() if t.verdict} == {state.bound_ms}
        told.append(state.bound_ms)
    # the third kernel is faster than the first bound allows
    assert told == [2.0, 2.0, 1.5]
