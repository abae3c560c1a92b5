"""All operators of a run together: seeds at its beginning, then for each request the operator that the bandit gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

from kernellab.agents.briefs import DesignBrief
from kernellab.agents.rules.designer import RulesDesigner
from kernellab.errors import CaptureError, DesignError, ModelError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.evolve.vary import bandit, rules
from kernellab.evolve.vary.models import Asked, ModelOperator
from kernellab.evolve.vary.rules import Variation
from kernellab.records import Author, Exchange
from kernellab.target import Target
from kernellab.task import Task

#: the rules' designs that a run begins with, beside what a person gives
MOST_SEEDS = 12


@dataclass
class Mix:
    """Makes a run's proposals. ``record`` keeps what a model was asked for the proposal of that number."""

    task: Task
    target: Target
    model: ModelOperator | None = None
    allow_library: bool = False
    record: Callable[[int | None, Exchange], None] = lambda number, exchange: None
    #: proposals from the memory, beside the rules' designs that it is given
    remember: Callable[[Sequence[str]], list[Proposal]] = lambda designs: []
    #: why the last model request gave nothing
    said: str = ""

    def seeds(self, state: RunState) -> list[Proposal]:
        """What a person gave and the rules' designs, dealt to the islands in turn; a model's where there is neither.

        Raises:
            DesignError, CaptureError: the rules cannot design the task, and nobody else can.
        """
        given = list(state.begun.given)
        brief = DesignBrief(self.task, self.target, allow_library=self.allow_library)
        try:
            designs = RulesDesigner().designs(brief)[:MOST_SEEDS]
        except (DesignError, CaptureError):
            if not given:
                raise
            designs = []
        made = [
            Proposal(number=0, round=0, island=0, operator="seed", sketch=reply.sketch, why=reply.rationale)
            for reply in designs
        ]
        made += self.remember([reply.sketch for reply in designs])
        islands = sorted(state.islands)
        return [
            proposal.model_copy(update={"number": number, "island": islands[number % len(islands)]})
            for number, proposal in enumerate([*given, *made])
        ]

    def operators(self, state: RunState) -> list[str]:
        """What may vary a candidate in this run: all that there is, or what the knobs name, whole or by kind."""
        known = [*rules.operators(), *([self.model.name] if self.model else [])]
        wanted = state.knobs.operators
        return [name for name in known if not wanted or name in wanted or name.partition(":")[0] in wanted]

    def propose(self, state: RunState, requests: Sequence[Request], first: int) -> list[Proposal]:
        """At most one proposal for each request, numbered from ``first``; none repeats another of the run."""
        taken = set(state.keys)
        pending: list[str] = []
        made: list[tuple[Request, Variation | Request]] = []
        for at, request in enumerate(requests):
            found = self._varied(state, request, Random(f"{state.knobs.seed}:{first}:{at}"), taken, pending)
            if found is None:
                continue
            if isinstance(found, Variation):
                taken.add(rules.key_of(found.sketch))
                pending.append(found.operator)
            else:
                pending.append(self.model.name if self.model else "")
            made.append((request, found))
        return self._numbered(state, made, first)

    def _varied(
        self, state: RunState, request: Request, random: Random, taken: set[str], pending: list[str]
    ) -> Variation | Request | None:
        """By the first operator that has something new; the request itself where a model is to be asked."""
        for operator in bandit.order(state, self.operators(state), pending):
            if self.model is not None and operator == self.model.name:
                return request
            found = self.by_rule(state, request, operator, random, taken)
            if found is not None:
                return found
        return None

    def by_rule(
        self, state: RunState, request: Request, operator: str, random: Random, taken: set[str]
    ) -> Variation | None:
        """A child of the request's first parent by one operator of rules; None where it has none that is new."""
        return rules.vary(state, request, operator, random, self.target, taken)

    def _numbered(
        self, state: RunState, made: Sequence[tuple[Request, Variation | Request]], first: int
    ) -> list[Proposal]:
        """The proposals in order. All requests to a model are sent at once."""
        asking = [request for request, found in made if isinstance(found, Request)]
        answers = iter(self._asked(state, asking, first))
        proposals: list[Proposal] = []
        for request, found in made:
            asked = Asked(found) if isinstance(found, Variation) else next(answers)
            if asked.made is None:
                continue
            proposals.append(
                Proposal(
                    number=first + len(proposals),
                    round=state.round,
                    island=request.island,
                    operator=asked.made.operator,
                    parents=request.parents,
                    inspirations=request.inspirations,
                    author=Author.MODEL if isinstance(found, Request) else Author.RULES,
                    sketch=asked.made.sketch,
                    why=asked.made.why,
                    seconds=asked.seconds,
                    usage=asked.usage,
                )
            )
        return proposals

    def _asked(self, state: RunState, requests: Sequence[Request], first: int) -> list[Asked]:
        model = self.model
        if not requests or model is None:
            return []

        def ask(request: Request) -> Asked:
            try:
                return model.vary(state, request, lambda exchange: self.record(first, exchange))
            except ModelError as error:
                self.said = str(error)
                return Asked(None)

        with ThreadPoolExecutor(len(requests), thread_name_prefix="kernellab-ask") as pool:
            return list(pool.map(ask, requests))
