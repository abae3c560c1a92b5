"""Options of ``memory``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import JsonOptions, typed


class StoreOptions(JsonOptions):
    """Every command of ``memory``."""

    store: Annotated[str, typed(default="kernellab.toml's, else the workspace's")] = Field(
        default="", description="a LanceDB URI"
    )


class MemorySearchOptions(StoreOptions):
    """``memory search``."""

    dsl: Annotated[str | None, typed(default="any")] = Field(default=None, description="the DSL of the kernels")
    count: Annotated[int, typed(flag="k")] = Field(default=5, ge=1, description="how many hits")
    also: tuple[str, ...] = Field(default=(), description="an operation to look for as well")
    leave_out: bool = Field(default=False, description="leave out kernels of the same computation")


class MemoryImportOptions(StoreOptions):
    """``memory import``."""

    licence: str = Field(default="unspecified", description="licence of entries that state none")


class MemoryVerifyOptions(StoreOptions):
    """``memory verify``."""

    library: bool = Field(default=False, description="also the stale kernels of the shipped library")


class MemorySkillsOptions(StoreOptions):
    """``memory skills``."""

    out: Path | None = Field(default=None, description="a folder for one Markdown note each, to edit")


class MemoryExportOptions(StoreOptions):
    """``memory export``."""

    out: Path = Field(description="a .jsonl file")


class MemoryJudgeOptions(StoreOptions):
    """``memory judge``."""

    thumb: int | None = Field(default=None, ge=-1, le=1, description="-1 never shows it, 1 prefers it")
    pin: bool | None = Field(default=None, description="never drop it")
    note: str | None = Field(default=None, description="a note on why the kernel is written this way")
