"""The Conductor that a model plays: it judges and advises; the evidence decides.

The paper's Conductor classifies an error and routes by the class (Algorithm 1). Here the rules Conductor first states
what the evidence allows; if that leaves a choice, the model chooses, and it may always write the advice.
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

#: Faults that small sizes do not show, so that a sketch that ran right may be their cause.
_GROWS_WITH_SIZE = frozenset(("accumulate-dtype", "nan"))
#: Model faults after which the rules may still route: not a missing key or a person's decision.
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
        """The model's prompt. Raises PromptError if it does not fit."""
        return route_prompt(brief, RulesConductor().route(brief), self._library, self._options)

    def route(self, brief: RouteBrief) -> Route:
        """Return where the work goes next, the reason, and a suggestion.

        Raises:
            ModelError: the request failed (a key, the network, the budget). An unusable reply is not an error: the
            rules'
                route is used, and its reason states why.
        """
        brief = replace(brief, ablation=brief.ablation | self._options.ablation)
        rules = RulesConductor().route(brief)
        if rules.to is RouteKind.STOP or "routing" in brief.ablation or _is_the_end(brief, rules):
            # no judgement needed: a final pass, a machine at fault, a loop, or no turns left
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
            message = getattr(error, "message", str(error))
            return rules.model_copy(update={"reason": f"{rules.reason} (By rule; the model's answer: {message})"})
        return settle(brief, rules, proposed)


def _is_the_end(brief: RouteBrief, rules: Route) -> bool:
    """Whether the session ends regardless of a model. Whether more rounds without a gain pay is a judgement."""
    has_passed = brief.verdict is not None and brief.verdict.passed
    return rules.to is RouteKind.FINISH and not (has_passed and not must_finish(brief))


def read_route(data: dict[str, Any]) -> Route:
    """Return the Route that a reply's object states. Raises ValueError if it is not a route."""
    fields = {k: str(data.get(k, "")).strip() for k in ("to", "error_class", "reason", "suggestion")}
    to, error = fields["to"].lower(), fields["error_class"].lower()
    if to not in {k.value for k in RouteKind}:
        raise ValueError(f"'{fields['to']}' is not a role that work can go to.")
    if not fields["reason"]:
        raise ValueError("It does not give a reason.")
    classes = {c.value for c in ErrorClass}
    return Route(
        to=RouteKind(to), error_class=error if error in classes else ErrorClass.NONE.value,
        reason=fields["reason"], suggestion=fields["suggestion"],
    )  # fmt: skip


def settle(brief: RouteBrief, rules: Route, proposed: Route) -> Route:
    """Return the proposal if the evidence allows it; otherwise the rules' route, with a sentence about the refusal."""
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
    """Return where the evidence lets the work go. One element: no choice is left."""
    only = frozenset((rules.to,))
    both = frozenset((RouteKind.CODER, RouteKind.DESIGNER))
    gate, verdict = brief.gate, brief.verdict
    if gate is not None and gate.state is GateState.WRONG:
        return only
    if verdict is None:
        # a sketch that cannot run, or that the Coder could not write: the Coder may try once more
        return both if brief.error else only
    if verdict.passed:
        # it is right: a role may make it faster, or it is good enough
        return frozenset(RouteKind(role.value) for role in brief.improvers) | {rules.to, RouteKind.FINISH}
    if gate is None or gate.state is GateState.NOT_RUNNABLE:
        return both
    evidence = verdict.evidence
    if rules.to is RouteKind.CODER and evidence is not None and evidence.signature in _GROWS_WITH_SIZE:
        return both
    if evidence is not None and evidence.signature in ("hang", "deadline"):
        return both
    return only
