"""The options of a search: its knobs, and what it is begun with.

A knob is one field of :class:`Knobs`. The magic, the command, ``[evolve]`` of ``kernellab.toml``, the monitor and
``kernellab evolve set`` are derived from it; one that is decided when a search begins says ``changeable=False``.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, field_validator

from kernellab.options.design import AllowLibrary, Chip, Precision
from kernellab.options.entry import CALL, REQUEST, Option, Surface, entries

_ON = CALL | Surface.FILE
#: a knob that is decided when the search begins
_AT_BEGIN = Option(on=_ON, changeable=False)


class Knobs(BaseModel):
    """What a person may set before a search and change while it runs. The defaults are the paper's (section 4.1)."""

    model_config = REQUEST

    OPTION: ClassVar[Option] = Option(on=_ON, changeable=True)

    rounds: int = Field(default=3, ge=1, le=100_000, description="rounds after the seeds")
    parallel: int = Field(default=4, ge=1, le=256, description="proposals of an island in a round")
    islands: Annotated[int, _AT_BEGIN] = Field(
        default=2, ge=1, le=64, description="populations that exchange their elites"
    )
    migrate_every: int = Field(default=1, ge=0, description="elites migrate after this many rounds; 0: never")
    elites: int = Field(
        default=2,
        ge=1,
        le=64,
        description="an island's elites: its best, which migrate and which others are inspired by",
    )
    select: str = Field(
        default="islands", description="how parents are selected: islands, ucb, beam, greedy, map-elites, lfbo, random"
    )
    operators: Annotated[tuple[str, ...], Option(on=_ON, changeable=True, several=True, default="all")] = Field(
        default=(), description="what may vary a candidate: rules, cross, model, or the name of an operator"
    )
    vary: str = Field(
        default="",
        description="agents and models that vary candidates too, with the least share of the proposals of each: "
        "agent:NAME=0.5,model:NAME=0.2",
    )
    #: "": as the search began
    model: Annotated[str, Option(on=Surface(0), changeable=True, default="as the search began")] = Field(
        default="", description="who is asked from now on: model, model:NAME, replay:FILE, or rules, no model"
    )
    score: Annotated[Literal["rank", "model"], _AT_BEGIN] = Field(
        default="rank", description="what ranks candidates: rank, measured times; model, the cost model's alone"
    )
    novelty: float = Field(
        default=0.995,
        gt=0,
        le=1,
        description="a candidate this much like an earlier one is not built; 1: only the same",
    )
    hopeless: float = Field(
        default=8.0, ge=1,
        description="a candidate is not built where the cost model gives it this many times the best candidate's time",
    )  # fmt: skip
    target: float = Field(default=0.0, ge=0, description="stop at this speedup of a verified kernel; 0: never")
    headroom: float = Field(
        default=0.95, gt=0, le=1, description="stop where a verified kernel reaches this share of its bound"
    )
    analyst: Literal["model", "rules"] = Field(
        default="model", description="who explains a round, where a model takes part: model or rules"
    )
    stagnation: int = Field(
        default=2, ge=0, description="propose a new direction after this many rounds without a gain; 0: never"
    )
    plateau: int = Field(default=0, ge=0, description="stop after this many rounds without a gain; 0: never")
    budget: str = Field(
        default="",
        description="what the whole run may spend: tokens=200000,usd=1,minutes=30,gpu_s=600; when the time is up, "
        "nothing more begins, and the leader has its verdict",
    )
    seed: Annotated[int, _AT_BEGIN] = Field(default=0, description="the same seed makes the same choices")

    @field_validator("operators", mode="before")
    @classmethod
    def _listed(cls, operators: object) -> object:
        """``rules, cross`` in one text, as a person types it while the search runs."""
        return tuple(operators.replace(",", " ").split()) if isinstance(operators, str) else operators

    @field_validator("vary")
    @classmethod
    def _shared(cls, text: str) -> str:
        if sum(_shares(text).values()) > 1:
            raise ValueError("its shares should sum to at most 1")
        return text

    @property
    def shares(self) -> dict[str, float]:
        """Who varies candidates by ``vary``, and the least share of each."""
        return _shares(self.vary)

    @property
    def size(self) -> int:
        """Proposals of a round."""
        return self.islands * self.parallel


def _shares(text: str) -> dict[str, float]:
    """Raises ValueError: a part that is no NAME=SHARE, or a share that is not between 0 and 1."""
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        spec, _, share = part.rpartition("=")
        try:
            found[spec.strip()] = float(share)
        except ValueError:
            spec = ""
        if not spec.strip().startswith(("agent:", "model", "replay:")) or not 0 <= found[spec.strip()] <= 1:
            raise ValueError(f"{part!r} should be like agent:NAME=0.5, a share between 0 and 1")
    return found


#: the knobs that may change while a search runs, by name
CHANGEABLE = {entry.name: entry for entry in entries(Knobs) if entry.option.changeable}


class SearchOptions(Knobs):
    """A search to begin: its knobs, and what is decided with the call."""

    OPTION: ClassVar[Option] = Knobs.OPTION

    dsl: Annotated[str, Option(magic_default="the session's, else triton with a GPU, else cpp")] = Field(
        default="cpp", description="the DSL of the kernels: triton, cpp or cuda_c"
    )
    chip: Chip = None
    model: Annotated[str, Option()] = Field(
        default="", description="a model as an operator: model, model:NAME, replay:FILE"
    )
    allow_library: AllowLibrary = False
    precision: Precision = ""
    memory: Annotated[
        str | None, Option(on=Surface(0), default="as kernellab.toml says, else the workspace's where there is one")
    ] = Field(default=None, description="the memory of verified kernels: on, off, or a store's place")

    @property
    def knobs(self) -> Knobs:
        """The knobs alone; who is asked from now on is as the search begins."""
        return Knobs(**self.model_dump(include=set(Knobs.model_fields) - {"model"}))
