"""A magic's arguments from the requests that it takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from IPython.core.magic_arguments import argument
from pydantic import BaseModel

from kernellab.errors import KernellabError
from kernellab.options import Entry, Request, Surface, build, entries, given

Function = TypeVar("Function", bound=Callable[..., Any])

#: how a number is written in a usage line
_NUMBERS = {int: "N", float: "X"}


def takes(*models: type[BaseModel]) -> Callable[[Function], Function]:
    """Each option of the requests becomes an argument; one that is not typed is None."""
    listed = [entry for model in models for entry in entries(model, Surface.MAGIC)]

    def add(magic: Function) -> Function:
        # a decorator that is applied later is listed earlier
        for entry in reversed(listed):
            if entry.negative:
                said = f"do not {entry.help.partition(',')[0]}"
                magic = argument(entry.negative, dest=entry.name, action="store_false", default=None, help=said)(magic)
            magic = argument(entry.flag, **_how(entry))(magic)
        return magic

    return add


def typed(args: argparse.Namespace, model: type[BaseModel]) -> dict[str, Any]:
    """The options of ``model`` that were typed, as the request takes them. Raises KernellabError."""
    return given(entries(model, Surface.MAGIC), vars(args))


def request(args: argparse.Namespace, model: type[Request], **more: Any) -> Request:
    """The request of what was typed, and ``more``. Raises KernellabError: an option cannot have its value."""
    return build(model, {**typed(args, model), **more})


def as_typed(args: argparse.Namespace, *models: type[BaseModel]) -> list[str]:
    """The words of a line that gives the same options again."""
    words: list[str] = []
    for entry in [entry for model in models for entry in entries(model, Surface.MAGIC)]:
        value = getattr(args, entry.name)
        if isinstance(value, bool):
            words += [entry.flag] if value else [entry.negative] if entry.negative else []
        elif isinstance(value, list):
            words += [word for one in value for word in (entry.flag, str(one))]
        elif value is not None:
            words += [entry.flag, str(value)]
    return words


def _how(entry: Entry) -> Mapping[str, Any]:
    default = entry.option.magic_default or entry.default_text
    keywords: dict[str, Any] = {"dest": entry.name, "default": None, "help": entry.text.replace("%", "%%")}
    if default:
        keywords["help"] += f"; default {default}"
    if entry.kind is bool:
        return keywords | {"action": "store_true"}
    if entry.choices:
        keywords["choices"] = entry.choices
    elif entry.option.metavar or entry.kind in _NUMBERS:
        keywords["metavar"] = entry.option.metavar or _NUMBERS[entry.kind]
    if entry.kind in _NUMBERS and not entry.pairs:
        keywords["type"] = _number(entry)
    if entry.option.reads is not None:
        keywords["type"] = _read(entry.option.reads)
    if entry.many or entry.pairs:
        keywords |= {"action": "extend", "nargs": "+"} if entry.option.several else {"action": "append"}
    return keywords


def _read(reads: Callable[[str], object]) -> Callable[[str], str]:
    """The type of an argument whose text ``reads`` understands; argparse shows its error with the usage line."""

    def read(text: str) -> str:
        try:
            reads(text)
        except KernellabError as error:
            raise argparse.ArgumentTypeError(f"{error.message} {error.remedy}") from None
        return text

    return read


def _number(entry: Entry) -> Callable[[str], int | float]:
    """The type of a number's argument; argparse shows the error with the usage line."""

    def read(text: str) -> int | float:
        whole = entry.kind is int
        try:
            number: int | float = int(text) if whole else float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a {'whole ' if whole else ''}number") from None
        low = entry.least is not None and (number < entry.least or (entry.above and number <= entry.least))
        if low or (entry.most is not None and number > entry.most):
            raise argparse.ArgumentTypeError(f"{text!r} is not {_range(entry)}")
        return number

    return read


def _range(entry: Entry) -> str:
    noun = "a whole number" if entry.kind is int else "a number"
    low = "" if entry.least is None else f" {'above' if entry.above else 'from'} {entry.least:g}"
    high = "" if entry.most is None else f" to {entry.most:g}"
    return f"{noun}{low}{high}"
