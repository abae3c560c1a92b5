"""A command's options from the requests that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union

import typer
from pydantic import BaseModel

from kernellab.options import Entry, Surface, build, entries, given, is_request

_CONTEXT = "calling_context"
_NOT_TYPED = ("DEFAULT", "DEFAULT_MAP")


def with_requests(command: Callable[..., int]) -> Callable[..., int]:
    """A typer command in which each parameter that is a request becomes that request's options.

    The command gets requests in which only the options are set that were typed, so that ``kernellab.toml`` fills the
    others. A wrong value raises KernellabError, which names the option.
    """
    # get_type_hints wraps Annotated in Optional where a default is None, on Python 3.10
    hints = inspect.get_annotations(command, eval_str=True)
    requests: dict[str, type[BaseModel]] = {name: hint for name, hint in hints.items() if is_request(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in requests:
            parameters += map(parameter_of, entries(requests[name], Surface.COMMAND))
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
    own_context = next((name for name, hint in hints.items() if hint is typer.Context), "")
    if not own_context:  # typer gives one parameter the context
        parameters.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    def run(**values: Any) -> int:
        context: typer.Context = values[own_context] if own_context else values.pop(_CONTEXT)
        typed = {name: value for name, value in values.items() if is_typed(context, name)}
        for name, model in requests.items():
            listed = entries(model, Surface.COMMAND)
            asked = given(listed, typed)
            for entry in listed:
                values.pop(entry.name)
            values[name] = build(model, asked)
        return command(**values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    return run


def is_typed(context: typer.Context, name: str) -> bool:
    """Was the option given in the call, not left to its default?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in _NOT_TYPED


def parameter_of(entry: Entry) -> inspect.Parameter:
    """One option as typer takes it."""
    kind: Any = entry.kind
    repeated = entry.many or entry.pairs
    default = None if repeated or entry.default is None or entry.kind is Path else entry.default
    # typer reads list[...] as an option that may be repeated
    annotation: Any = Union[list[kind], None] if repeated else Union[kind, None] if default is None else kind
    flags = f"{entry.flag}/{entry.negative}" if entry.negative else entry.flag
    bounds: dict[str, Any] = {}
    if kind in (int, float) and not repeated:
        bounds = {"min": None if entry.above else entry.least, "max": entry.most}
        bounds = {name: value for name, value in bounds.items() if value is not None}
    # what typer shows of a default that is "" or None is nothing
    shown: Any = entry.default_text if default in (None, "") and entry.default_text else True
    option = typer.Option(
        default, flags, help=entry.sentence, metavar=entry.option.metavar or None, show_default=shown, **bounds
    )
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)
