"""The Analyst by a model: words after a round, whose numbers must stand in the run's record."""

from __future__ import annotations

from collections.abc import Callable

from kernellab.agents.briefs import AnalyseBrief
from kernellab.agents.roles import make_role
from kernellab.errors import KernellabError
from kernellab.evolve.analyst.rules import plan
from kernellab.evolve.records import Plan
from kernellab.evolve.state import RunState
from kernellab.evolve.vary.models import ModelOperator, Models, attempt
from kernellab.evolve.vary.prompt_variants import relative
from kernellab.models import Talk, open_model
from kernellab.models.exchanges import Exchange
from kernellab.records import Author, Role

#: candidates that the model is shown: the fastest, and the last that failed
_BEST, _FAILED = 4, 3


def analyst(models: Models, record: Callable[[Exchange], None]) -> Callable[[RunState], Plan]:
    """Who says after a round what the next one receives: the model that takes part then, else the rules alone."""

    def analyse(state: RunState) -> Plan:
        model = models(state.model) if state.knobs.analyst == "model" else None
        return model_plan(model, record)(state) if model is not None else plan(state)

    return analyse


def model_plan(model: ModelOperator, record: Callable[[Exchange], None]) -> Callable[[RunState], Plan]:
    """What the next round receives: the rules' findings, then what the model makes of them.

    A sentence whose numbers the record does not hold is sent back once and then left out
    (:class:`kernellab.agents.model.ModelAnalyst`); where the model cannot be asked, the rules' words stand alone.
    """

    def analyse(state: RunState) -> Plan:
        found = plan(state)
        try:
            asked = open_model(model.spec, Role.ANALYST, model.settings)
            talk = Talk(asked, Role.ANALYST, record, model.budget, model.cancel, lambda text: None)
            said = make_role(Role.ANALYST, model.spec, talk).analyse(brief(model, state, found)).text
        except KernellabError:
            return found
        return found.model_copy(update={"text": f"{found.text} {said}".strip(), "author": Author.MODEL})

    return analyse


def brief(model: ModelOperator, state: RunState, found: Plan) -> AnalyseBrief:
    """The verdicts as the history; the rules' findings, and what the fastest and the last failures scored, as the
    question."""
    best = state.best()
    fastest = state.population()[:_BEST]
    failed = [n for n, e in state.evaluations.items() if not e.passed and e.same_as is None][-_FAILED:]
    judged = [n for n in reversed(fastest) if n in state.verdicts]
    lines = [f"Round {state.round} of a search is over. {found.text}".strip()]
    if judged:
        named = ", ".join(map(str, judged))
        lines.append(f"The rounds above are the verdicts on these candidates of it, in this order: {named}.")
    lines += ["The fastest, best first, by all that was measured of each:", *(relative(state, n) for n in fastest)]
    lines += ["The last that failed:", *(relative(state, n) for n in failed)] if failed else ["None has failed."]
    lines.append("Say in three sentences what the fast ones have, what failed and why, and where the next may look.")
    return AnalyseBrief(
        model.task, model.target, history=tuple(attempt(state, number) for number in judged),
        notes=tuple(filter(None, (state.direction, state.scratchpad))), allow_library=model.allow_library,
        best=state.verdicts.get(best) if best is not None else None, question="\n".join(lines),
    )  # fmt: skip
