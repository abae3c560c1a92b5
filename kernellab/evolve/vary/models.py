"""Variations by a model in the Designer's role, with the parent, its neighbours, and failures as context."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kernellab.agents.briefs import Attempt, DesignBrief, DesignReply
from kernellab.agents.model.designer import judge_sketch
from kernellab.agents.roles import is_agent, make_role
from kernellab.errors import KernellabError, SketchError
from kernellab.evolve.policies import Request
from kernellab.evolve.records import who_varies
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.prompt_variants import LINEAGE, WAYS, Way, worth
from kernellab.knowledge import Knowledge
from kernellab.memory.transfer import with_values
from kernellab.models import Budget, Talk, added, open_model
from kernellab.models.exchanges import Exchange, Step, Usage
from kernellab.models.settings import ModelSettings
from kernellab.records import Candidate, Role, Route, RouteFact, RouteKind
from kernellab.session.record.events import Note
from kernellab.session.turn.context import Channel, with_tools
from kernellab.target import Target
from kernellab.task import Task

KIND = "model"


#: Number of consecutive answers without gain after which an agent must change course.
STALLED = 2


@dataclass(frozen=True)
class Design:
    """A submitted sketch ("" if none is readable), and its rationale."""

    sketch: str = ""
    why: str = ""


@dataclass(frozen=True)
class Asked:
    """The result of a request: one or more designs, their total cost, and all exchanges."""

    designs: tuple[Design, ...]
    seconds: float = 0.0
    usage: Usage = Usage()
    exchanges: tuple[Exchange, ...] = ()


@dataclass
class ModelOperator:
    """A model as operators, one per way to ask it (:mod:`kernellab.evolve.vary.prompt_variants`)."""

    spec: str
    task: Task
    target: Target
    settings: ModelSettings
    budget: Budget
    allow_library: bool = False
    cancel: threading.Event = field(default_factory=threading.Event)
    #: The folder of an agent's tools, and the run's id.
    workspace: Path | None = None
    run: str = ""
    #: Whether its tools may search the memory.
    memory: bool = True
    #: Receives an agent's steps, and its name.
    told: Callable[[str, Step], None] = lambda who, step: None

    @property
    def operators(self) -> list[str]:
        return [f"{self.spec}/{name}" for name in ((LINEAGE.name,) if self.is_agent else WAYS)]

    @property
    def is_agent(self) -> bool:
        return is_agent(self.spec)

    @property
    def seed(self) -> str:
        """The operator with which it begins a task that the rules cannot design."""
        return f"{self.spec}/seed"

    def suits(self, state: RunState, request: Request, operator: str) -> bool:
        """Whether the request has what this way of asking needs."""
        return _way(operator).suits(state, request)

    def ask(self, state: RunState, request: Request, operator: str) -> Callable[[], Asked]:
        """Return a request that can be sent from any thread: the state is read now. Raises nothing."""
        # a direction that a person decides on meanwhile reaches an agent with its next result
        notes = partial(_as_notes, state)
        agent_name = who_varies(operator, request.parents)
        return partial(self.answer, self.brief(state, request, operator), notes, agent_name)

    def answer(self, brief: DesignBrief, notes: Callable[[], tuple[Note, ...]] = tuple, who: str = "") -> Asked:
        """Return the model's answer to a brief, or why there is none. Raises nothing."""
        began, exchanges = time.perf_counter(), list[Exchange]()
        step = partial(self.told, who or self.seed)
        channel = Channel(cancel=self.cancel, notes=notes, briefed=notes(), step=step)
        try:
            if self.is_agent and self.workspace is not None:
                model = with_tools(
                    self.spec, Role.DESIGNER, self.task, self.workspace, self.settings, self.budget, channel,
                    at=self.target, search=True, memory=self.memory,
                )  # fmt: skip
            else:
                model = open_model(self.spec, Role.DESIGNER, self.settings)
            talk = Talk(model, Role.DESIGNER, exchanges.append, self.budget, self.cancel, lambda text: None)
            reply = make_role(Role.DESIGNER, self.spec, talk, Knowledge.load(self.target)).design(brief)
        except KernellabError as error:
            design = Design(why=f"{self._speaker} gave no sketch: {error.message}")
        else:
            if isinstance(reply, DesignReply):
                design = Design(_settled(reply.sketch, reply.constexpr), reply.rationale)
            else:
                design = Design(why=f"{self._speaker} gave no sketch: {reply.reason}")
        finally:
            for end in reversed(channel.at_end):
                end()
        designs = (design, *(_other(text, brief) for exchange in exchanges for text in exchange.others))
        if any(exchange.shared_machine for exchange in exchanges):
            designs = (Design(why="Left out: the agent shared the machine with the judge that works meanwhile."),)
        usage = Usage()
        for exchange in exchanges:
            usage = added(usage, exchange.usage)
        return Asked(designs, time.perf_counter() - began, usage, tuple(exchanges))

    @property
    def _speaker(self) -> str:
        return "The agent" if self.is_agent else "The model"

    def brief(self, state: RunState, request: Request, operator: str) -> DesignBrief:
        """Make the brief: the parent as the sketch to revise, its verdict as the history, and the way's additions."""
        parent, instructions = request.parents[0], _way(operator).instructions(state, request)
        best = state.best()
        verdict = state.verdicts.get(best) if best is not None else None
        learnt = f"What the search has learnt: {state.plan.text}" if state.plan.text else ""
        run_text = f"The search is {self.run}." if self.is_agent and self.run else ""
        stalled = _stalled(state, operator) if self.is_agent else ""
        suggestion = " ".join(filter(None, (instructions.wanted, stalled, learnt, run_text)))
        return DesignBrief(
            task=self.task,
            target=self.target,
            history=(attempt(state, parent),) if parent in state.verdicts else (),
            notes=_directions(state),
            headroom=verdict.bound_share if verdict else None,
            bound_ms=verdict.sol_ms if verdict else None,
            allow_library=self.allow_library,
            route=Route(
                to=RouteKind.DESIGNER,
                error_class="performance",
                reason=f"Candidate {parent} has {worth(state, parent)}; a faster one is searched for.",
                suggestion=suggestion,
                facts=tuple(RouteFact(text=line) for line in instructions.evidence),
            ),
            previous=instructions.previous or None,
        )


@dataclass
class Models:
    """The models of a run by their specs: a person may change them during the run. ``usual`` has common settings."""

    usual: ModelOperator
    _made: dict[str, ModelOperator] = field(default_factory=dict)

    def __call__(self, spec: str) -> ModelOperator | None:
        """Return the operator of a model; None for no model."""
        if spec and spec not in self._made:
            self._made[spec] = replace(self.usual, spec=spec)
        return self._made.get(spec)


def attempt(state: RunState, number: int) -> Attempt:
    """A candidate of the run in the form of a role's history."""
    proposal = state.proposals[number]
    candidate = None
    if proposal.source is not None:
        candidate = Candidate(id=f"p{number}", source=proposal.source, sketch=proposal.sketch or None)
    return Attempt(candidate=candidate, sketch=proposal.sketch or None, verdict=state.verdicts.get(number))


def _way(operator: str) -> Way:
    name = operator.rpartition("/")[2]
    return LINEAGE if name == LINEAGE.name else WAYS[name]


def _directions(state: RunState) -> tuple[str, ...]:
    """A person's directions for proposals: the direction, as accepted or edited, and the notes."""
    return tuple(filter(None, (state.direction, state.scratchpad)))


def _as_notes(state: RunState) -> tuple[Note, ...]:
    return tuple(Note(text=text) for text in _directions(state))


def _stalled(state: RunState, operator: str) -> str:
    """The redirection of an agent whose last answers gained nothing (supervision as in AVO); "" otherwise."""
    numbers = [n for n in state.evaluations if state.proposals[n].operator == operator]
    last = numbers[-STALLED:]
    if len(last) < STALLED or any(state.worth(n) > state.worth(state.proposals[n].parents[0]) for n in last):
        return ""
    course = "A person's notes say where to look." if state.direction else "Look where the search has found gains."
    names = " and ".join(f"{n}" for n in last)
    return f"Your candidates {names} gained nothing: leave that line of work and change course. {course}"


def _other(text: str, brief: DesignBrief) -> Design:
    """A further answer of the same request. The agent has ended, so a wrong answer is not returned to it."""
    judged = judge_sketch(text, brief, shown=brief.previous)
    if judged.answer is None or judged.breach:
        return Design(why=f"The agent gave no sketch: {judged.problem} {' '.join(judged.findings[:1])}".strip())
    return Design(_settled(judged.answer.sketch, judged.answer.constexpr or {}), judged.answer.rationale)


def _settled(sketch: str, constexpr: Mapping[str, int | float]) -> str:
    """Return the sketch with the chosen values of its tunables."""
    try:
        return with_values(sketch, constexpr) if constexpr else sketch
    except SketchError:
        return sketch
