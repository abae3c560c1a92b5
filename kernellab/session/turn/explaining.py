"""Explains a verdict, or why a kernel is slow: statements made from the record, each with its fact.

Rules make the explanation, so it is always available and reproducible. A model as Analyst says more
(:meth:`Session.analyse`); its numbers are checked against the record.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.agents.rules.advice import advise, route_facts
from kernellab.agents.rules.performance import hot_of, standing_of
from kernellab.agents.rules.suggestions import slow_because
from kernellab.errors import SessionError, counted
from kernellab.records import BOUND_PASSED, RouteFact, RouteKind, Stage, StageState, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.turn.briefing import route_brief
from kernellab.session.turn.context import Bench
from kernellab.verifier.protocol.stats import one_line_each

#: What can be explained.
WHAT = ("verdict", "speed")

#: What each stage does, for a reader who does not know its name.
STAGES = {
    Stage.STATIC: "reads the text and refuses what no kernel needs; nothing runs",
    Stage.BUILD: "compiles and loads the source in a separate process",
    Stage.SMOKE: "calls the kernel once on its smallest shape",
    Stage.CORRECT: "compares results with the reference's, at declared and hidden sizes and several kinds of inputs",
    Stage.ROBUST: "looks whether inputs stay unchanged, outputs are the kernel's own, and repeated calls agree",
    Stage.HONEST: "looks whether the kernel's own code does the work",
    Stage.FAST: "times the kernel and its baselines in turns, and compares the results of timed calls too",
}


@dataclass(frozen=True)
class Point:
    """One statement and the fact of the record that supports it ("" if the statement is the fact)."""

    text: str
    because: str = ""


@dataclass(frozen=True)
class Explanation:
    """A title and its points; ``advice`` is the next step, "" if nothing is wrong."""

    title: str
    points: tuple[Point, ...]
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"- {p.text}{f' ({p.because})' if p.because else ''}" for p in self.points]
        return "\n".join([self.title, *lines, *([f"-> {self.advice}"] if self.advice else [])])

    def __repr__(self) -> str:
        return str(self)


def explain(bench: Bench, state: State, at: str | None, what: str) -> Explanation:
    """Explain the newest verdict on the line up to turn ``at`` (the head): its outcome, or its speed.

    Raises:
        SessionError: there is no such explanation, the line has no verdict, or it was not timed.
    """
    if what not in WHAT:
        raise SessionError(f"There is no explanation of {what!r}.", f"Choose {' or '.join(WHAT)}.")
    turn = next((ancestor for ancestor in state.up(at) if ancestor.verdict is not None), None) if state.turns else None
    if turn is None or turn.verdict is None:
        raise SessionError("There is no verdict yet to explain.", "Step or Run until the Verifier has looked at it.")
    if what == "speed":
        return _speed(bench, state, turn, turn.verdict)
    return (_passed if turn.verdict.passed else _failed)(bench, state, turn, turn.verdict)


def _failed(bench: Bench, state: State, turn: Turn, verdict: Verdict) -> Explanation:
    brief = route_brief(bench, state, turn.id)
    passed_stages = [part.name.value for part in one_line_each(verdict.stages) if part.state is StageState.PASSED]
    points = [
        Point(f"The stage {verdict.stage.value} {STAGES[verdict.stage]}.", verdict.reason.rstrip(".")),
        Point(
            f"The stages before it passed: {', '.join(passed_stages)}." if passed_stages else "It is the first stage."
        ),
    ]
    points += [Point(fact.line) for fact in route_facts(brief) if not fact.of_stage]
    return Explanation(
        f"Turn {turn.number} failed at {verdict.stage.value}.", tuple(points), advise(brief, RouteKind.CODER)
    )


def _passed(bench: Bench, state: State, turn: Turn, verdict: Verdict) -> Explanation:
    points = [
        Point(f"The stage {part.name.value} {STAGES[part.name]}.", part.note.rstrip("."))
        for part in one_line_each(verdict.stages)
        if part.state is StageState.PASSED
    ]
    points += [_against(verdict, number) for number in range(len(verdict.comparisons))]
    points += [Point(f"It is labelled {verdict.label}.")] if verdict.label else []
    points += [Point(flag) for flag in verdict.flags]
    return Explanation(f"Turn {turn.number} passed, at trust level {verdict.trust.value}.", tuple(points))


def _against(verdict: Verdict, number: int) -> Point:
    comparison = verdict.comparisons[number]
    sentence = f"It is {comparison.speedup:.2f} times as fast as {comparison.called or comparison.baseline}"
    if not comparison.distinguishable:
        sentence = f"No difference to {comparison.called or comparison.baseline} can be told: the interval holds 1"
    time = comparison.baseline_time
    return Point(
        f"{sentence}.",
        f"95 % interval {comparison.low:.2f} to {comparison.high:.2f}; that one takes {time.median_ms:.3g} ms in "
        f"{counted(time.samples, 'call')}",
    )


def _speed(bench: Bench, state: State, turn: Turn, verdict: Verdict) -> Explanation:
    if verdict.time is None:
        raise SessionError("This kernel was not timed.", "Only kernels that pass all stages before fast are timed.")
    brief = route_brief(bench, state, turn.id)
    reason, facts = slow_because(brief)
    standing = standing_of(brief)
    is_over = standing is not None and standing.sketch_ms > BOUND_PASSED * standing.time_ms
    if is_over:
        spared = "traffic that a cache spares, or work that the machine does not do"
        facts.append(RouteFact(text=f"the kernel is faster than that: the cost model counts {spared}"))
    code = reason if is_over else slow_because(brief, RouteKind.CODER)[0]
    points = [_against(verdict, number) for number in range(len(verdict.comparisons))]
    points += [Point(f"{fact.text[:1].upper()}{fact.text[1:]}.") for fact in facts]
    hot = hot_of(brief)
    points += [Point(hot)] if hot else []
    if standing is not None and standing.code_costs_more:
        reason, code = code, reason
    points += [Point(code)] if code != reason else []
    if verdict.marked("busy-machine"):
        points.append(Point("Other work disturbed the timing, so the figures are rough."))
    title = f"Turn {turn.number} takes {verdict.time.median_ms:.3g} ms: what its sketch and the record say of the time."
    return Explanation(title, tuple(points), reason)
