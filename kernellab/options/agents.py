"""The options of a coding agent that plays a role: ``[agents.NAME]`` of ``kernellab.toml``."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import BaseModel, Field

from kernellab.options.entry import REQUEST, Option, Surface


class AgentOptions(BaseModel):
    """How an agent is started, how long it may work in one turn, and what it may write."""

    model_config = REQUEST
    OPTION: ClassVar[Option] = Option(on=Surface.FILE)

    command: tuple[str, ...] = Field(
        min_length=1, description='the program that speaks the Agent Client Protocol: ["opencode", "acp"]'
    )
    env: dict[str, str] = Field(default_factory=dict, description="variables of its environment")
    minutes: float = Field(default=30, gt=0, description="minutes of one turn")
    tool_calls: int = Field(default=100, ge=1, description="calls of kernellab's tools in one turn")
    reports: tuple[Literal["tokens", "usd"], ...] = Field(
        default=(), description="what it reports of its use; a budget of another kind is refused"
    )
    permission: Literal["ask", "allow", "never"] = Field(
        default="ask",
        description="what it is answered when it asks for permission: a person is asked, or, where no one can be, it "
        "may work in its scratch folder alone; allow and never ask no one",
    )
    writes: tuple[str, ...] = Field(
        default=(),
        description="folders that it writes to besides its scratch folder; empty: ~/.NAME and NAME's folders below "
        "~/.config, ~/.cache, ~/.local/share and ~/.local/state",
    )
