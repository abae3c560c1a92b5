"""Variations by a model: the Designer's role, told what the parent is, what is near it, and what failed there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernellab.agents.briefs import Attempt, DesignBrief, DesignReply
from kernellab.agents.roles import make_role
from kernellab.evolve.policies import Request
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.rules import Variation
from kernellab.knowledge import Knowledge
from kernellab.models import Budget, Talk, added, open_model
from kernellab.models.settings import ModelSettings
from kernellab.records import Candidate, Exchange, Role, Route, RouteKind, Usage
from kernellab.target import Target
from kernellab.task import Task

KIND = "model"
#: relatives that failed and are told to the model
_FAILED = 3


@dataclass(frozen=True)
class Asked:
    """A variation and what it cost."""

    made: Variation | None
    seconds: float = 0.0
    usage: Usage = Usage()


@dataclass
class ModelOperator:
    """A model as an operator. ``record`` writes each exchange into the run's stream."""

    spec: str
    task: Task
    target: Target
    settings: ModelSettings
    budget: Budget
    allow_library: bool = False
    cancel: threading.Event = field(default_factory=threading.Event)

    @property
    def name(self) -> str:
        return self.spec

    def vary(self, state: RunState, request: Request, record: Callable[[Exchange], None]) -> Asked:
        """
        Raises:
            ModelError: the model cannot be asked, or gave no answer that can be read.
        """
        usage, began = Usage(), time.perf_counter()

        def heard(exchange: Exchange) -> None:
            nonlocal usage
            usage = added(usage, exchange.usage)
            record(exchange)

        model = open_model(self.spec, Role.DESIGNER, self.settings)
        talk = Talk(model, Role.DESIGNER, heard, self.budget, self.cancel, lambda text: None)
        designer = make_role(Role.DESIGNER, self.spec, talk, Knowledge.load(self.target))
        reply = designer.design(self.brief(state, request))
        made = None
        if isinstance(reply, DesignReply):
            made = Variation(self.name, reply.sketch, reply.rationale)
        return Asked(made, time.perf_counter() - began, usage)

    def brief(self, state: RunState, request: Request) -> DesignBrief:
        """The parent as the sketch to revise; relatives that failed and inspirations as the history."""
        parent = request.parents[0]
        failed = [n for n in state.children(parent) if n in state.evaluations and not state.evaluations[n].passed]
        told = [*failed[-_FAILED:], *request.inspirations, parent]
        best = state.best()
        verdict = state.verdicts.get(best) if best is not None else None
        return DesignBrief(
            task=self.task,
            target=self.target,
            history=tuple(attempt(state, number) for number in told),
            notes=tuple(filter(None, (state.direction, state.scratchpad))),
            headroom=verdict.bound_share if verdict else None,
            bound_ms=verdict.sol_ms if verdict else None,
            allow_library=self.allow_library,
            route=Route(
                to=RouteKind.DESIGNER,
                error_class="performance",
                reason=f"Candidate {parent} has {state.worth(parent):.2f}x; a faster one is searched.",
                suggestion=state.plan.text,
                evidence=[_relative(state, number) for number in (*request.inspirations, *failed[-_FAILED:])],
            ),
            previous=state.proposals[parent].sketch or None,
        )


def attempt(state: RunState, number: int) -> Attempt:
    """A candidate of the run as a role's history shows it."""
    proposal = state.proposals[number]
    candidate = None
    if proposal.source is not None:
        candidate = Candidate(id=f"p{number}", source=proposal.source, sketch=proposal.sketch or None)
    return Attempt(candidate=candidate, sketch=proposal.sketch or None, verdict=state.verdicts.get(number))


def _relative(state: RunState, number: int) -> str:
    proposal, evaluation = state.proposals[number], state.evaluations[number]
    came = f"{state.worth(number):.2f}x" if evaluation.passed else f"failed at {evaluation.step.value}"
    return f"Candidate {number} ({proposal.operator}: {proposal.why}): {came}. {evaluation.reason}".strip()
