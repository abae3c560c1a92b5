"""What happened to the memory, one line an event: the store can be built again from them and from the sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, Union

from pydantic import Field, TypeAdapter

from kernellab.memory.records import Failure, Kernel, Purpose, Skill
from kernellab.records import Record

#: the journal's stream that holds them
STREAM = "memory"


class Log(Protocol):
    """Where events are kept: the workspace's journal."""

    def add(self, stream: str, lines: Sequence[str]) -> int: ...

    def stream(self, stream: str, after: int = 0) -> list[tuple[int, str]]: ...


class _Event(Record):
    time: float = Field(default_factory=time.time)


class Remembered(_Event):
    """A kernel was put into the store; ``text`` is its task's, from which its features are made again."""

    kind: Literal["remembered"] = "remembered"
    kernel: Kernel
    text: str


class FailureRemembered(_Event):
    kind: Literal["failure"] = "failure"
    failure: Failure


class SkillRemembered(_Event):
    """A skill was proposed, edited or approved."""

    kind: Literal["skill"] = "skill"
    skill: Skill


class Forgotten(_Event):
    """A person, or a person's rule, took the entry out; it stays out."""

    kind: Literal["forgotten"] = "forgotten"
    id: str


class Used(_Event):
    """An entry was in a brief, and what came of it: ``reward`` from 0 (nothing) to 1."""

    kind: Literal["used"] = "used"
    id: str
    purpose: Purpose
    reward: float
    #: the session's turn or the run that it was used in; what is reported of one twice counts once
    by: str = ""


class Judged(_Event):
    """A person's word on an entry; None leaves that part as it is."""

    kind: Literal["judged"] = "judged"
    id: str
    thumb: int | None = None
    pinned: bool | None = None
    rationale: str | None = None


class Seeded(_Event):
    """The shipped library of that version was put into the store."""

    kind: Literal["seeded"] = "seeded"
    version: str


class Looked(_Event):
    """An import has judged a source; ``why`` says why it was refused, "" where it was kept."""

    kind: Literal["looked"] = "looked"
    source: str
    why: str = ""


class Staled(_Event):
    """The entry's figures no longer hold here; an empty ``why`` says that they were verified again."""

    kind: Literal["stale"] = "stale"
    id: str
    why: str


Event = Annotated[
    Union[Remembered, FailureRemembered, SkillRemembered, Forgotten, Used, Judged, Staled, Seeded, Looked],
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)

__all__ = [
    "EVENT", "STREAM", "Event", "FailureRemembered", "Forgotten", "Judged", "Log", "Looked", "Remembered", "Seeded",
    "SkillRemembered", "Staled", "Used",
]  # fmt: skip
