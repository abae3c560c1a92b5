"""Folds a run's events into its state: one function for each kind of event, and one for each of a person's actions.

The same events give the same state in every process, so a killed run continues as before. A function here changes the
state in place; all others only read it.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.conditions import OwnShareUnseen, other_clock
from kernellab.errors import JournalError
from kernellab.evolve.records import (
    Action,
    Begun,
    Ended,
    Evaluated,
    Evaluation,
    Event,
    Exchanged,
    Migrated,
    Paired,
    Proposed,
    Remeasured,
    RoundEnded,
    Score,
    Status,
    Steered,
    Step,
    Suggested,
    Unknown,
    Verified,
    Worked,
    who_varies,
)
from kernellab.evolve.state import STOPPED, VERDICT_RUNS, Improvement, RunState, charges_of
from kernellab.models.ledger import added
from kernellab.options.search import Knobs
from kernellab.session.record.bounds import Bounds


def fold(events: Sequence[tuple[int, Event]] | Sequence[tuple[int, Event | Unknown]]) -> RunState:
    """Return the state after ``events``.

    Raises:
        JournalError: the first event does not begin a run.
    """
    if not events or not isinstance(events[0][1], Begun):
        raise JournalError("The run has no beginning.", "Use another workspace, or the version that wrote it.")
    begun = events[0][1]
    state = RunState(begun, begun.knobs)
    for seq, event in events:
        apply_event(state, seq, event)
    return state


def apply_event(state: RunState, seq: int, event: Event | Unknown) -> None:
    """Apply an event to ``state``."""
    state.clear_caches()
    _FOLDS[type(event)](state, event)  # type: ignore[operator]
    state.seq, state.latest = seq, event.time
    if not isinstance(event, Steered | Unknown):
        state.last_work = event.time


def _begun(state: RunState, event: Begun) -> None:
    for island in range(event.knobs.islands):
        state.islands[island] = []


def _proposed(state: RunState, event: Proposed) -> None:
    for proposal in event.proposals:
        state.proposals[proposal.number] = proposal
        state.known_at[proposal.number] = len(state.evaluations)
        state.doing.pop(who_varies(proposal.operator, proposal.parents), None)
        state.keys.setdefault(proposal.key, proposal.number)
        state.made[proposal.round] += 1
        state.usage = added(state.usage, proposal.usage)


def _worked(state: RunState, event: Worked) -> None:
    state.doing[event.who] = event.text
    if event.step in ("permission", "note") and event.text not in state.notices:
        state.notices.append(event.text)


def _evaluated(state: RunState, event: Evaluated) -> None:
    evaluation = event.evaluation
    state.evaluations[evaluation.number] = evaluation
    for spent in evaluation.spent:
        tally = state.tallies[spent.step]
        tally.seen += 1
        tally.refused += not spent.passed
        tally.seconds += spent.seconds
    if evaluation.score is not None:
        state.scores[evaluation.number] = evaluation.score
    if evaluation.source and evaluation.same_as is None:
        first_number = state.codes.setdefault(evaluation.source, evaluation.number)
        if first_number > evaluation.number and evaluation.passed:
            _repeats(state, first_number, evaluation)
    if evaluation.passed and evaluation.same_as is None:
        state.islands[state.proposals[evaluation.number].island].append(evaluation.number)
    if state.knobs.score == "model":
        _advanced(state, evaluation.number)


def _repeats(state: RunState, later: int, first: Evaluation) -> None:
    """Of two with the same code that were proposed together, keep the one with the lower number, in any order."""
    repeat = state.evaluations[later]
    state.evaluations[later] = repeat.model_copy(update={"same_as": first.number, "reason": same_code(first.number)})
    state.codes[first.source] = first.number
    for island in state.islands.values():
        if later in island:
            island.remove(later)


def same_code(number: int) -> str:
    return f"Its code is candidate {number}'s."


def _verified(state: RunState, event: Verified) -> None:
    chip = event.verdict.environment.chip
    bounds_before = state.bounds.get(chip, Bounds())
    state.bounds[chip], updated = bounds_before.with_verdict(event.number, event.verdict, state.verdicts.items())
    state.verdicts.update(updated)
    if _is_clean(state, event):
        state.clean_numbers.add(event.number)
    else:
        state.clean_numbers.discard(event.number)
    verdict, figure = event.verdict, event.verdict.against("eager")
    score_before, clock = state.scores.get(event.number), other_clock(verdict.conditions)
    # a verdict counts launches, a GPU ranking does not: figures of two clocks are not comparable
    if (
        verdict.passed
        and verdict.time is not None
        and figure is not None
        and (score_before is None or score_before.clock == clock)
    ):
        # a candidate is chosen for its verdict by the highest of many quick rankings, so those overestimate it
        state.scores[event.number] = Score(
            time=verdict.time, speedup=figure.speedup, low=figure.low, high=figure.high, runs=VERDICT_RUNS, clock=clock
        )
    tally = state.tallies[Step.VERIFY]
    tally.seen += 1
    tally.refused += not event.verdict.passed
    tally.seconds += event.seconds
    _improved(state)


def _is_clean(state: RunState, event: Verified) -> bool:
    is_external = state.proposals[event.number].source is not None
    # if program counters cannot be read, the rules' own code still cannot cheat
    charges = [c for c in charges_of(event.verdict) if is_external or not isinstance(c, OwnShareUnseen)]
    return event.verdict.passed and not charges


def _advanced(state: RunState, number: int) -> None:
    """Update the best with a new candidate, without reading all of them, which would make a long fold slow."""
    last = state.improvements[-1].number if state.improvements else None
    leads = last is None or not state.alive(last) or state.worth(number) > state.worth(last)
    if leads and state.alive(number):
        state.improvements.append(Improvement(len(state.evaluations), number))


def _improved(state: RunState) -> None:
    best = state.best()
    if best is not None and (not state.improvements or state.improvements[-1].number != best):
        state.improvements.append(Improvement(len(state.evaluations), best))


def _remeasured(state: RunState, event: Remeasured) -> None:
    state.scores.update(event.scores)
    state.tallies[Step.RANK].seconds += event.seconds
    _improved(state)


def _migrated(state: RunState, event: Migrated) -> None:
    for move in event.moves:
        if move.number not in state.islands[move.target]:
            state.islands[move.target].append(move.number)
    state.moves.extend(event.moves)


def _round_ended(state: RunState, event: RoundEnded) -> None:
    state.rounds.append(event)
    state.counts_at_round_ends.append(len(state.evaluations if state.knobs.score == "model" else state.verdicts))


def _paired(state: RunState, event: Paired) -> None:
    state.last_pairing = event
    state.tallies[Step.VERIFY].seconds += event.seconds


def _exchanged(state: RunState, event: Exchanged) -> None:
    state.exchanges[event.number] += 1
    if event.number is None:
        state.usage = added(state.usage, event.exchange.usage)


def _steered(state: RunState, event: Steered) -> None:
    state.heard.add(event.time)
    _ACTIONS[event.action](state, event)


def _suggested(state: RunState, event: Suggested) -> None:
    state.suggestion, state.suggested_at = event, len(state.rounds)


def _unknown(state: RunState, event: Unknown) -> None:
    state.unknown.add(event.named)


def _ended(state: RunState, event: Ended) -> None:
    state.doing.clear()
    state.status, state.reason = event.status, event.reason


_FOLDS = {
    Begun: _begun,
    Proposed: _proposed,
    Evaluated: _evaluated,
    Verified: _verified,
    Remeasured: _remeasured,
    Paired: _paired,
    Migrated: _migrated,
    RoundEnded: _round_ended,
    Exchanged: _exchanged,
    Worked: _worked,
    Suggested: _suggested,
    Unknown: _unknown,
    Steered: _steered,
    Ended: _ended,
}


def _pause(state: RunState, event: Steered) -> None:
    state.status = Status.PAUSED


def _resume(state: RunState, event: Steered) -> None:
    state.status, state.reason = Status.RUNNING, ""
    state.idle += max(0.0, event.time - state.last_work)
    state.last_work = event.time


def _stop(state: RunState, event: Steered) -> None:
    state.stopping = event.text or STOPPED


def _nothing(state: RunState, event: Steered) -> None:
    """Do nothing: the injected proposal is a separate event."""


def _protect(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.protected.add(event.number)
        state.dropped.discard(event.number)


def _drop(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.dropped.add(event.number)
        state.protected.discard(event.number)
        _improved(state)


def _freeze(state: RunState, event: Steered) -> None:
    if event.number is not None:
        state.frozen.add(event.number)


def _thaw(state: RunState, event: Steered) -> None:
    state.frozen.discard(-1 if event.number is None else event.number)


def _knobs(state: RunState, event: Steered) -> None:
    if event.knobs is not None:
        state.knobs = Knobs.model_validate({**state.knobs.model_dump(), **event.knobs})


def _scratchpad(state: RunState, event: Steered) -> None:
    state.scratchpad = event.text


def _direction(state: RunState, event: Steered) -> None:
    state.direction = event.text
    if state.suggestion is not None:
        state.directed, state.suggestion = state.suggestion.prefer, None


def _refuse(state: RunState, event: Steered) -> None:
    state.suggestion = None


_ACTIONS = {
    Action.PAUSE: _pause,
    Action.RESUME: _resume,
    Action.STOP: _stop,
    Action.INJECT: _nothing,
    Action.PROTECT: _protect,
    Action.DROP: _drop,
    Action.FREEZE: _freeze,
    Action.THAW: _thaw,
    Action.KNOBS: _knobs,
    Action.SCRATCHPAD: _scratchpad,
    Action.DIRECTION: _direction,
    Action.REFUSE: _refuse,
}
