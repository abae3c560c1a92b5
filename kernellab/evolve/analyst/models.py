"""The Analyst by a model: sentences after a round, whose numbers must be in the run's record."""

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

#: Number of candidates that the model sees: the fastest, and the last that failed.
_BEST, _FAILED = 4, 3


def analyst(models: Models, record: Callable[[Exchange], None]) -> Callable[[RunState], Plan]:
    """Return the function that makes the next round's plan: by the model that takes part then, or the rules."""

    def analyse(state: RunState) -> Plan:
        model = models(state.model) if state.knobs.analyst == "model" else None
        return model_plan(model, record)(state) if model is not None else plan(state)

    return analyse


def model_plan(model: ModelOperator, record: Callable[[Exchange], None]) -> Callable[[RunState], Plan]:
    """Return the function that makes the next round's plan: the rules' findings, then the model's sentences.

    A sentence whose numbers are not in the record is returned once and then omitted
    (:class:`kernellab.agents.model.ModelAnalyst`); if the model is not available, only the rules' text remains.
    """

    def analyse(state: RunState) -> Plan:
        rules_plan = plan(state)
        try:
            chat_model = open_model(model.spec, Role.ANALYST, model.settings)
            talk = Talk(chat_model, Role.ANALYST, record, model.budget, model.cancel, lambda text: None)
            explanation = make_role(Role.ANALYST, model.spec, talk).analyse(brief(model, state, rules_plan)).text
        except KernellabError:
            return rules_plan
        return rules_plan.model_copy(
            update={"text": f"{rules_plan.text} {explanation}".strip(), "author": Author.MODEL}
        )

    return analyse


def brief(model: ModelOperator, state: RunState, found: Plan) -> AnalyseBrief:
    """Make the brief: the verdicts as the history; the rules' findings, and the scores of the fastest and of the last
    failures, as the question."""
    best = state.best()
    fastest = state.population()[:_BEST]
    failed = [n for n, e in state.evaluations.items() if not e.passed and e.same_as is None][-_FAILED:]
    verified = [n for n in reversed(fastest) if n in state.verdicts]
    lines = [f"Round {state.round} of a search is over. {found.text}".strip()]
    if verified:
        numbers = ", ".join(map(str, verified))
        lines.append(f"The rounds above are the verdicts on these candidates of it, in this order: {numbers}.")
    lines += ["The fastest, best first, by all that was measured of each:", *(relative(state, n) for n in fastest)]
    lines += ["The last that failed:", *(relative(state, n) for n in failed)] if failed else ["None has failed."]
    lines.append("Say in three sentences what the fast ones have, what failed and why, and where the next may look.")
    return AnalyseBrief(
        model.task, model.target, history=tuple(attempt(state, number) for number in verified),
        notes=tuple(filter(None, (state.direction, state.scratchpad))), allow_library=model.allow_library,
        best=state.verdicts.get(best) if best is not None else None, question="\n".join(lines),
    )  # fmt: skip
