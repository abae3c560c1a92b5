"""Which operator varies next: a bandit that credits an operator with the improvement that it brought for its cost.

An operator's worth is the mean logarithm of its children's speedup over their parents, losses counted as nothing,
over what making and evaluating them cost; upper confidence bounds (Auer et al. 2002) see to it that none is forgotten.
They are taken of groups first, and then of the operators of each: of the rules and of the model, so that two dozen
rewrites do not stand against one good reply; and of the rules that change numbers and those that change structure,
which are many more and gain less often. The rules and the model each keep a share of the proposals whatever the other
brings. The seconds that a model takes to answer are no cost, as candidates are evaluated meanwhile; its tokens are. An
agent's seconds are a cost: its tools build and judge on this machine, and few agents report all of their tokens. All of
it is read from the run's state, so a run that is opened again continues as it would have. Where no candidate is
measured each costs the same, so that the seed alone decides, not how busy the machine was.
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
#: weight of what is little tried
EXPLORE = 1.0
#: what an operator that the round's plan or a person's direction prefers gets in addition to its own worth
PREFERRED = 0.3
#: of the proposals, what the rules and a model have at least where both take part: the rules cost no tokens, and a
#: person who gives a model a budget wants it heard
SHARES = {KIND: 0.25, _MODEL: 0.125}
#: tokens that count as a second: a hosted model's price of them is near that of a second of a rented GPU
TOKENS_A_SECOND = 200


@dataclass
class Arm:
    """What an operator has done: children evaluated, the sum of their gains, seconds, tokens, and what counts as cost.

    ``cost`` is in seconds, those included that its tokens count as.
    """

    tries: int = 0
    gain: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    cost: float = 0.0

    @property
    def rate(self) -> float:
        return self.gain / self.cost if self.cost else 0.0

    def add(self, other: Arm) -> None:
        self.tries += other.tries
        self.gain += other.gain
        self.seconds += other.seconds
        self.tokens += other.tokens
        self.cost += other.cost


def arms(state: RunState) -> dict[str, Arm]:
    """Every operator that has made a candidate from another, with what came of it."""
    found: dict[str, Arm] = {}
    measured = state.knobs.score == "rank"
    # by number: sums of figures in the order of arrival differ in their last digits
    for number, evaluation in sorted(state.evaluations.items()):
        proposal = state.proposals[number]
        if not proposal.parents:
            continue
        before, after = state.worth(proposal.parents[0]), state.worth(number)
        gained = before > 0 and after > 0 and state.alive(number)
        seconds = evaluation.seconds + (proposal.seconds if is_agent(proposal.operator) else 0.0)
        tokens = proposal.usage.input_tokens + proposal.usage.output_tokens
        found.setdefault(proposal.operator, Arm()).add(
            Arm(
                tries=1, gain=min(1.0, max(0.0, math.log(after / before))) if gained else 0.0,
                seconds=seconds, tokens=tokens, cost=(seconds if measured else 1.0) + tokens / TOKENS_A_SECOND,
            )
        )  # fmt: skip
    return found


def order(state: RunState, operators: Sequence[str], pending: Iterable[str] = ()) -> list[str]:
    """``operators``, the most promising first. ``pending`` are those of proposals that are not evaluated yet."""
    known, waiting = state.once(arms), Counter(pending)
    preferred = {*state.plan.prefer, *state.directed}
    shares = {**SHARES, **state.knobs.shares}
    kinds = _groups(operators, lambda name: KIND if is_rule(name) else _player(name, state.knobs.shares))
    whole = _wholes(kinds, known, waiting)
    short = {kind for kind in kinds if whole.tries(kind) < shares[kind] * (whole.total + 1)}
    # of two that have too little at the beginning, the one that costs no tokens
    first = sorted(kinds, key=lambda kind: (kind not in short, kind != KIND if short else -whole.bound(kind)))
    found = []
    for kind in first:
        groups = _groups(kinds[kind], changes_numbers)
        inside = _wholes(groups, known, waiting)
        # what the evidence names is tried once before numbers are
        moves = state.round == 1 and any(n in preferred and n not in known for n in groups.get(False, ()))
        for group in sorted(groups, key=lambda group: (group and moves, -inside.bound(group), not group)):
            found += _ordered(groups[group], known, waiting, preferred)
    return found


def _player(operator: str, shares: Collection[str]) -> str:
    """Whose share the operator takes: an agent's or a model's by ``vary``, or that of the search's model."""
    spec = operator.rpartition("/")[0]
    return spec if spec in shares else _MODEL


def _groups(names: Iterable[str], group: Callable[[str], Group]) -> dict[Group, list[str]]:
    found: dict[Group, list[str]] = {}
    for name in names:
        found.setdefault(group(name), []).append(name)
    return found


def _wholes(groups: Mapping[Group, Sequence[str]], known: Mapping[str, Arm], waiting: Counter[str]) -> _Arms[Group]:
    """Each group as one arm."""
    return _Arms(
        {group: _sum(known, names) for group, names in groups.items()},
        Counter({group: sum(waiting[name] for name in names) for group, names in groups.items()}),
    )


def _ordered(
    names: Sequence[str], known: Mapping[str, Arm], waiting: Counter[str], preferred: Collection[str]
) -> list[str]:
    inside = _Arms({name: known[name] for name in names if name in known}, Counter({n: waiting[n] for n in names}))

    def worth(name: str) -> float:
        return inside.bound(name) + (PREFERRED if name in preferred else 0.0)

    return sorted(names, key=lambda name: (-worth(name), names.index(name)))


def _sum(known: Mapping[str, Arm], names: Iterable[str]) -> Arm:
    whole = Arm()
    for name in names:
        whole.add(known.get(name, Arm()))
    return whole


@dataclass
class _Arms(Generic[Group]):
    """Arms next to one another, with how often each is being tried."""

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
        """Its rate compared with the best one's, and what little trying adds."""
        rate = self.known.get(name, Arm()).rate / self.best
        return rate + EXPLORE * math.sqrt(math.log(self.total + 2) / (1 + self.tries(name)))
