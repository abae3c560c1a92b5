"""The base of a verdict's conditions."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

#: what a condition speaks of; only those of the kernel count against it
Concern = Literal["kernel", "task", "measurement"]


class ConditionBase(BaseModel):
    """``label`` is a short text next to the trust level, ``flag`` a sentence below the figures; either may be empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    _concern: ClassVar[Concern] = "kernel"
    #: label and flag, with the condition's fields in braces
    _label: ClassVar[str] = ""
    _flag: ClassVar[str] = ""

    @property
    def concern(self) -> Concern:
        return self._concern

    @property
    def label(self) -> str:
        return self._label.format_map(self.__dict__)

    @property
    def flag(self) -> str:
        return self._flag.format_map(self.__dict__)
