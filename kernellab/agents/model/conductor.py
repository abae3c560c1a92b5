"""The Conductor that a model plays: it judges and advises, evidence decides.

The paper's Conductor classifies an error and routes by the class (Algorithm 1). Here the rules Conductor says first
what the evidence alone allows; where it leaves a choice, the model chooses, and in every case it may write the advice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import RouteBrief
from kernellab.agents.model.conversation import Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt, PromptError
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.route import route_prompt
from kernellab.agents.rules.classify import ErrorClass
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.agents.rules.performance import must_finish
from kernellab.errors import ModelError, ModelFault
from kernellab.records import Author, GateState, Route, RouteKind

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

#: a fault that small sizes do not show, so that a sketch which ran right may still be its cause
_GROWS_WITH_SIZE = frozenset(("accumulate-dtype", "nan"))
#: model faults after which the rules may still route: no key and no person's wish forbids it
_ANSWERABLE = (
    ModelFault.TRUNCATED, ModelFault.FILTERED, ModelFault.EMPTY, ModelFault.GARBAGE, ModelFault.BUDGET,
)  # fmt: skip


class ModelConductor:
    """Asks a model where the work goes next; refuses an answer that the evidence contradicts, and says so."""

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._library = Library(knowledge)
        self._options = options or Options.within(talk, 8_000)

    def prompt(self, brief: RouteBrief) -> Prompt:
        """What the model will be sent. Raises PromptError when it does not fit."""
        return route_prompt(brief, RulesConductor().route(brief), self._library, self._options)

    def route(self, brief: RouteBrief) -> Route:
        """Where the work goes next, why, and what to do there.

        Raises:
            ModelError: the model could not be asked (a key, the network, the budget). An unusable reply is no
                error: the rules' route is taken, and its reason says why.
        """
        brief = replace(brief, ablation=brief.ablation | self._options.ablation)
        rules = RulesConductor().route(brief)
        if rules.to is RouteKind.STOP or "routing" in brief.ablation or _is_the_end(brief, rules):
            # nothing to judge: a pass that is not to be improved, a machine at fault, a loop, no turns left
            return rules
        if len(allowed_routes(brief, rules)) == 1:
            # the evidence leaves no choice, and the rules' advice names its line and dimension
            return rules
        try:
            prompt = route_prompt(brief, rules, self._library, self._options)
            proposed = read_route(Conversation(self._talk, prompt, self._options).ask_json())
        except (ModelError, PromptError, ValueError) as error:
            if isinstance(error, ModelError) and error.kind not in _ANSWERABLE:
                raise
            said = getattr(error, "message", str(error))
            return rules.model_copy(update={"reason": f"{rules.reason} (By rule; the model's answer: {said})"})
        return settle(brief, rules, proposed)


def _is_the_end(brief: RouteBrief, rules: Route) -> bool:
    """Does the session end here whatever a model says? Whether more rounds without a gain pay is a judgement."""
    passed = brief.verdict is not None and brief.verdict.passed
    return rules.to is RouteKind.FINISH and not (passed and not must_finish(brief))


def read_route(data: dict[str, Any]) -> Route:
    """The Route that a reply's object states. Raises ValueError for one that is no route."""
    words = {k: str(data.get(k, "")).strip() for k in ("to", "error_class", "reason", "suggestion")}
    to, error = words["to"].lower(), words["error_class"].lower()
    if to not in {k.value for k in RouteKind}:
        raise ValueError(f"'{words['to']}' is not a role that work can go to.")
    if not words["reason"]:
        raise ValueError("It does not give a reason.")
    known = {c.value for c in ErrorClass}
    return Route(
        to=RouteKind(to), error_class=error if error in known else ErrorClass.NONE.value,
        reason=words["reason"], suggestion=words["suggestion"],
    )  # fmt: skip


def settle(brief: RouteBrief, rules: Route, proposed: Route) -> Route:
    """The proposal where evidence allows it; else the rules' destination, with a sentence on what was refused."""
    allowed = allowed_routes(brief, rules)
    error = rules.error_class if rules.error_class != ErrorClass.NONE.value else proposed.error_class
    if brief.verdict is not None and brief.verdict.passed and proposed.to in (RouteKind.CODER, RouteKind.DESIGNER):
        error = ErrorClass.PERFORMANCE.value
    if proposed.to in allowed:
        suggestion = proposed.suggestion or (rules.suggestion if proposed.to is rules.to else "")
        return proposed.model_copy(update={"error_class": error, "facts": rules.facts, "suggestion": suggestion})
    reason = (
        f"{rules.reason} The model proposed {proposed.to.value} ({proposed.reason}), which this evidence rules out."
    )
    return rules.model_copy(update={"reason": reason})


def allowed_routes(brief: RouteBrief, rules: Route) -> frozenset[RouteKind]:
    """Where the evidence lets the work go. One element: nothing is left to judge."""
    only = frozenset((rules.to,))
    both = frozenset((RouteKind.CODER, RouteKind.DESIGNER))
    gate, verdict = brief.gate, brief.verdict
    if gate is not None and gate.state is GateState.WRONG:
        return only
    if verdict is None:
        # a sketch that cannot be run, or that the Coder could not write: he may try once more
        return both if brief.error else only
    if verdict.passed:
        # it is right: whoever can may make it faster, or it is good enough
        return frozenset(RouteKind(role.value) for role in brief.improvers) | {rules.to, RouteKind.FINISH}
    if gate is None or gate.state is GateState.NOT_RUNNABLE:
        return both
    evidence = verdict.evidence
    if rules.to is RouteKind.CODER and evidence is not None and evidence.signature in _GROWS_WITH_SIZE:
        return both
    if evidence is not None and evidence.signature in ("hang", "deadline"):
        return both
    return only
