"""All operators of a run together: seeds at its beginning, then for each request the operator that the bandit gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import CaptureError, DesignError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.evolve.vary import bandit, rules
from kernellab.evolve.vary.composed import composed
from kernellab.evolve.vary.models import KIND, Asked, ModelOperator
from kernellab.evolve.vary.rules import Variation
from kernellab.models.exchanges import Exchange
from kernellab.records import Author
from kernellab.target import Target
from kernellab.task import Task
from kernellab.tuning.space import Space

_Question = tuple[str, tuple[int, ...], tuple[int, ...]]

#: the rules' designs that a run begins with, in addition to what a person gives
MOST_SEEDS = 12


@dataclass(frozen=True)
class Ask:
    """A request to a model that is ready to be sent, from any thread."""

    operator: str
    send: Callable[[], Reply]


@dataclass(frozen=True)
class Made:
    """Proposals that can be evaluated now, and requests to a model."""

    proposals: list[Proposal] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """Proposals by a model, one or more, without their numbers and round; and what was said for them."""

    proposals: tuple[Proposal, ...]
    exchanges: tuple[Exchange, ...] = ()


@dataclass
class Mix:
    """Makes a run's proposals. ``model`` gives a model's operators by its spec, None for no model."""

    task: Task
    target: Target
    model: Callable[[str], ModelOperator | None] = lambda spec: None
    allow_library: bool = False
    #: proposals from the memory, in addition to the rules' designs that it is given
    remember: Callable[[Sequence[str]], list[Proposal]] = lambda designs: []

    @cached_property
    def space(self) -> Space:
        """What the cost model says of sketches of the task."""
        return Space(self.task, self.target)

    def seeds(self, state: RunState) -> Made:
        """What a person gave and the rules' designs, dealt to the islands in turn; a model's where there is neither.

        Raises:
            DesignError, CaptureError: the rules cannot design the task, and no one else can.
        """
        given, model = list(state.begun.given), next(iter(self._players(state)), None)
        islands = sorted(state.islands)
        brief = DesignBrief(self.task, self.target, allow_library=self.allow_library)
        try:
            designs = RulesDesigner().designs(brief)[:MOST_SEEDS]
        except (DesignError, CaptureError):
            if not given and model is None:
                raise
            if not given and model is not None:
                send = partial(model.answer, brief)
                return Made(asks=[_ask(send, Request(island, ()), model.seed) for island in islands])
            designs = []
        made = [
            Proposal(
                number=0, round=0, island=0, operator="seed", sketch=reply.sketch, why=reply.rationale,
                library=bool(reply.library_calls), rewritten=reply.rewritten,
            )
            for reply in designs
        ]  # fmt: skip
        whole = [*given, *made[:1], *self._composed(state, made[:1], len(given)), *made[1:]]
        whole += self.remember([reply.sketch for reply in designs])
        return Made([
            proposal.model_copy(update={"number": number, "island": islands[number % len(islands)]})
            for number, proposal in enumerate(whole)
        ])  # fmt: skip

    def _composed(self, state: RunState, first: Sequence[Proposal], number: int) -> list[Proposal]:
        """What several moves make of the first design, which gets this ``number``."""
        return [
            seed.model_copy(update={
                "operator": found.operator, "sketch": found.sketch, "parents": (number,),
                "why": f"It {'; '.join(found.why)}.",
            })
            for seed in first
            for found in composed(seed.sketch, self.space, self.operators(state))
        ]  # fmt: skip

    def operators(self, state: RunState) -> list[str]:
        """What may vary a candidate in this run: all that there is, or what the knobs name, whole or by kind; who has a
        share takes part."""
        known = [(name, name.partition(":")[0]) for name in rules.operators(self.target)]
        known += [(name, KIND) for player in self._players(state) for name in player.operators]
        wanted, shares = state.knobs.operators, state.knobs.shares
        return [name for name, kind in known if not wanted or name in wanted or kind in wanted or _spec(name) in shares]

    def _players(self, state: RunState) -> list[ModelOperator]:
        """The search's model, and who varies candidates by ``vary``."""
        found = (self.model(spec) for spec in dict.fromkeys((state.model, *state.knobs.shares)))
        return [player for player in found if player is not None]

    def propose(self, state: RunState, requests: Sequence[Request], first: int, under_way: Sequence[str] = ()) -> Made:
        """At most one proposal for each request, by rules those numbered from ``first``; none repeats another.

        ``under_way`` are the operators of candidates that are evaluated or asked for by now.
        """
        known = state.proposals
        taken, pending, asked, made = set(state.once(rules.taken)), list(under_way), set[_Question](), Made()
        for at, request in enumerate(requests):
            found = self._varied(state, request, Random(f"{state.knobs.seed}:{first}:{at}"), taken, pending, asked)
            if isinstance(found, Variation):
                taken |= rules.keys_of(found.sketch)
                pending.append(found.operator)
                # what the rules may do in a design, they may in its variants
                origins = [known[n] for n in (*request.parents, *request.inspirations)]
                made.proposals.append(
                    Proposal(
                        number=first + len(made.proposals), round=state.round, island=request.island,
                        operator=found.operator, parents=request.parents, inspirations=request.inspirations,
                        sketch=found.sketch, why=found.why, library=any(p.library for p in origins),
                        rewritten=any(p.rewritten for p in origins),
                    )
                )  # fmt: skip
            elif found is not None:
                pending.append(found)
                asked.add(_question(request, found))
                model = self.model(_spec(found))
                assert model is not None
                made.asks.append(_ask(model.ask(state, request, found), request, found))
        return made

    def _varied(
        self, state: RunState, request: Request, random: Random, taken: set[str], pending: list[str],
        asked: Collection[_Question],
    ) -> Variation | str | None:  # fmt: skip
        """By the first operator that has something new; its name where that is a model's, which is asked nothing twice
        at once."""
        for operator in bandit.order(state, self.operators(state), pending):
            model = self.model(_spec(operator)) if not rules.is_rule(operator) else None
            if model is not None:
                if _question(request, operator) not in asked and model.suits(state, request, operator):
                    return operator
                continue
            found = self.by_rule(state, request, operator, random, taken)
            if found is not None:
                return found
        return None

    def by_rule(
        self, state: RunState, request: Request, operator: str, random: Random, taken: set[str]
    ) -> Variation | None:
        """A child of the request's first parent by one operator of rules; None where it has none that is new."""
        return rules.vary(state, request, operator, random, self.space, taken)


def _spec(operator: str) -> str:
    """The model or agent of an operator; "" for a rule."""
    return operator.rpartition("/")[0]


def _question(request: Request, operator: str) -> _Question:
    """What decides a prompt: two of the same say the same."""
    return operator, request.parents, request.inspirations


def _ask(send: Callable[[], Asked], request: Request, operator: str) -> Ask:
    return Ask(operator, partial(_reply, send, request, operator))


def _reply(send: Callable[[], Asked], request: Request, operator: str) -> Reply:
    asked = send()
    first, *others = (
        Proposal(
            number=0, round=0, island=request.island, operator=operator, parents=request.parents,
            inspirations=request.inspirations, author=Author.MODEL, sketch=design.sketch, why=design.why,
        )
        for design in asked.designs
    )  # fmt: skip
    # one answer costs what it costs, however many candidates are in it
    first = first.model_copy(update={"seconds": asked.seconds, "usage": asked.usage})
    return Reply((first, *others), asked.exchanges)
