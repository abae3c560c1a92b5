"""A person's wish as events: written by the process that runs the search, or by any process if none does."""

from __future__ import annotations

from kernellab.evolve.records import Action, Ended, Event, Proposed, Status, Steered
from kernellab.evolve.state import STOPPED, RunState


def events(state: RunState, wish: Steered) -> list[Event]:
    """Return events to write at once, so that a kill leaves all of a wish or nothing."""
    if wish.action is Action.INJECT and wish.proposal is not None:
        number = len(state.proposals)
        proposal = wish.proposal.model_copy(update={"number": number, "round": state.round})
        return [wish.model_copy(update={"number": number}), Proposed(proposals=(proposal,))]
    return [wish]


def at_rest(state: RunState, wish: Steered) -> list[Event]:
    """Return the events if no process runs the search: a stop ends it. Empty for a sketch before the seeds are made: it
    waits for the process that makes them."""
    if wish.action is Action.INJECT and not state.proposals:
        return []
    ended = [Ended(status=Status.STOPPED, reason=wish.text or STOPPED)] if wish.action is Action.STOP else []
    return [*events(state, wish), *ended]
