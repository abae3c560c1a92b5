"""The memory's events, one line each: the store can be rebuilt from them and from the sessions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, Union

from pydantic import Field, TypeAdapter

from kernellab.memory.records import Failure, Kernel, Purpose, Skill
from kernellab.records import Record

#: The journal's stream with the events.
STREAM = "memory"


class Log(Protocol):
    """Stores events: the workspace's journal."""

    def add(self, stream: str, lines: Sequence[str]) -> int: ...

    def stream(self, stream: str, after: int = 0) -> list[tuple[int, str]]: ...


class _Event(Record):
    time: float = Field(default_factory=time.time)


class Remembered(_Event):
    """A kernel was stored; ``text`` is its task's, from which its features are computed again."""

    kind: Literal["remembered"] = "remembered"
    kernel: Kernel
    text: str


class FailureRemembered(_Event):
    """A failure was stored."""

    kind: Literal["failure"] = "failure"
    failure: Failure


class SkillRemembered(_Event):
    """A skill was proposed, edited or approved."""

    kind: Literal["skill"] = "skill"
    skill: Skill


class Forgotten(_Event):
    """A person, or a person's rule, removed the entry permanently."""

    kind: Literal["forgotten"] = "forgotten"
    id: str


class Used(_Event):
    """An entry was in a brief, with the result: ``reward`` from 0 (nothing) to 1."""

    kind: Literal["used"] = "used"
    id: str
    purpose: Purpose
    reward: float
    #: The session's turn or the run that used it; repeated reports of one count once.
    by: str = ""


class Judged(_Event):
    """A person's judgement of an entry; None leaves that part unchanged."""

    kind: Literal["judged"] = "judged"
    id: str
    thumb: int | None = None
    pinned: bool | None = None
    rationale: str | None = None


class Seeded(_Event):
    """The shipped library of that version was stored."""

    kind: Literal["seeded"] = "seeded"
    version: str


class Looked(_Event):
    """An import has judged a source; ``why`` is the reason of a refusal, "" if it was stored."""

    kind: Literal["looked"] = "looked"
    source: str
    why: str = ""


class Staled(_Event):
    """The entry's figures no longer apply here; with an empty ``why`` they were verified again."""

    kind: Literal["stale"] = "stale"
    id: str
    why: str


Event = Annotated[
    Union[Remembered, FailureRemembered, SkillRemembered, Forgotten, Used, Judged, Staled, Seeded, Looked],
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def changed_by(event: Used | Judged | Staled, kernel: Kernel) -> Kernel:
    """Return the kernel after an event that changes it."""
    if isinstance(event, Staled):
        return kernel.model_copy(update={"stale": event.why})
    if isinstance(event, Used):
        value = kernel.draft if event.purpose is Purpose.DRAFT else kernel.refine
        return kernel.model_copy(update={event.purpose.value: value.after(event.reward)})
    changes = {"thumb": event.thumb, "pinned": event.pinned, "rationale": event.rationale}
    return kernel.model_copy(update={key: value for key, value in changes.items() if value is not None})


def id_of(event: Event) -> str:
    """The id of the entry, library or source that an event is about."""
    match event:
        case Remembered(kernel=kernel):
            return kernel.id
        case FailureRemembered(failure=failure):
            return failure.id
        case SkillRemembered(skill=skill):
            return skill.id
        case Forgotten() | Used() | Judged() | Staled():
            return event.id
        case Seeded(version=version):
            return f"library {version}"
        case Looked(source=source):
            return source


__all__ = [
    "EVENT", "STREAM", "Event", "FailureRemembered", "Forgotten", "Judged", "Log", "Looked", "Remembered", "Seeded",
    "SkillRemembered", "Staled", "Used", "changed_by", "id_of",
]  # fmt: skip
