"""Options of ``doctor``, ``mcp``, ``skill``, ``lab``, ``grade`` and ``release``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from kernellab.options.commands.base import CommandOptions, JsonOptions, typed


class DoctorOptions(JsonOptions):
    """``doctor``."""

    probe: bool = Field(default=False, description="ask each configured model for one token")


class McpOptions(CommandOptions):
    """``mcp``."""

    workspace: Annotated[Path | None, typed(default="this one's")] = Field(
        default=None, description="the folder with tasks and journal"
    )
    http: bool = Field(default=False, description="serve on loopback instead of the standard streams")
    relay: Annotated[str, typed(hidden=True)] = Field(
        default="", description="carry the streams to the server at this address"
    )
    unsandboxed: bool = Field(default=False, description="kernels may run with my rights, to read a GPU's counters")
    port: int = Field(default=8765, ge=1, le=65535, description="the port of --http")


class SkillOptions(CommandOptions):
    """``skill``."""

    client: Annotated[str, typed(flag="for")] = Field(
        default="claude", description="the agent: claude, codex, opencode, gemini or jupyter"
    )


class GradeOptions(JsonOptions):
    """``grade``."""

    csv: Annotated[Path | None, typed(default="standard output")] = Field(default=None, description="the file of marks")
    lesson: Annotated[str, typed(default="those that a notebook answers")] = Field(
        default="", description="the lesson whose exercises count"
    )
    secret: str = Field(
        default="", description="the word that `kernellab release --secret` drew the students' variants with"
    )
    students: Path | None = Field(
        default=None, description="with --secret: the file of names that the variants were drawn for"
    )
    board: Path | None = Field(default=None, description="an HTML page of the class by points of verified answers")


class ReleaseOptions(CommandOptions):
    """``release``."""

    students: Path | None = Field(default=None, description="a file of names, one a line: a folder for each")
    secret: str = Field(default="", description="draws each student's variant of an exercise; keep it to yourself")


class NotebookOptions(CommandOptions):
    """``lab``."""

    out: Path = Field(default=Path("kernellab-notebooks"), description="the folder to copy them to")
    course: bool = Field(default=False, description="the lessons of the course instead of the tutorials")
    solutions: bool = Field(
        default=False, description="with --course: the teacher's guide and the reference answers too"
    )
