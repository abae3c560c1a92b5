"""Options of ``evolve`` and of the commands on its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import JsonOptions, alike, typed
from kernellab.options.search import Knobs


class SearchShell(JsonOptions):
    """``evolve``, besides the search itself."""

    start: Annotated[tuple[Path, ...], typed(flag="from")] = Field(default=(), description="a sketch to begin with")
    out: Path | None = Field(default=None, description="a folder for the best one's sketch, source and exported module")
    cluster: Annotated[str, typed(default="threads of this process")] = Field(
        default="",
        description="who does the jobs: local:N processes here, dask://HOST:PORT, or the judge at ssh://HOST",
    )
    detach: bool = Field(default=False, description="run in a background process")
    estimate: bool = Field(default=False, description="print the estimated cost and exit")
    resume: str = Field(default="", description="resume a run that was interrupted")


class NightOptions(JsonOptions):
    """``evolve night``."""

    minutes: float = Field(default=480.0, ge=0.1, description="the time that all of them have together")
    dsl: str = Field(default="cpp", description="the DSL of the kernels")
    cluster: str = alike(SearchShell, "cluster", "")
    html: Path = Field(default=Path("morning.html"), description="the morning's report")


class LabOptions(JsonOptions):
    """``evolve lab``."""

    select: Annotated[tuple[str, ...], typed(default="all")] = Field(default=(), description="a policy to replay")
    space: Annotated[tuple[str, ...], typed(default="all")] = Field(default=(), description="a recorded space")
    rounds: int = alike(Knobs, "rounds", 6)
    parallel: int = alike(Knobs, "parallel", 4)
    islands: int = alike(Knobs, "islands", 2)
    elites: int = alike(Knobs, "elites", 2)
    migrate_every: int = alike(Knobs, "migrate_every", 1)
    seeds: int = Field(default=5, ge=1, description="replays of each policy on each space")
    noise: float = Field(default=1.0, ge=0, description="noise added, as a multiple of the measured spread; 0: none")
    html: Path | None = Field(default=None, description="a page with the curves")


class StopOptions(JsonOptions):
    """``evolve stop``."""

    why: str = Field(default="", description="the reason that is kept")


class InjectOptions(JsonOptions):
    """``evolve inject``."""

    island: int = Field(default=0, ge=0, description="the island's number")


class AcceptOptions(JsonOptions):
    """``evolve accept``."""

    words: str = Field(default="", description="the direction in words of your own")


class RunReportOptions(JsonOptions):
    """``evolve report``."""

    html: Path = Field(default=Path("run.html"), description="the file")
