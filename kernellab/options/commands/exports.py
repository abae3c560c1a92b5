"""Options of ``export``, ``compare``, ``share`` and ``replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import JsonOptions, typed


class ExportOptions(JsonOptions):
    """``export``."""

    out: Path | None = Field(default=None, description="the module to write, or the folder of --layout")
    layout: str = Field(
        default="module",
        description="layout of --out: module (one file), package (a folder), kernels (Hugging Face's kernels)",
    )
    wheel: Path | None = Field(default=None, description="a folder for a wheel")
    prebuilt: Annotated[bool | None, typed(default="with --out; not in a wheel, which it binds to this platform")] = (
        Field(default=None, description="carry compiled code, so that an import compiles nothing")
    )
    version: str = Field(default="0.1.0", description="the wheel's version")
    capsule: Path | None = Field(
        default=None,
        description="a capsule: task, sketch, source and verdict in one file; `kernellab verify FILE` repeats it",
    )
    solution: Path | None = Field(
        default=None, description="a file for flashinfer-bench's Solution; its Definition is written next to it"
    )
    graph: bool = Field(default=False, description="launch several kernels of one call as one CUDA graph")
    trajectories: Path | None = Field(
        default=None, description="a .jsonl or .parquet file for what models were asked; all sessions if none"
    )
    form: str = Field(
        default="rows",
        description="form of --trajectories: rows (all that is known), sft (chats of what passed), dpo (preference "
        "pairs of one prompt), rl (prompts with replies and rewards); as TRL takes them",
    )
    over: str | None = Field(
        default=None, description="choose among the kernels by the size of this Dim, as measured now"
    )
    licence: str = Field(default="unspecified", description="licence of the trajectories, or of a kernels repository")


class CompareOptions(JsonOptions):
    """``compare``."""

    over: str = Field(description="the Dim whose range is measured")


class ShareOptions(JsonOptions):
    """``share``."""

    out: Annotated[Path | None, typed(default="the name")] = Field(default=None, description="the HTML file")


class ReplayOptions(JsonOptions):
    """``replay export``."""

    out: Path = Field(description="the replay file to write (JSON lines)")
    note: str = Field(default="", description="a description of the recording, stored in its header")
