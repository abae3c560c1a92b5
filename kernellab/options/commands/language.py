"""Options of ``sketch`` and ``docs``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import JsonOptions, typed

#: the DSL that a sketch is lowered to
_LoweredTo = Annotated[
    str | None,
    Field(description="the DSL: triton, cpp or cuda_c"),
    typed(default="triton with a GPU, else cpp"),
]
_TaskFile = Annotated[Path | None, Field(description="the task's Python file")]
_Constexprs = Annotated[
    dict[str, int | float],
    Field(default_factory=dict, description="the value of a constexpr"),
    typed(flag="set", metavar="NAME=VALUE"),
]
_KnowledgeFolder = Annotated[
    Path | None,
    Field(description="the DSL's folder"),
    typed(default="knowledge/dsl/NAME of the workspace"),
]


class SketchCheckOptions(JsonOptions):
    """``sketch check``."""

    constexprs: _Constexprs
    dsl: _LoweredTo = None


class SketchRunOptions(JsonOptions):
    """``sketch run``."""

    task: _TaskFile = None
    constexprs: _Constexprs


class SketchCostOptions(JsonOptions):
    """``sketch cost``."""

    task: _TaskFile = None
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    sizes: Annotated[dict[str, int | float], typed(flag="size", metavar="NAME=VALUE")] = Field(
        default_factory=dict, description="the value of a symbol"
    )


class SketchLowerOptions(JsonOptions):
    """``sketch lower``."""

    task: _TaskFile = None
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    out: Path | None = Field(default=None, description="a folder for the sketch and the source")


class LiftOptions(JsonOptions):
    """``sketch lift``."""

    task: Path = Field(description="the task's Python file")
    dsl: Annotated[str | None, typed(default="detected")] = Field(default=None, description="the DSL of the source")
    to: str | None = Field(default=None, description="lower the sketch to this DSL: triton, cpp or cuda_c")
    constexprs: _Constexprs
    out: Path | None = Field(default=None, description="a folder for the sketch and the files in the other DSL")


class TuneOptions(JsonOptions):
    """``sketch tune``."""

    task: Path = Field(description="the task's Python file")
    dsl: _LoweredTo = None
    constexprs: _Constexprs
    trials: int = Field(default=16, ge=1, description="measure at most this many points")
    fresh: bool = Field(default=False, description="measure again instead of using an earlier search's results")
    out: Path | None = Field(default=None, description="a folder for the tuned sketch and its source")


class DocsNewOptions(JsonOptions):
    """``docs new``."""

    like: str = Field(default="triton", description="the DSL whose spec.toml the draft starts from")
    out: _KnowledgeFolder = None


class DocsLintOptions(JsonOptions):
    """``docs lint``."""

    root: Annotated[Path | None, typed(default="the workspace's and the installation's")] = Field(
        default=None, description="a knowledge folder"
    )


class DocsRunOptions(DocsLintOptions):
    """``docs run``."""

    record: bool = Field(default=False, description="keep which blocks passed on which versions")


class DocsShowOptions(JsonOptions):
    """``docs show``."""

    names: Annotated[tuple[str, ...], typed(flag="name")] = Field(
        default=(), description="only the parts that this name needs"
    )
    error: str = Field(default="", description="only the parts that fixing this error needs")


class DocsImportOptions(JsonOptions):
    """``docs import``."""

    dsl: str = Field(description="the DSL's name")
    like: Annotated[str, typed(default="the existing draft")] = Field(
        default="", description="the DSL whose spec.toml the draft starts from"
    )
    out: _KnowledgeFolder = None
    model: str = Field(
        default="", description="a model that sorts in what the rules cannot place: model, model:NAME, replay:FILE"
    )
