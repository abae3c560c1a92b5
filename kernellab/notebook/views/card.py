"""The question to the person, or what the Conductor proposed at an earlier turn: a ``Card`` of the protocol."""

from __future__ import annotations

from kernellab.errors import CaptureError, DesignError, LoweringError, SketchError, names_of
from kernellab.notebook.protocol import Card
from kernellab.notebook.views.at_turn import verdict_at
from kernellab.notebook.views.verdict import both
from kernellab.records import Author, Role, Route, RouteKind
from kernellab.records.standing import Standing
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn
from kernellab.session.record.state import State
from kernellab.session.record.view import outcome, stopped

#: faults of a role by rules that the same input brings again
_OF_RULES = (CaptureError, DesignError, LoweringError, SketchError)


def open_card(state: State) -> str | None:
    """The id of the card that waits for an answer."""
    question = state.question
    return question.id if question is not None and state.status is SessionStatus.WAITING else None


def card(state: State, at: str | None) -> Card | None:
    """What the session asks or, looking back at the turn ``at``, what the Conductor proposed there."""
    question = state.question
    if question is not None and state.status is SessionStatus.WAITING and at == state.head:
        return _open_card(state, question)
    turn = state.turns.get(at or "")
    return _proposed(turn, _since(state, turn)) if turn is not None and turn.route is not None else None


def _open_card(state: State, question: Question) -> Card:
    asked_turn = state.turns.get(question.turn or "")
    route = asked_turn.route if asked_turn and question.kind is QuestionKind.ROUTE else None
    # of an agent, what it would do
    wanted_actions = question.suggestion.splitlines() if question.kind is QuestionKind.PERMISSION else []
    return {
        "id": question.id,
        "kind": question.kind.value,
        "role": question.role.value,
        "title": _proposes(state, route) if route else _title(question, asked_turn),
        "text": route.reason if route else _text(question, asked_turn),
        "hint": _hint(state, question),
        "retry": _offers_retry(state, question),
        "evidence": _evidence(route) if route else wanted_actions,
        "to": question.to.value if question.to else None,
        "suggestion": question.suggestion,
        "pending": True,
        "editable": question.kind is QuestionKind.ROUTE
        or (question.kind is QuestionKind.BRIEF and question.role is Role.CONDUCTOR),
    }


def _offers_retry(state: State, question: Question) -> bool:
    """The card's ``retry``: of a brief, is there a text that the person who is asked to write may keep? Of others, may
    the role that is asked bring anything else, and keep what a person wrote?"""
    if question.kind is QuestionKind.BRIEF:
        return bool(state.sketch_turn() if question.role is Role.DESIGNER else state.candidate())
    return not _replaces(state, question) and (question.kind is not QuestionKind.ERROR or _may_retry(state, question))


def _proposes(state: State, route: Route) -> str:
    """What a person whose sketch was refused has to know first is that, not where it would go next."""
    written = state.sketch_turn() if route.to is RouteKind.DESIGNER else None
    if written is not None and written.author is Author.HUMAN and written.is_sketch_refused:
        return "Your sketch is wrong."
    return f"The Conductor proposes: {route.to.value}."


def _since(state: State, turn: Turn) -> list[str]:
    """What a session that ended with ``turn`` did not know then: baselines that are certainly faster."""
    if turn.route is None or turn.route.to is not RouteKind.FINISH:
        return []
    verdict = verdict_at(state, turn.id)
    slower = [c for c in verdict.comparisons if c.standing is Standing.SLOWER] if verdict and verdict.passed else []
    return [f"Slower than {c.against}: {c.text}." for c in slower]


def _may_retry(state: State, question: Question) -> bool:
    """Could the same role do better when asked again? Rules answer the same."""
    turn = state.turns.get(question.turn or "")
    by_rules = state.roles.get(question.role, "rules") == "rules"
    return not by_rules or (turn is not None and (turn.of_model or turn.fault not in names_of(*_OF_RULES)))


def _replaces(state: State, question: Question) -> bool:
    """Would approving have the rules Designer put its own sketch in the place of a person's, which it cannot correct?

    (A Coder by rules does correct a person's code: it writes what the sketch means.)
    """
    redesigns = question.kind is QuestionKind.ROUTE and question.to is RouteKind.DESIGNER
    written = state.sketch_turn() if redesigns and state.roles.get(Role.DESIGNER, "rules") == "rules" else None
    return written is not None and written.author is Author.HUMAN


def _hint(state: State, question: Question) -> str:
    """How to answer, by the controls of the workbench."""
    role = question.role.value.capitalize()
    if _replaces(state, question):
        return "Correct your sketch in the Sketch panel and apply it again; approving replaces it by the rules' own."
    if question.kind is QuestionKind.PERMISSION:
        return "A note to the role reaches the agent with its next result; Stop ends it."
    if question.kind is QuestionKind.TURN:
        return "You may edit the result first, or stop."
    if question.kind is QuestionKind.COST:
        return "Go on takes the turn; or write it yourself, or give the role to another below."
    if question.kind is QuestionKind.ERROR and question.role in (Role.DESIGNER, Role.CODER):
        again = "" if _may_retry(state, question) else f"The {role} by rules would answer the same again. "
        return f"{again}Write it yourself, or give the role to a model below and try again."
    if question.kind is QuestionKind.BRIEF:
        panels = {Role.DESIGNER: "the sketch in the Sketch panel", Role.CODER: "the kernel in the Code panel"}
        panel = panels.get(question.role)
        return f"Write {panel} and apply it." if panel else "Choose where the work goes."
    return question.answer


def _text(question: Question, asked: Turn | None) -> str:
    """What came of a turn that is done; the title says whose it was, and the hint how a brief is answered."""
    if question.kind is QuestionKind.BRIEF:
        return f"The Conductor suggests: {question.suggestion}" if question.suggestion else ""
    if asked is not None and question.kind is QuestionKind.ERROR and asked.error:
        return f"{asked.error} {asked.remedy}".strip()
    done = outcome(asked) if asked is not None and question.kind is QuestionKind.TURN else ""
    return done or question.text


def _evidence(route: Route) -> list[str]:
    """Its lines that the reason has not said, the two numbers of ``first wrong`` as a verdict shows them: the record
    has all their digits."""
    shown = []
    for fact in route.facts:
        if fact.of_stage and (route.to is RouteKind.FINISH or route.quotes):
            continue  # the reason says it
        if fact.got is not None or fact.want is not None:
            got, want = both(fact.got, fact.want)
            shown.append(f"{fact.text}: got {got}, want {want}")
        elif not fact.place:
            shown.append(fact.line)
        elif fact.text.rstrip(".") not in route.reason:
            shown.append(f"{fact.place}: {fact.text}")
    return shown


def _title(question: Question, asked: Turn | None) -> str:
    role = question.role.value.capitalize()
    return {
        QuestionKind.BRIEF: f"You are the {role}.",
        QuestionKind.ERROR: stopped(asked) if asked else "",
        QuestionKind.TURN: f"The {role} is done.",
        QuestionKind.ROUTE: f"{role}:",
        QuestionKind.COST: f"The {role}'s turn may be costly.",
        QuestionKind.PERMISSION: f"The {role}'s agent asks for permission.",
    }[question.kind]


def _proposed(turn: Turn, since: list[str]) -> Card:
    route = turn.route
    assert route is not None
    return {
        "id": turn.id,
        "kind": QuestionKind.ROUTE.value,
        "role": turn.role.value,
        "title": f"The Conductor proposed: {route.to.value}.",
        "text": route.reason,
        "hint": "",
        "retry": False,
        "evidence": [*since, *_evidence(route)],
        "to": route.to.value,
        "suggestion": route.suggestion,
        "pending": False,
        "editable": False,
    }
