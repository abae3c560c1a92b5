"""A candidate as a row of the monitor's table, and as a point of its chart."""

from __future__ import annotations

from kernellab.evolve.report import row as written
from kernellab.evolve.state import RunState
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.protocol import CandidateWord, Row, Rows

#: rows of one message: some hundred kB
MOST = 1000


def rows(follower: Follower, since: int) -> Rows:
    """At most :data:`MOST` rows that changed after the version ``since``."""
    with follower.lock:
        numbers, version = follower.changed(since, MOST)
        return {"since": since, "version": version, "rows": [row(follower, number) for number in numbers]}


def row(follower: Follower, number: int) -> Row:
    state = follower.state
    proposal, evaluation = state.proposals[number], state.evaluations.get(number)
    score = state.scores.get(number)
    failed = evaluation is not None and not evaluation.passed
    shown = written(state, number) if evaluation is not None else None
    verdict = state.verdicts.get(number)
    eager = verdict.against("eager") if verdict else None
    # the interval is of the same measure as the value; a modelled time has none
    best = None if state.knobs.score == "model" else eager or score
    reason = (verdict.reason if verdict and not verdict.passed else "") or (evaluation.reason if evaluation else "")
    return {
        "number": number, "round": proposal.round, "island": proposal.island, "operator": proposal.operator,
        "author": proposal.author.value, "parents": list(proposal.parents), "state": condition(state, number),
        "protected": number in state.protected, "at": follower.places.get(number), "value": value(state, number),
        "low": best.low if best else None, "high": best.high if best else None, "text": shown.text if shown else "",
        "step": evaluation.step.value if failed and evaluation else "", "reason": reason or proposal.why,
        "seconds": proposal.seconds + (evaluation.seconds if evaluation else 0.0),
    }  # fmt: skip


def condition(state: RunState, number: int) -> CandidateWord:
    """What became of a candidate, in one word."""
    evaluation, verdict = state.evaluations.get(number), state.verdicts.get(number)
    if number in state.dropped:
        return "dropped"
    if evaluation is None:
        return "untried" if state.status.ended else "waiting"
    if evaluation.same_as is not None:
        return "repeat"
    if not evaluation.passed or (verdict is not None and not verdict.passed):
        return "failed"
    if verdict is None:
        return "passed"
    return "verified" if state.clean(number) else "flagged"


def value(state: RunState, number: int) -> float | None:
    """Its speedup over the reference, a verdict's before a rank's; or its modelled time in ms, where that ranks."""
    evaluation, verdict = state.evaluations.get(number), state.verdicts.get(number)
    if evaluation is None or not evaluation.passed or evaluation.same_as is not None:
        return None
    if state.knobs.score == "model":
        return evaluation.modelled_ms
    if verdict is not None and verdict.passed and verdict.speedup:
        return verdict.speedup
    return state.worth(number) if number in state.scores else None
