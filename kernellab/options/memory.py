"""What ``kernellab.toml`` says of the memory."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kernellab.errors import SessionError
from kernellab.options.entry import Option, Surface
from kernellab.options.file import FILE, read_table


class MemoryDefaults(BaseModel):
    """``[memory]`` of ``kernellab.toml``."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    OPTION: ClassVar[Option] = Option(on=Surface.FILE)

    use: str = Field(
        default="",
        description="the memory of verified kernels: on, off, or a store's place (any URI that LanceDB takes); empty: "
        "the workspace's, where it has one",
    )
    offer: Literal["ask", "always", "never"] = Field(
        default="ask",
        description="what becomes of verified kernels at the end of a session or a run: ask a person, always or never "
        "remember them",
    )
    layers: tuple[str, ...] = Field(
        default=(),
        description="stores that are read after the workspace's own, and never written: a folder, or any URI that "
        "LanceDB takes (s3://...)",
    )
    embed: str = Field(
        default="",
        description="the embedding model for searches by words: model:NAME at the endpoint of [models], or local:NAME "
        "by sentence-transformers; empty: none",
    )


def memory_defaults(workspace: Path) -> MemoryDefaults:
    """What ``[memory]`` of the workspace's ``kernellab.toml`` says. Raises SessionError, as :func:`defaults`."""
    return read_table(workspace / FILE, "memory", MemoryDefaults, SessionError)
