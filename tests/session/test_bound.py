"""A session tells one bound, whatever each verification measures."""

from __future__ import annotations

from collections.abc import Iterator

from kernellab.records import Author, Environment, Role, Stage, Timing, Verdict
from kernellab.session.record.bounds import Bounds
from kernellab.session.record.events import Created, Event, TurnEnded
from kernellab.session.record.fold import fold
from kernellab.session.record.records import Turn, TurnState
from kernellab.target import Backend, Chip, Target


def verdict(bound: float | None, ms: float = 4.0) -> Verdict:
    time = Timing(median_ms=ms, q1_ms=ms, q3_ms=ms, samples=9)
    return Verdict(passed=True, stage=Stage.FAST, reason="ok", time=time, sol_ms=bound)


def bound_of(*verdicts: Verdict) -> float | None:
    bounds = Bounds()
    for number, one in enumerate(verdicts):
        bounds, _ = bounds.with_verdict(number, one, ())
    return bounds.reported.ms if bounds.reported is not None else None


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

    first, said = Bounds().with_verdict(1, verdict(2.0), held())
    assert looked == [True] and said[1].sol_ms == 2.0
    second, said = first.with_verdict(2, verdict(2.4), held())
    assert looked == [True] and {n: v.sol_ms for n, v in said.items()} == {2: 2.0}
    _, said = second.with_verdict(3, verdict(1.5, ms=1.6), held())
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


def test_the_rates_that_are_told_are_those_of_the_bound_that_is_told() -> None:
    events: list[Event] = [Created(name="s", text="", key="k")]
    target = Target("cpp", Backend.CPU, Chip("this chip", "cpu", 2, bandwidth=1e9, peak_flops={"f32": 1e9}))
    for number, (bound, ms, rate) in enumerate(((2.0, 4.0, 1e10), (1.6, 3.0, 2e10), (1.5, 1.7, 3e10)), 1):
        where = Environment(chip="this chip", bandwidth=rate, flops=10 * rate, doubles=5 * rate, rated="2026-01-02")
        turn = Turn(
            id=f"t{number}", number=number, parent=None, role=Role.VERIFIER, author=Author.RULES, state=TurnState.DONE,
            verdict=verdict(bound, ms).model_copy(update={"environment": where}),
        )  # fmt: skip
        events.append(TurnEnded(turn=turn))
        state = fold("s-1", events)
        assert state is not None
        chip = state.at_rates(target).chip
        # the third kernel is faster than the first bound allows, so that the lowest one's rates count
        assert chip.bandwidth == (3e10 if number == 3 else 1e10)
        assert chip.peak_flops == {"f32": 10 * chip.bandwidth, "f64": 5 * chip.bandwidth} and chip.judged
        assert {t.verdict.environment.bandwidth for t in state.turns.values() if t.verdict} == {chip.bandwidth}
    other = Target("cpp", Backend.CPU, Chip("another chip", "cpu", 2))
    assert state is not None and state.at_rates(other) == other
