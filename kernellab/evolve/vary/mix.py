"""All operators of a run: seeds at its beginning, then for each request the operator that the bandit chooses.

A request names an island and parents. A rule answers it at once with a proposal; a model gets an :class:`Ask`, which
the scheduler sends on another thread, so that candidates are evaluated meanwhile.
"""

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

#: Maximum number of the rules' designs with which a run begins, in addition to a person's.
MOST_SEEDS = 12


@dataclass(frozen=True)
class _Question:
    """A prompt's identity: equal values give equal prompts."""

    operator: str
    parents: tuple[int, ...]
    inspirations: tuple[int, ...]

    @classmethod
    def of(cls, request: Request, operator: str) -> _Question:
        return cls(operator, request.parents, request.inspirations)


@dataclass(frozen=True)
class Ask:
    """A request to a model that can be sent from any thread."""

    operator: str
    send: Callable[[], Reply]


@dataclass(frozen=True)
class Made:
    """Proposals that can be evaluated now, and requests to a model."""

    proposals: list[Proposal] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)


@dataclass(frozen=True)
class Reply:
    """One or more proposals by a model, without their numbers and round; and the exchanges that led to them."""

    proposals: tuple[Proposal, ...]
    exchanges: tuple[Exchange, ...] = ()


@dataclass
class Mix:
    """Makes a run's proposals. ``model`` returns a model's operators by its spec, None for no model."""

    task: Task
    target: Target
    model: Callable[[str], ModelOperator | None] = lambda spec: None
    allow_library: bool = False
    #: Proposals from the memory, in addition to the given designs of the rules.
    remember: Callable[[Sequence[str]], list[Proposal]] = lambda designs: []

    @cached_property
    def space(self) -> Space:
        """The cost model's values for sketches of the task."""
        return Space(self.task, self.target)

    def seeds(self, state: RunState) -> Made:
        """A person's seeds and the rules' designs, distributed over the islands; a model's seeds if there are neither.

        Raises:
            DesignError, CaptureError: the rules cannot design the task, and there is no other designer.
        """
        given_seeds, model = list(state.begun.given), next(iter(self._players(state)), None)
        islands = sorted(state.islands)
        brief = DesignBrief(self.task, self.target, allow_library=self.allow_library)
        try:
            designs = RulesDesigner().designs(brief)[:MOST_SEEDS]
        except (DesignError, CaptureError):
            if not given_seeds and model is None:
                raise
            if not given_seeds and model is not None:
                send = partial(model.answer, brief)
                return Made(asks=[_ask(send, Request(island, ()), model.seed) for island in islands])
            designs = []
        by_rules = [
            Proposal(
                number=0, round=0, island=0, operator="seed", sketch=reply.sketch, why=reply.rationale,
                library=bool(reply.library_calls), rewritten=reply.rewritten,
            )
            for reply in designs
        ]  # fmt: skip
        proposals = [*given_seeds, *by_rules[:1], *self._composed(state, by_rules[:1], len(given_seeds)), *by_rules[1:]]
        proposals += self.remember([reply.sketch for reply in designs])
        return Made([
            proposal.model_copy(update={"number": number, "island": islands[number % len(islands)]})
            for number, proposal in enumerate(proposals)
        ])  # fmt: skip

    def _composed(self, state: RunState, first: Sequence[Proposal], number: int) -> list[Proposal]:
        """The compositions of several moves on the first design, which gets this ``number``."""
        return [
            seed.model_copy(update={
                "operator": composition.operator, "sketch": composition.sketch, "parents": (number,),
                "why": f"It {'; '.join(composition.why)}.",
            })
            for seed in first
            for composition in composed(seed.sketch, self.space, self.operators(state))
        ]  # fmt: skip

    def operators(self, state: RunState) -> list[str]:
        """The operators of this run: all, or those that the knobs name by name or by kind; an operator with a share
        always takes part."""
        kind_by_name = dict.fromkeys(rules.operators(self.target), rules.KIND)
        kind_by_name |= {name: KIND for player in self._players(state) for name in player.operators}
        named, shares = state.knobs.operators, state.knobs.shares
        return [
            name for name, kind in kind_by_name.items()
            if not named or name in named or kind in named or _spec(name) in shares
        ]  # fmt: skip

    def _players(self, state: RunState) -> list[ModelOperator]:
        """The search's model, and those that have a share in ``vary``."""
        players = (self.model(spec) for spec in dict.fromkeys((state.model, *state.knobs.shares)))
        return [player for player in players if player is not None]

    def propose(self, state: RunState, requests: Sequence[Request], first: int, under_way: Sequence[str] = ()) -> Made:
        """Return at most one proposal per request, rules' numbered from ``first``; none repeats another.

        ``under_way`` are the operators of candidates that are being evaluated or requested.
        """
        used_keys, pending, questions, result = set(state.once(rules.taken)), list(under_way), set[_Question](), Made()
        for index, request in enumerate(requests):
            random = Random(f"{state.knobs.seed}:{first}:{index}")
            variation = self._varied(state, request, random, used_keys, pending, questions)
            if isinstance(variation, Variation):
                used_keys |= rules.keys_of(variation.sketch)
                pending.append(variation.operator)
                number = first + len(result.proposals)
                result.proposals.append(_by_rule_proposal(state, request, variation, number))
            elif variation is not None:
                pending.append(variation.operator)
                questions.add(_Question.of(request, variation.operator))
                result.asks.append(variation)
        return result

    def _varied(
        self, state: RunState, request: Request, random: Random, taken: set[str], pending: list[str],
        asked: Collection[_Question],
    ) -> Variation | Ask | None:  # fmt: skip
        """Vary with the first operator that has something new: a rule's variation, or a request to a model, which is
        not asked the same twice at a time."""
        for operator in bandit.order(state, self.operators(state), pending):
            model = self.model(_spec(operator)) if not rules.is_rule(operator) else None
            if model is None:
                variation = self.by_rule(state, request, operator, random, taken)
                if variation is not None:
                    return variation
            elif _Question.of(request, operator) not in asked and model.suits(state, request, operator):
                return _ask(model.ask(state, request, operator), request, operator)
        return None

    def by_rule(
        self, state: RunState, request: Request, operator: str, random: Random, taken: set[str]
    ) -> Variation | None:
        """Return a new child of the request's first parent by one of the rules' operators; None if there is none."""
        return rules.vary(state, request, operator, random, self.space, taken)


def _spec(operator: str) -> str:
    """The model or agent of an operator; "" for a rule."""
    return operator.rpartition("/")[0]


def _by_rule_proposal(state: RunState, request: Request, variation: Variation, number: int) -> Proposal:
    # what the rules may do in a design, they may in its variants
    origins = [state.proposals[n] for n in (*request.parents, *request.inspirations)]
    return Proposal(
        number=number, round=state.round, island=request.island, operator=variation.operator, parents=request.parents,
        inspirations=request.inspirations, sketch=variation.sketch, why=variation.why,
        library=any(p.library for p in origins), rewritten=any(p.rewritten for p in origins),
    )  # fmt: skip


def _ask(send: Callable[[], Asked], request: Request, operator: str) -> Ask:
    return Ask(operator, partial(_reply, send, request, operator))


def _reply(send: Callable[[], Asked], request: Request, operator: str) -> Reply:
    answer = send()
    first, *rest = (
        Proposal(
            number=0, round=0, island=request.island, operator=operator, parents=request.parents,
            inspirations=request.inspirations, author=Author.MODEL, sketch=design.sketch, why=design.why,
        )
        for design in answer.designs
    )  # fmt: skip
    # the cost of an answer is counted once, however many candidates it contains
    first = first.model_copy(update={"seconds": answer.seconds, "usage": answer.usage})
    return Reply((first, *rest), answer.exchanges)
