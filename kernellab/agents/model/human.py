"""A person in a role: the prompt that a model would receive, to read or to copy, and a reader for the reply."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Union

from kernellab.agents.briefs import (
    AnalyseBrief,
    AnalyseReply,
    CodeBrief,
    CodeReply,
    DesignBrief,
    DesignReply,
    RouteBrief,
)
from kernellab.agents.model.analyst import analyse_prompt
from kernellab.agents.model.coder import read_code
from kernellab.agents.model.conductor import read_route
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.code import code_prompt
from kernellab.agents.model.prompts.code_base import base_of
from kernellab.agents.model.prompts.design import design_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.route import route_prompt
from kernellab.agents.model.reply.answers import AnswerError
from kernellab.agents.model.reply.blocks import json_object
from kernellab.agents.model.reply.sketches import parse_done, parse_sketch
from kernellab.agents.rules.conductor import RulesConductor
from kernellab.records import Author, Route, RouteKind

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge

Brief = Union[DesignBrief, CodeBrief, RouteBrief, AnalyseBrief]
Answer = Union[DesignReply, CodeReply, Route, AnalyseReply]

_WORD = re.compile(r"\s*(?P<to>\w+)\s*(?:[:,.;\-]+\s*(?P<rest>.*))?\Z", re.DOTALL)


def prompt(brief: Brief, knowledge: Knowledge | None = None, token_budget: int | None = None) -> Prompt:
    """Return the prompt for the role of the brief: a model's first prompt, which a person also sees.

    Raises:
        PromptError: the required parts do not fit ``token_budget``.
    """
    options = Options() if token_budget is None else Options(token_budget=token_budget)
    library = Library(knowledge)
    if isinstance(brief, DesignBrief):
        return design_prompt(brief, library, options)
    if isinstance(brief, CodeBrief):
        return code_prompt(brief, library, options)
    if isinstance(brief, RouteBrief):
        return route_prompt(brief, RulesConductor().route(brief), library, options)
    return analyse_prompt(brief, options)


def parse_answer(text: str, brief: Brief, author: Author = Author.HUMAN) -> Answer:
    """Return a pasted reply's content: fenced code, the whole reply, or JSON; a route also as ``coder: what to do``.

    The reply is read, not judged: the session gates a sketch and verifies code as usual.

    Raises:
        AnswerError: the reply does not contain what the role must answer.
    """
    done = parse_done(text) if isinstance(brief, (DesignBrief, CodeBrief)) else None
    if done is not None and brief.passed:
        return done
    if isinstance(brief, DesignBrief):
        answer = parse_sketch(text, brief.previous)
        return DesignReply(answer.sketch, answer.constexpr or {}, answer.rationale, answer.claims)
    if isinstance(brief, CodeBrief):
        return read_code(text, brief, base_of(brief, Options()), author)
    if isinstance(brief, RouteBrief):
        return _route(text)
    data = json_object(text)
    if data is not None and str(data.get("summary", "")).strip():
        claims = data.get("claims")
        return AnalyseReply(str(data["summary"]).strip(), tuple(map(str, claims)) if isinstance(claims, list) else ())
    if not text.strip():
        raise AnswerError("The reply is empty.", "Write a few sentences on what happened.")
    return AnalyseReply(text.strip())


def _route(text: str) -> Route:
    data = json_object(text)
    try:
        if data is not None:
            return read_route({"reason": "A person's decision.", **data})
        match = _WORD.match(text.strip())
        if match is None:
            raise ValueError("It does not name a role.")
        rest = (match["rest"] or "").strip()
        return read_route({"to": match["to"], "reason": "A person's decision.", "suggestion": rest})
    except ValueError as error:
        roles = ", ".join(kind.value for kind in RouteKind)
        raise AnswerError(
            f"The reply does not name a route. {error}", f"Write one of {roles}, a colon, and what to do."
        ) from None
