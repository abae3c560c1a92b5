"""A case that was tried after a failure: at public sizes, or with constant contents."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Tried(BaseModel):
    """The sizes of its Dims, its input family, and whether it was right; of constant contents what was wrong, too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sizes: dict[str, int]
    family: str = ""
    right: bool
    #: tensors that held one number throughout
    contents: dict[str, float] = Field(default_factory=dict)
    #: there: the first wrong index of output ``output``, and both sides' values; None where it gave no result
    output: int | None = None
    first_wrong: list[int] | None = None
    got: float | str | None = None
    want: float | str | None = None
