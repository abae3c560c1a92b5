"""A run in figures and in words: for the command line, the front ends and the report."""

from __future__ import annotations

from collections import Counter, defaultdict

from kernellab.errors import counted
from kernellab.evolve.records import Status
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.bandit import arms
from kernellab.models.exchanges import Usage
from kernellab.models.ledger import reported
from kernellab.records import Comparison, Record


class StepFigures(Record):
    """The totals of a step of the cascade: candidates seen and refused, and seconds."""

    seen: int
    refused: int
    seconds: float


class OperatorFigures(Record):
    """The totals of an operator: children evaluated, the sum of their gains, seconds and tokens; ``untold`` counts
    answers whose tokens no one reported, ``silent`` turns that gave no candidate, the last for the reason ``silence``.
    """

    name: str
    tries: int
    gain: float
    seconds: float
    tokens: int
    untold: int = 0
    silent: int = 0
    silence: str = ""


class RoundFigures(Record):
    """A round's end, with the figure of the best so far."""

    round: int
    evaluations: int
    best: int | None
    text: str
    plan: str = ""


class Summary(Record):
    """A run. ``first_speedup`` is the first design's, ranked like all others; speedups are over the reference."""

    run: str
    task: str
    dsl: str
    status: Status
    reason: str
    passed: bool
    first_speedup: float | None
    speedup: float | None
    #: The best over the first design, timed in turn at the end; None if they were not.
    over_first: Comparison | None = None
    #: Whether no candidate is certainly faster than the first design.
    first_is_best: bool = False
    best: int | None
    #: The best one's figures, as displayed everywhere.
    text: str
    #: The share of the task's bound, the SOL score and the closed gap, in words.
    sol: str = ""
    evaluations: int
    failures: dict[str, int]
    stages: dict[str, StepFigures]
    operators: tuple[OperatorFigures, ...]
    rounds: tuple[RoundFigures, ...]
    #: A direction that waits for a person's answer.
    suggestion: str = ""
    usage: Usage
    device_seconds: float
    #: Seconds from the first event to the last.
    seconds: float

    @property
    def against_first(self) -> str:
        """The search's gain over the first design, in a sentence; "" if unknown."""
        paired = self.over_first
        if self.first_is_best:
            interval = f" (timed in turn, {paired.low:.2f}x to {paired.high:.2f}x)" if paired else ""
            return f"It is the first design: no candidate is certainly faster{interval}."
        if paired is not None:
            return f"Timed in turn with the first design: {paired.speedup:.2f}x [{paired.low:.2f}, {paired.high:.2f}]."
        return f"The first design ranked at {self.first_speedup:.2f}x." if self.first_speedup else ""


def summary(run: str, state: RunState) -> Summary:
    """Return a run in figures."""
    best = state.best()
    verdict = state.verdicts.get(best) if best is not None else None
    paired = state.pairing()
    by_round = Counter(state.proposals[n].round for n in state.evaluations)
    silent = defaultdict[str, list[str]](list)
    for proposal in state.proposals.values():
        if not proposal.sketch and proposal.source is None:
            silent[proposal.operator].append(proposal.why)
    failed = Counter(e.step.value for e in state.evaluations.values() if not e.passed and e.same_as is None)
    return Summary(
        run=run, task=state.begun.name, dsl=state.begun.dsl, status=state.status, reason=state.reason,
        passed=verdict.passed if verdict else False,
        first_speedup=_speedup(state, state.first()), speedup=_speedup(state, best), best=best,
        over_first=paired.comparison if paired else None, first_is_best=best is not None and best == state.first(),
        text=verdict.text if verdict else figure(state, state.worth(best) if best is not None else None),
        sol=verdict.sol_text if verdict else "",
        evaluations=sum(e.same_as is None for e in state.evaluations.values()), failures=dict(failed),
        stages={
            step.value: StepFigures(seen=tally.seen, refused=tally.refused, seconds=tally.seconds)
            for step, tally in state.tallies.items()
        },
        operators=tuple(
            OperatorFigures(
                name=name, tries=arm.tries, gain=arm.gain, seconds=arm.seconds, tokens=arm.tokens, untold=arm.untold,
                silent=len(silent[name]), silence=silent[name][-1] if silent[name] else "",
            )
            for name, arm in sorted(arms(state).items(), key=lambda pair: -pair[1].gain)
        ),
        rounds=tuple(
            RoundFigures(
                round=end.round, evaluations=by_round[end.round], best=best_then,
                text=figure(state, state.worth(best_then) if best_then is not None else None), plan=end.plan.text,
            )
            for at, end in enumerate(state.rounds)
            for best_then in (state.round_best(at),)
        ),
        suggestion=state.suggestion.text if state.suggestion else "", usage=state.usage,
        device_seconds=state.device_seconds, seconds=max(0.0, state.latest - state.begun.time),
    )  # fmt: skip


def line(run: str, state: RunState, unattended: bool) -> str:
    """A run as a line in a list of runs."""
    figures = summary(run, state)
    status = "unattended" if unattended else figures.status.value
    return f"{run}  {status:10}  {counted(figures.evaluations, 'candidate')}  {figures.text}".rstrip()


def words(figures: Summary) -> str:
    """A run as plain text: its end, its best, its rounds, each step's refusals, each operator's gains."""
    lines = [f"{figures.run}: {figures.status.value}. {figures.reason}".rstrip()]
    if figures.best is None:
        lines.append("No candidate is verified yet.")
    else:
        best_text = ", ".join(filter(None, (figures.text, figures.sol)))
        lines.append(f"Best: candidate {figures.best}, {best_text}. {figures.against_first}".rstrip())
    for end in figures.rounds:
        lines.append(f"Round {end.round}: {end.evaluations} candidates, {end.text}. {end.plan}".rstrip())
    if figures.suggestion:
        lines.append(f"Proposed: {figures.suggestion} Accept it, edit it (direct), or refuse it.")
    refusals = [
        f"{name} {step.refused}/{step.seen} ({step.seconds:.1f} s)"
        for name, step in figures.stages.items()
        if step.seen
    ]
    lines.append(f"Refused by step: {', '.join(refusals) or 'nothing yet'}.")
    for operator in figures.operators:
        tokens = reported(f"{operator.tokens:,} tokens" if operator.tokens else "", operator.tokens, operator.untold)
        silent = f"; {operator.silent} gave nothing, the last: {operator.silence}" if operator.silent else ""
        gain = f"{operator.tries} tried, gain {operator.gain:.2f}, {operator.seconds:.1f} s{tokens and f', {tokens}'}"
        lines.append(f"  {operator.name}: {gain}{silent}")
    return "\n".join(lines)


def figure(state: RunState, worth: float | None) -> str:
    """A candidate's worth for display: a speedup over the reference, or the cost model's time."""
    if not worth:
        return "nothing verified"
    return f"{worth:.2f}x" if state.knobs.score == "rank" else f"{1 / worth:.4g} ms by the cost model"


def _speedup(state: RunState, number: int | None) -> float | None:
    if number is None or number not in state.scores:
        return None
    return state.scores[number].speedup or None
