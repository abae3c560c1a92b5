"""What the options of commands have in common."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field

from kernellab.options.entry import REQUEST, Option, Surface, entries

#: an option of a command alone
typed = partial(Option, Surface.COMMAND)


def alike(model: type[BaseModel], name: str, default: object) -> Any:
    """The field of that name with another default, and the same help and bounds."""
    entry = next(entry for entry in entries(model) if entry.name == name)
    least: dict[str, Any] = {"gt" if entry.above else "ge": entry.least}
    return Field(default=default, description=entry.help, le=entry.most, **least)


class CommandOptions(BaseModel):
    """Every field of a model of this package is an option of a command."""

    model_config = REQUEST
    OPTION: ClassVar[Option] = typed()


class JsonOptions(CommandOptions):
    """A command that can print its result as JSON."""

    as_json: Annotated[bool, typed(flag="json")] = Field(default=False, description="one JSON object on stdout")
