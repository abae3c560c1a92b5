"""Chooses the next operator: a bandit that credits operators with their improvement per cost.

An operator's value is the mean logarithm of its children's speedup over their parents, with losses as zero, divided by
the cost of making and evaluating them; upper confidence bounds (Auer et al. 2002) ensure that none is neglected. The
bounds apply to groups first, then to the operators in each: rules and model, so that two dozen rewrites do not compete
with one good reply; and within the rules, those that change numbers and those that change structure, which are more
numerous and gain less often. The rules and the model each keep a minimum share of the proposals. A model's response
time is not a cost, because candidates are evaluated meanwhile; its tokens are. An agent's seconds are a cost: its tools
build and judge on this machine, and few agents report all of their tokens. Everything is computed from the run's
state, so a reopened run continues as before. If no candidate is measured, each costs the same, so that the seed
decides and not the machine's load.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kernellab.agents.roles import is_agent
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.rules import KIND, changes_numbers, is_rule

Group = TypeVar("Group", bound=Hashable)

_MODEL = "model"
#: Weight of little-tried arms.
EXPLORE = 1.0
#: Bonus for an operator that the round's plan or a person's direction prefers.
PREFERRED = 0.3
#: Minimum shares of the proposals of the rules and a model if both take part: the rules cost no tokens, and a person
#: who gives a model a budget wants it used.
SHARES = {KIND: 0.25, _MODEL: 0.125}
#: Tokens that count as one second: a hosted model's price for them is near that of a second of a rented GPU.
TOKENS_A_SECOND = 200


@dataclass
class Arm:
    """The totals of an operator: children evaluated, the sum of their gains, seconds, tokens, and cost.

    ``cost`` is in seconds, including the equivalent of its tokens. ``untold`` counts answers whose tokens no one
    reported.
    """

    tries: int = 0
    gain: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    untold: int = 0
    cost: float = 0.0

    @property
    def rate(self) -> float:
        return self.gain / self.cost if self.cost else 0.0

    def add(self, other: Arm) -> None:
        """Add another arm's totals."""
        self.tries += other.tries
        self.gain += other.gain
        self.seconds += other.seconds
        self.tokens += other.tokens
        self.untold += other.untold
        self.cost += other.cost


def arms(state: RunState) -> dict[str, Arm]:
    """Return every operator that has derived a candidate from another, with its totals."""
    arm_by_name: dict[str, Arm] = {}
    is_measured = state.knobs.score == "rank"
    # by number: floating-point sums in the order of arrival would differ in their last digits
    for number, evaluation in sorted(state.evaluations.items()):
        proposal = state.proposals[number]
        if not proposal.parents:
            continue
        worth_before, worth_after = state.worth(proposal.parents[0]), state.worth(number)
        is_comparable = worth_before > 0 and worth_after > 0 and state.alive(number)
        seconds = evaluation.seconds + (proposal.seconds if is_agent(proposal.operator) else 0.0)
        tokens = proposal.usage.input_tokens + proposal.usage.output_tokens
        arm_by_name.setdefault(proposal.operator, Arm()).add(
            Arm(
                tries=1, gain=min(1.0, max(0.0, math.log(worth_after / worth_before))) if is_comparable else 0.0,
                seconds=seconds, tokens=tokens, untold=proposal.usage.untold,
                cost=(seconds if is_measured else 1.0) + tokens / TOKENS_A_SECOND,
            )
        )  # fmt: skip
    return arm_by_name


def order(state: RunState, operators: Sequence[str], pending: Iterable[str] = ()) -> list[str]:
    """Return ``operators``, the most promising first. ``pending`` are those of proposals without an evaluation."""
    arm_by_name, waiting = state.once(arms), Counter(pending)
    preferred = {*state.plan.prefer, *state.directed}
    shares = {**SHARES, **state.knobs.shares}
    kinds = _groups(operators, lambda name: KIND if is_rule(name) else _player(name, state.knobs.shares))
    kind_arms = _wholes(kinds, arm_by_name, waiting)
    short_kinds = {kind for kind in kinds if kind_arms.tries(kind) < shares[kind] * (kind_arms.total + 1)}
    # of two kinds below their share at the beginning, the one that costs no tokens comes first
    ordered_kinds = sorted(
        kinds, key=lambda kind: (kind not in short_kinds, kind != KIND if short_kinds else -kind_arms.bound(kind))
    )
    result = []
    for kind in ordered_kinds:
        groups = _groups(kinds[kind], changes_numbers)
        group_arms = _wholes(groups, arm_by_name, waiting)
        # a move that the evidence names is tried once before numbers are
        moves = state.round == 1 and any(n in preferred and n not in arm_by_name for n in groups.get(False, ()))
        for group in sorted(groups, key=lambda group: (group and moves, -group_arms.bound(group), not group)):
            result += _ordered(groups[group], arm_by_name, waiting, preferred)
    return result


def _player(operator: str, shares: Collection[str]) -> str:
    """The owner of the operator's share: an agent or model named in ``vary``, or the search's model."""
    spec = operator.rpartition("/")[0]
    return spec if spec in shares else _MODEL


def _groups(names: Iterable[str], group: Callable[[str], Group]) -> dict[Group, list[str]]:
    names_by_group: dict[Group, list[str]] = {}
    for name in names:
        names_by_group.setdefault(group(name), []).append(name)
    return names_by_group


def _wholes(groups: Mapping[Group, Sequence[str]], known: Mapping[str, Arm], waiting: Counter[str]) -> _Arms[Group]:
    """Return each group as one arm."""
    return _Arms(
        {group: _sum(known, names) for group, names in groups.items()},
        Counter({group: sum(waiting[name] for name in names) for group, names in groups.items()}),
    )


def _ordered(
    names: Sequence[str], known: Mapping[str, Arm], waiting: Counter[str], preferred: Collection[str]
) -> list[str]:
    arms_by_name = _Arms(
        {name: known[name] for name in names if name in known}, Counter({n: waiting[n] for n in names})
    )

    def worth(name: str) -> float:
        return arms_by_name.bound(name) + (PREFERRED if name in preferred else 0.0)

    return sorted(names, key=lambda name: (-worth(name), names.index(name)))


def _sum(known: Mapping[str, Arm], names: Iterable[str]) -> Arm:
    total = Arm()
    for name in names:
        total.add(known.get(name, Arm()))
    return total


@dataclass
class _Arms(Generic[Group]):
    """Arms to compare, with the number of pending tries of each."""

    known: Mapping[Group, Arm]
    waiting: Counter[Group]
    best: float = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.best = max((arm.rate for arm in self.known.values()), default=0.0) or 1.0
        self.total = sum(arm.tries for arm in self.known.values()) + sum(self.waiting.values())

    def tries(self, name: Group) -> int:
        return self.known.get(name, Arm()).tries + self.waiting[name]

    def bound(self, name: Group) -> float:
        """Its rate relative to the best one's, plus the exploration bonus."""
        rate = self.known.get(name, Arm()).rate / self.best
        return rate + EXPLORE * math.sqrt(math.log(self.total + 2) / (1 + self.tries(name)))
