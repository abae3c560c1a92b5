"""Who plays a turn with tools: an agent's program, or a model whose endpoint takes function calls."""

from __future__ import annotations

import os
from pathlib import Path

from kernellab.models import Budget, ChatModel, ModelSettings, open_model
from kernellab.models.client import EndpointModel
from kernellab.records import Role
from kernellab.sandbox import folders, sandbox
from kernellab.session.config import agent_options, check_agent
from kernellab.session.turn.context import Channel
from kernellab.target import Target
from kernellab.task import Task
from kernellab.tools.acp.agent import AgentModel
from kernellab.tools.context import CODE, Context
from kernellab.tools.desk import Desk
from kernellab.tools.function_calls import ToolModel

#: the name's beginning of a turn's folder
_PREFIX = "kernellab-agent-"


def open_player(
    spec: str, role: Role, task: Task, workspace: Path, settings: ModelSettings, budget: Budget, channel: Channel,
    at: Target, search: bool = False, memory: bool = True,
) -> ChatModel:  # fmt: skip
    """``agent:NAME``, or ``model`` with tools; what it started ends with ``channel``. It judges ``at`` the session's
    target. With ``search`` it looks at runs and may submit several answers, with ``memory`` it looks at what is
    remembered.

    Raises:
        SessionError: there is no such agent, or the budget limits what it does not report. ModelError: no endpoint.
    """
    kind, _, name = spec.partition(":")
    options = agent_options(workspace, name) if kind == "agent" else None
    model = open_model(spec, role, settings) if options is None else None
    if options is not None:
        check_agent(name, options, str(budget.limits))
    most, left = options.tool_calls if options else settings.tool_calls, budget.left("tool_calls")
    folders.sweep(_PREFIX, listed=False)
    path, held = folders.held(_PREFIX)
    folder = Path(path)
    channel.at_end.extend([lambda: os.close(held), lambda: sandbox.remove(path)])  # the last is called first
    context = Context(workspace, cancel=channel.cancel, bound=task, folder=folder, at=at, base=channel.source)
    for file, text in (channel.source.files if channel.source is not None else {}).items():
        (folder / CODE / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / CODE / file).write_text(text, encoding="utf-8")
    channel.at_end.append(context.close)
    most = most if left is None else min(most, int(left))
    desk = Desk(
        context, most, channel.step, channel.notes, channel.briefed, search=search, memory=memory, several=search
    )
    if options is None:
        assert isinstance(model, EndpointModel)
        return ToolModel(model, desk, budget)
    agent = AgentModel(name, options, desk, budget, channel.permit)
    channel.at_end.append(agent.close)
    if _first(workspace):
        desk.note(
            "An agent is a program of yours: it may read what you may, and has your network and its own keys. Where "
            "this machine can hold it, it writes to its scratch folder and its settings alone; what it submits is "
            "judged as any kernel is."
        )
    return agent


def _first(workspace: Path) -> bool:
    """Is it the first start of an agent in this workspace?"""
    mark = workspace / ".kernellab" / "agents-told"
    if mark.exists():
        return False
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    return True
