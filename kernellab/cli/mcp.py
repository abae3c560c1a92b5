"""``kernellab mcp`` and ``kernellab skill``: the tools for coding agents, and what such an agent is taught."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import say
from kernellab.options.commands.machine import McpOptions, SkillOptions


def mcp(options: McpOptions) -> int:
    """Serve kernellab's tools to a coding agent (Claude Code, Codex, OpenCode, Gemini CLI, Jupyter AI ...).

    Over HTTP a client sends the bearer token that is printed; KERNELLAB_MCP_TOKEN sets it. The agent may run tasks of
    the workspace and start sessions there, as `kernellab verify` and `kernellab design` do.
    """
    from kernellab.content import find_workspace
    from kernellab.tools import Context
    from kernellab.tools.mcp.transports import relay, serve_http, serve_stdio

    if options.relay:
        relay(options.relay, os.environ.get("KERNELLAB_MCP_TOKEN", ""))
        return 0
    context = Context(options.workspace or find_workspace(), unsandboxed=options.unsandboxed)
    if not options.http:
        serve_stdio(context)
        return 0
    token = os.environ.get("KERNELLAB_MCP_TOKEN") or secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{options.port}/mcp/ with the header `Authorization: Bearer {token}`"
    serve_http(context, options.port, token, lambda: say(address))
    return 0


def skill(
    options: SkillOptions,
    folder: Annotated[Path, typer.Argument(help="The folder that the agent works in.")] = Path("."),
) -> int:
    """Write the skill and the MCP setting of a coding agent into FOLDER. What its files hold already stays."""
    from kernellab.tools.skill import PERMISSION, write_skill

    for path in write_skill(options.client, folder):
        print(path)
    if asked := PERMISSION.get(options.client):
        say(asked)
    return 0
