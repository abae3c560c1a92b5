"""When a session asks a person: after which turns, and before a turn with an expected cost above a limit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

from kernellab.errors import SessionError
from kernellab.options.approval import Approval
from kernellab.records import Author, Role, RouteKind
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State

#: Returns whether a person is asked after a turn.
Stops = Callable[[Turn], bool]

#: The name of a policy that is a function.
PREDICATE = "predicate"
#: The turn that an approval of the first turn names; the first turn has no parent.
START = ""


def stops(approval: Approval, turn: Turn) -> bool:
    """Whether a person is asked after ``turn``. ``routing`` means every proposal except a finish."""
    if "all" in approval.words or turn.role.value in approval.words:
        return True
    return "routing" in approval.words and turn.route is not None and turn.route.to is not RouteKind.FINISH


def approval_of(approval: str) -> Approval:
    """Return the policy named in a session's journal; the name of a function acts as ``routing``."""
    try:
        return Approval.parse(approval)
    except SessionError:
        return Approval(frozenset(("routing",)))


def stops_for(approval: str) -> Stops:
    """Return the predicate of ``approval``: the turns after which it asks."""
    return partial(stops, approval_of(approval))


@dataclass(frozen=True)
class Expected:
    """A turn's expected cost: medians over the session's turns of the same role, by rules or by others; None before the
    first such turn. Rules, recordings and the judge use no tokens."""

    player: str
    seconds: float | None = None
    tokens: float | None = None
    usd: float | None = None

    @property
    def free(self) -> bool:
        return self.tokens == 0


def expected(state: State, role: Role) -> Expected:
    """Return the expected cost of a turn of ``role``."""
    player = "judge" if role is Role.VERIFIER else state.roles.get(role, "rules")
    turns = [
        turn for turn in state.turns.values()
        if turn.role is role and turn.state is TurnState.DONE and turn.reused is None
        and not turn.placed and not turn.only_pins
        and (role is Role.VERIFIER or (turn.author is Author.RULES) == (player == "rules"))
    ]  # fmt: skip
    seconds = median(turn.seconds for turn in turns) if turns else None
    if player in ("judge", "rules") or (player.startswith("replay:") and ">" not in player):
        return Expected(player, seconds, 0, 0)
    spent = [usages for turn in turns if (usages := [e.usage for e in state.exchanges(turn.id)])]
    totals = [sum(u.input_tokens + u.output_tokens for u in usages) for usages in spent]
    prices = [sum(u.usd or 0.0 for u in usages) for usages in spent if all(u.usd is not None for u in usages)]
    return Expected(player, seconds, median(totals) if any(totals) else None, median(prices) if prices else None)


def too_costly(state: State, role: Role) -> str:
    """Return why a person is asked before ``role``'s turn, in a sentence; "" if they are not.

    If tokens or dollars are limited, this includes a player that uses tokens and has had no turn yet.
    """
    limits = approval_of(state.approval)
    cost = expected(state, role)
    name = f"the {role.value} ({cost.player})"
    for limit, value, unit, form in (
        (limits.tokens, cost.tokens, "tokens", ",.0f"),
        (limits.usd, cost.usd, "dollars", ".2g"),
        (limits.minutes, None if cost.seconds is None else cost.seconds / 60, "minutes", ".2g"),
    ):
        if limit is None:
            continue
        if value is None and unit != "minutes":
            return f"What {name} costs in {unit} is not known: it has taken no turn yet, or does not tell."
        if value is not None and value > limit:
            return f"A turn of {name} takes about {value:{form}} {unit}; above {limit:{form}} you are asked."
    return ""


def policy_of(approval: str | Stops | None) -> tuple[str, Stops | None]:
    """Return the policy's name, and the predicate if one was given; ``KERNELLAB_APPROVE`` overrides both.

    Raises:
        SessionError: the policy is unknown.
    """
    chosen = os.environ.get("KERNELLAB_APPROVE") or approval or "none"
    if not isinstance(chosen, str):
        return PREDICATE, chosen
    Approval.parse(chosen)
    return chosen, None
