"""How a field of a request becomes an option of every front end.

A request is a pydantic model. A field with an :class:`Option` among its metadata is an option; a model's own
``OPTION`` is that of its other fields. The field's type, default and bounds are the option's, and
``Field(description=...)`` is its help: a phrase in lower case without a full stop. Front ends read :func:`entries`
and list no options themselves.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kernellab.errors import KernellabError, refused

Request = TypeVar("Request", bound=BaseModel)


#: a request's configuration; its validator is made with the first request, since front ends read the fields alone
REQUEST = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Surface(Flag):
    """Where a person sets an option."""

    COMMAND = auto()
    MAGIC = auto()
    #: ``%config KernelLab.NAME``
    CONFIG = auto()
    #: ``kernellab.toml``
    FILE = auto()


CALL = Surface.COMMAND | Surface.MAGIC
EVERYWHERE = CALL | Surface.CONFIG | Surface.FILE


@dataclass(frozen=True)
class Option:
    """What the field itself does not say of an option."""

    on: Surface = CALL
    #: its name in a call, where that is not the field's
    flag: str = ""
    metavar: str = ""
    #: the only values, where the type does not list them
    choices: tuple[str, ...] = ()
    #: some of the values, where there are others; ``reads`` says what is wrong with a text: it raises a KernellabError
    examples: tuple[str, ...] = ()
    reads: Callable[[str], object] | None = None
    #: the default in words, where the value does not say it; in a magic, where that differs
    default: str = ""
    magic_default: str = ""
    #: one flag in a magic takes several values
    several: bool = False
    #: may change while the job runs
    changeable: bool = False
    #: the program's own use: no help lists it
    hidden: bool = False


@dataclass(frozen=True)
class Entry:
    """One option. ``kind`` is the type of a value: bool, int, float, str, Path, or dict for a table of a file."""

    name: str
    help: str
    kind: type
    default: Any
    option: Option
    #: a tuple of values
    many: bool = False
    #: a mapping, given as NAME=NUMBER
    pairs: bool = False
    #: None is a value: a flag has a negative form
    optional: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    #: ``least`` itself is too small
    above: bool = False

    @property
    def flag(self) -> str:
        """``--max-turns``; ``-k`` for a name of one letter."""
        name = self.option.flag or self.name
        return f"--{name.replace('_', '-')}" if len(name) > 1 else f"-{name}"

    @property
    def negative(self) -> str:
        """``--no-improve``; "" where there is no such flag."""
        return f"--no-{self.flag[2:]}" if self.kind is bool and self.optional else ""

    @property
    def text(self) -> str:
        """The help, and that it may be repeated."""
        return f"{self.help}; repeatable" if self.many or self.pairs else self.help

    @property
    def sentence(self) -> str:
        """The help as a sentence."""
        return f"{self.text[0].upper()}{self.text[1:]}."

    @property
    def is_required(self) -> bool:
        """Has it no default?"""
        return self.default is PydanticUndefined

    @property
    def default_text(self) -> str:
        """The default in words or as it is typed; "" where there is none to name."""
        if self.option.default:
            return self.option.default
        if self.is_required:
            return "required"
        nothing = self.default is None or self.default is False or self.default in ("", ()) or self.default == {}
        return "" if nothing else f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


@cache
def _entries(model: type[BaseModel]) -> tuple[Entry, ...]:
    usual: Option | None = getattr(model, "OPTION", None)
    named = ((name, field, _option(field) or usual) for name, field in model.model_fields.items())
    return tuple(_entry(name, field, option) for name, field, option in named if option is not None)


def entries(model: type[BaseModel], on: Surface | None = None) -> tuple[Entry, ...]:
    """The model's options in order; with ``on`` those of one surface."""
    return tuple(entry for entry in _entries(model) if on is None or on in entry.option.on)


def is_request(hint: object) -> bool:
    """Is it a model with options?"""
    return isinstance(hint, type) and issubclass(hint, BaseModel) and bool(entries(hint))


def _option(field: FieldInfo) -> Option | None:
    return next((one for one in field.metadata if isinstance(one, Option)), None)


def _entry(name: str, field: FieldInfo, option: Option) -> Entry:
    if not field.description:
        raise TypeError(f"the option {name} has no description")
    kinds = _kinds(field.annotation)
    optional = type(None) in kinds
    (kind, *_) = [k for k in kinds if k is not type(None)]
    many, pairs = get_origin(kind) is tuple, get_origin(kind) in (dict, Mapping)
    choices = option.choices
    if many:
        kind = get_args(kind)[0]
        kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(kind) is Literal:
        choices = choices or tuple(str(value) for value in get_args(kind) if value != "")
        kind = str
    if pairs:
        pairs = set(_kinds(get_args(kind)[1])) <= {int, float}
        kind = str if pairs else dict
    bounds = {
        bound: getattr(one, bound)
        for one in field.metadata
        for bound in ("ge", "gt", "le")
        if getattr(one, bound, None) is not None
    }
    return Entry(
        name=name,
        help=field.description,
        kind=kind if kind in (bool, int, float, Path, dict) else str,
        default=field.get_default(call_default_factory=True),
        option=option,
        many=many,
        pairs=pairs,
        optional=optional,
        choices=choices,
        least=bounds.get("ge", bounds.get("gt")),
        most=bounds.get("le"),
        above="gt" in bounds,
    )


def _kinds(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, or the type alone."""
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def given(listed: Iterable[Entry], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are options of ``listed`` and not None, as their request takes them.

    Raises:
        KernellabError: a value that should be NAME=NUMBER is not.
    """
    asked: dict[str, Any] = {}
    for entry in listed:
        value = values.get(entry.name)
        if value is not None:
            asked[entry.name] = numbers(value, entry.flag) if entry.pairs else tuple(value) if entry.many else value
    return asked


def numbers(pairs: Sequence[str], flag: str = "--set") -> dict[str, int | float]:
    """``NAME=VALUE`` of ``flag`` as numbers.

    Raises:
        KernellabError: not NAME=VALUE, or no number.
    """
    read: dict[str, int | float] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        number = _number(value) if sign and name.isidentifier() else None
        if number is None:
            raise KernellabError(f"{flag} {pair} is not NAME=NUMBER.", f"Write {flag} BLOCK=256.")
        read[name] = number
    return read


def amount(text: str) -> float | None:
    """A number above zero, with k or M for thousands and millions; None for anything else."""
    scale = {"k": 1e3, "K": 1e3, "M": 1e6}.get(text[-1:], 1.0)
    try:
        value = float(text if scale == 1.0 else text[:-1]) * scale
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _number(text: str) -> int | float | None:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None


def build(
    model: type[Request], values: Mapping[str, Any], error: type[KernellabError] = KernellabError, what: str = "option"
) -> Request:
    """A request of these values.

    Raises:
        error: an option cannot have its value; the sentence names it.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as wrong:
        first = wrong.errors(include_url=False)[0]
        reason = refused(first)
        raise error(f"The {what} {first['loc'][0]!r} cannot be {first['input']!r}.", f"{reason}.") from None


def signature_of(
    model: type[BaseModel], task: object, returns: object, more: Sequence[inspect.Parameter] = ()
) -> inspect.Signature:
    """The signature of a function that takes a task and the model's fields; ``task`` and ``dsl`` also by place."""
    by_place, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    listed = [
        inspect.Parameter(
            name, by_place if name == "dsl" else by_name, default=field.get_default(call_default_factory=True),
            annotation=field.annotation,
        )
        for name, field in model.model_fields.items()
        if name != "task"
    ]  # fmt: skip
    first = inspect.Parameter("task", by_place, annotation=task)
    ordered = sorted([*listed, *more], key=lambda one: one.kind)
    return inspect.Signature([first, *ordered], return_annotation=returns)
