"""A command's options from the requests that it takes.

A command is a plain function: its ``typer.Argument`` parameters are positional arguments, and a parameter whose type is
a request (:mod:`kernellab.options`) stands for all options of that request:

    @command(app)
    def lens(source: Annotated[Path, typer.Argument(help="...")], options: LensOptions) -> int: ...

The help lists the arguments first, then the options in the order of the fields, ``--json`` last.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, Union

import typer
from pydantic import BaseModel

from kernellab.options import Entry, Surface, build, entries, given, is_request

_CONTEXT = "calling_context"
_NOT_TYPED = ("DEFAULT", "DEFAULT_MAP")

Command = TypeVar("Command", bound=Callable[..., int])


def command(app: typer.Typer, name: str | None = None, **settings: Any) -> Callable[[Command], Command]:
    """Makes a function a command of ``app``; the function itself stays as it is. ``settings`` are typer's."""

    def register(function: Command) -> Command:
        app.command(name, **settings)(with_requests(function))
        return function

    return register


def with_requests(function: Callable[..., int]) -> Callable[..., int]:
    """The function as typer takes it: each parameter that is a request becomes that request's options.

    The function gets requests in which only the options are set that were typed, so that ``kernellab.toml`` fills the
    others. A wrong value raises KernellabError, which names the option.
    """
    # get_type_hints wraps Annotated in Optional where a default is None, on Python 3.10
    hints = inspect.get_annotations(function, eval_str=True)
    requests: dict[str, type[BaseModel]] = {name: hint for name, hint in hints.items() if is_request(hint)}
    arguments = [
        parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(function).parameters.items()
        if name not in requests
    ]
    listed = [entry for model in requests.values() for entry in entries(model, Surface.COMMAND)]
    listed.sort(key=lambda entry: entry.flag == "--json")
    context_name = next((name for name, hint in hints.items() if hint is typer.Context), "")
    parameters = [*arguments, *map(parameter_of, listed)]
    if not context_name:  # typer gives one parameter the context
        parameters.append(inspect.Parameter(_CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))

    def run(**values: Any) -> int:
        context: typer.Context = values[context_name] if context_name else values.pop(_CONTEXT)
        return function(**_with_requests_built(values, requests, context))

    run.__name__, run.__doc__, run.__module__ = function.__name__, function.__doc__, function.__module__
    run.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": int}
    return run


def _with_requests_built(
    values: Mapping[str, Any], requests: Mapping[str, type[BaseModel]], context: typer.Context
) -> dict[str, Any]:
    """The function's arguments: typer's values, with those of each request's options as one object of it."""
    arguments = dict(values)
    for name, model in requests.items():
        options = entries(model, Surface.COMMAND)
        typed = {entry.name: values[entry.name] for entry in options if is_typed(context, entry.name)}
        for entry in options:
            del arguments[entry.name]
        arguments[name] = build(model, given(options, typed))
    return arguments


def is_typed(context: typer.Context, name: str) -> bool:
    """Was the option given in the call, not left to its default?"""
    source = context.get_parameter_source(name)
    return source is not None and source.name not in _NOT_TYPED


def parameter_of(entry: Entry) -> inspect.Parameter:
    """One option as typer takes it."""
    kind: Any = entry.kind
    is_repeated = entry.many or entry.pairs
    default = _default(entry)
    # typer reads list[...] as an option that may be repeated
    annotation: Any = Union[list[kind], None] if is_repeated else Union[kind, None] if default is None else kind
    flags = f"{entry.flag}/{entry.negative}" if entry.negative else entry.flag
    # what typer shows of a default that is "" or None is nothing
    default_text: Any = entry.default_text if default in (None, "") and entry.default_text else True
    option = typer.Option(
        default, flags, help=entry.sentence, metavar=entry.option.metavar or None, show_default=default_text,
        hidden=entry.option.hidden, **_bounds(entry),
    )  # fmt: skip
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation)


def _default(entry: Entry) -> Any:
    """The default for typer; None where the request fills it in, ... for none."""
    if entry.is_required:
        return ...
    return None if entry.many or entry.pairs or entry.kind is Path else entry.default


def _bounds(entry: Entry) -> dict[str, Any]:
    """``min`` and ``max`` of a number; a bound that is itself too small is the request's to refuse."""
    if entry.kind not in (int, float) or entry.many or entry.pairs:
        return {}
    bounds = {"min": None if entry.above else entry.least, "max": entry.most}
    return {name: value for name, value in bounds.items() if value is not None}
