"""When a session asks: after which turns, and before a turn that is expected to cost more than a limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from kernellab.errors import KernellabError, SessionError
from kernellab.models.budget import Budget, Limits
from kernellab.options.design import APPROVALS
from kernellab.records import Author, Role, RouteKind
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State

#: says after which turns a person is asked
Stops = Callable[[Turn], bool]

#: the name of a policy that is a function
PREDICATE = "predicate"
#: what an approval of the first turn names, which stands on none
START = ""
_WORDS = (*APPROVALS, *(role.value for role in Role if role is not Role.ANALYST))
_LIMITS = ("tokens", "usd", "minutes")


@dataclass(frozen=True)
class Approval:
    """``words`` name turns to ask after (``routing``, ``all``, a role); ``most`` is what a turn may be expected to cost
    before it is asked for: ``tokens``, ``usd`` and ``minutes``."""

    words: frozenset[str] = frozenset()
    most: Limits = field(default_factory=Limits)

    @classmethod
    def parse(cls, text: str) -> Approval:
        """From ``none``, ``routing``, ``all``, or words and limits such as ``coder,tokens=10k,minutes=1``.

        Raises:
            SessionError: an unknown word, or a limit that is none of tokens, usd and minutes.
        """
        parts = [part for part in (part.strip() for part in text.split(",")) if part]
        limits = [part for part in parts if "=" in part]
        words = frozenset(part for part in parts if "=" not in part)
        remedy = f"Write {', '.join(_WORDS[:3])}, a role, or limits of a turn: coder,tokens=10k,minutes=1."
        if unknown := sorted(words - set(_WORDS)):
            raise SessionError(f"There is no approval policy {unknown[0]!r}.", remedy)
        if "none" in words and len(parts) > 1:
            raise SessionError(f"The approval policy {text!r} asks for nothing and for more.", "Leave 'none' out.")
        if other := [part for part in limits if part.split("=")[0].strip() not in _LIMITS]:
            raise SessionError(f"An approval policy limits {', '.join(_LIMITS)}, not {other[0]!r}.", remedy)
        try:
            return cls(words - {"none"}, Budget.parse(",".join(limits)).limits)
        except KernellabError as error:
            raise SessionError(error.message, remedy) from error

    def stops(self, turn: Turn) -> bool:
        """Is a person asked after ``turn``? ``routing`` is each proposal but a finish."""
        if "all" in self.words or turn.role.value in self.words:
            return True
        return "routing" in self.words and turn.route is not None and turn.route.to is not RouteKind.FINISH


def approval_of(state: State) -> Approval:
    """The session's policy; one by a function, of an earlier process, acts as ``routing``."""
    try:
        return Approval.parse(state.approval)
    except SessionError:
        return Approval(frozenset(("routing",)))


def stops_for(approval: str) -> Stops:
    """After which turns ``approval`` asks; the name of a function acts as ``routing``."""
    try:
        return Approval.parse(approval).stops
    except SessionError:
        return Approval(frozenset(("routing",))).stops


@dataclass(frozen=True)
class Expected:
    """What a turn is expected to take: medians over the session's turns of the same role, by rules or by others; None
    where there is none yet. Rules, recordings and the judge use no tokens."""

    player: str
    seconds: float | None = None
    tokens: float | None = None
    usd: float | None = None

    @property
    def free(self) -> bool:
        return self.tokens == 0


def expected(state: State, role: Role) -> Expected:
    player = "judge" if role is Role.VERIFIER else state.roles.get(role, "rules")
    turns = [
        turn for turn in state.turns.values()
        if turn.role is role and turn.state is TurnState.DONE and turn.reused is None
        and turn.author is not Author.HUMAN and not turn.only_pins
        and (role is Role.VERIFIER or (turn.author is Author.RULES) == (player == "rules"))
    ]  # fmt: skip
    seconds = median(turn.seconds for turn in turns) if turns else None
    if player in ("judge", "rules") or (player.startswith("replay:") and ">" not in player):
        return Expected(player, seconds, 0, 0)
    spent = [usages for turn in turns if (usages := [e.usage for e in state.exchanges(turn.id)])]
    asked = [sum(u.input_tokens + u.output_tokens for u in usages) for usages in spent]
    priced = [sum(u.usd or 0.0 for u in usages) for usages in spent if all(u.usd is not None for u in usages)]
    return Expected(player, seconds, median(asked) if any(asked) else None, median(priced) if priced else None)


def too_costly(state: State, role: Role) -> str:
    """Why a person is asked before ``role``'s turn, in a sentence; "" where they are not.

    A player that uses tokens and has taken no turn yet is asked for where tokens or dollars are limited.
    """
    most = approval_of(state).most
    cost = expected(state, role)
    name = f"the {role.value} ({cost.player})"
    for limit, value, unit, form in (
        (most.tokens, cost.tokens, "tokens", ",.0f"),
        (most.usd, cost.usd, "dollars", ".2g"),
        (most.minutes, None if cost.seconds is None else cost.seconds / 60, "minutes", ".2g"),
    ):
        if limit is None:
            continue
        if value is None and unit != "minutes":
            return f"What {name} costs in {unit} is not known: it has taken no turn yet, or does not tell."
        if value is not None and value > limit:
            return f"A turn of {name} takes about {value:{form}} {unit}; above {limit:{form}} you are asked."
    return ""
