"""Options of ``design``, ``verify``, ``check``, ``rank``, ``bench``, ``lens`` and ``profile`` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import JsonOptions, typed


class DesignShell(JsonOptions):
    """``design``, besides the design itself."""

    words: str | None = Field(default=None, description="the operator in words instead; a model writes the task")
    yes: bool = Field(default=False, description="approve the task that a model wrote from --words")
    out: Path | None = Field(default=None, description="a folder for sketch, source and exported module")
    start: Annotated[Path | None, typed(flag="from")] = Field(
        default=None, description="start from a sketch (.sketch) or a source, which is lifted to a sketch"
    )
    resume: bool | None = Field(default=None, description="resume the session that the same call started")
    answer: Path | None = Field(
        default=None, description="your answer where a role is yours (- is stdin); continues as --resume does"
    )

    @property
    def continues(self) -> bool:
        """Whether the call continues the session that the same call started before."""
        return bool(self.resume) or self.answer is not None


class VerifyShell(JsonOptions):
    """``verify``, besides the verification itself."""

    trust_task: bool = Field(
        default=False, description="run a capsule's task, which has your rights: you trust its author"
    )


class BenchShell(JsonOptions):
    """``bench``, besides the suite's run itself."""

    samples: int = Field(
        default=1, ge=1, description="design each task this often; the report has pass@1 to pass@K and the cost"
    )
    out: Path = Field(default=Path("out/bench"), description="a folder for the rows and the report")


class LensOptions(JsonOptions):
    """``lens``."""

    task: Path | None = Field(default=None, description="the task's file; a GPU's kernel needs it")
    dsl: Annotated[str | None, typed(default="detected")] = Field(
        default=None, description="the DSL of the source: triton, cuda_c or cpp"
    )
    chip: Annotated[str | None, typed(default="this one's")] = Field(
        default=None, description="the GPU to compile for, as h200 or a100"
    )
    level: str | None = Field(default=None, description="print this text: ttir, ttgir, llir, ptx, sass, gimple, asm")
    line: int | None = Field(default=None, ge=1, description="print what this line of the source became")
    back: int | None = Field(
        default=None, ge=1, description="print the source lines that this line of --level came from"
    )
    html: Path | None = Field(default=None, description="write one page: both sides, linked line by line")
    out: Path | None = Field(default=None, description="a folder for the texts")
    counters: bool = Field(default=False, description="run it under ncu and read the GPU's counters")
    unsandboxed: bool = Field(default=False, description="I trust this kernel: it may run with my own rights")


class ProfileOptions(JsonOptions):
    """``profile``."""

    train: bool = Field(default=False, description="profile a training step: forward, loss and backward")
    device: Annotated[str | None, typed(default="a GPU where there is one")] = Field(
        default=None, description="the device: cpu or cuda"
    )
    rows: int = Field(default=15, ge=1, description="rows of the table")
    tree: bool = Field(default=False, description="the tree of modules, with total and own time, too")
    what_if: Annotated[tuple[str, ...], typed(metavar="ROW=TIMES")] = Field(
        default=(), description="predict the model with a row so many times as fast"
    )
    open_rows: Annotated[tuple[str, ...], typed(flag="open", metavar="ROW")] = Field(
        default=(), description="design a kernel for a row (number, name or module) and install it"
    )
    auto: Annotated[str | None, typed(metavar="minutes=30")] = Field(
        default=None, description="design kernels row by row with the rules, install and measure them"
    )
    most: int | None = Field(default=None, ge=1, description="with --auto: stop after this many kernels")
    dsl: Annotated[str | None, typed(default="triton with a GPU, else cpp")] = Field(
        default=None, description="the kernels' DSL"
    )
