"""A tool: its name, sentence, request and result; the table of all of them; and the call that checks both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, get_type_hints

from pydantic import ValidationError

from kernellab.errors import KernellabError, refused
from kernellab.tools.context import Context
from kernellab.tools.records import Request, Result, ToolError
from kernellab.tools.results.fitting import CUTS, escaped, fitted
from kernellab.verifier.protocol.sanitize import shown

#: modules whose functions are tools
_MODULES = ("describing", "sketching", "documents", "judging", "sessions", "searching", "profiling")
#: arguments of a call as JSON, in bytes
_MOST_SENT = 4_000_000


@dataclass(frozen=True)
class Tool:
    """One function over what exists. ``changes`` says whether it writes to the workspace's journal, ``opens`` whether
    it may start the person's models and agents."""

    name: str
    description: str
    request: type[Request]
    result: type[Result]
    function: Callable[[Context, Any], Result]
    changes: bool = False
    opens: bool = False


Function = TypeVar("Function", bound=Callable[..., Result])
_TOOLS: dict[str, Tool] = {}


def tool(changes: bool = False, opens: bool = False) -> Callable[[Function], Function]:
    """Makes a function ``(context, request) -> result`` a tool: its docstring is the description."""

    def register(function: Function) -> Function:
        hints = get_type_hints(function)
        name = function.__name__
        text = " ".join((function.__doc__ or "").split())
        _TOOLS[name] = Tool(name, text, hints["request"], hints["return"], function, changes, opens)
        return function

    return register


@cache
def tools() -> Mapping[str, Tool]:
    """Every tool by its name, in the order in which they are presented."""
    for module in _MODULES:
        import_module(f"kernellab.tools.{module}")
    return dict(_TOOLS)


def call(
    name: str, arguments: Mapping[str, Any], context: Context, offered: Mapping[str, Tool] | None = None
) -> Result:
    """The result of one tool of those ``offered`` (all).

    Raises:
        ToolError: there is no such tool, or its arguments are wrong: the sentence names them, the remedy what is
            allowed. KernellabError: what the tool itself cannot do. Neither is longer than a result's texts.
    """
    try:
        return fitted(escaped(_called(name, arguments, context, tools() if offered is None else offered)))
    except KernellabError as error:
        message, remedy = shown(error.message), shown(error.remedy)
        is_plain = (message, remedy) == (error.message, error.remedy)
        if is_plain and len(message) + len(remedy) <= CUTS[0].characters:
            raise
        # it names what was given, which may have any length and any character
        raise ToolError(_beginning(message), _beginning(remedy)) from None


def _beginning(text: str) -> str:
    most = CUTS[1].characters
    return text if len(text) <= most else f"{text[:most]} ..."


def _called(name: str, arguments: Mapping[str, Any], context: Context, offered: Mapping[str, Tool]) -> Result:
    chosen = offered.get(name)
    if chosen is None:
        raise ToolError(f"There is no tool {name!r}.", f"The tools: {', '.join(offered)}.")
    try:
        sent = len(json.dumps(dict(arguments), ensure_ascii=False, default=str).encode())
    except UnicodeEncodeError:  # half of a character, which no journal takes
        raise ToolError(f"{name}: the arguments hold what is no Unicode text.", "Leave out lone surrogates.") from None
    if sent > _MOST_SENT:
        raise ToolError(f"{name}: the arguments have {sent:,} bytes.", f"At most {_MOST_SENT:,} are taken.")
    try:
        request = chosen.request.model_validate(dict(arguments))
    except ValidationError as error:
        raise ToolError(f"{name}: {_faults(error)}.", f"{name} takes {_takes(chosen)}.") from None
    if chosen.changes and context.bound is None:  # of a turn's agent its exchanges say whether it shared the machine
        context.use_sessions_of_this_process()
    return chosen.function(context, request)


def failed(name: str, error: Exception) -> str:
    """What is said of a fault of a tool, which its server outlives."""
    return f"{name} failed: {type(error).__name__}: {error}"[: CUTS[1].characters]


def _faults(error: ValidationError) -> str:
    """Each wrong argument and why, in a sentence."""
    # of a number that may be whole or not, pydantic names each kind
    by_place = {
        ".".join(map(str, [step for step in e["loc"] if step not in ("int", "float")])): e for e in error.errors()
    }
    return "; ".join(refused(e, place or "the arguments") for place, e in by_place.items())


def _takes(tool: Tool) -> str:
    """The arguments of a tool, for an error."""
    fields = tool.request.model_fields
    return (
        ", ".join(f"{name}{'' if info.is_required() else ' (optional)'}" for name, info in fields.items()) or "nothing"
    )
