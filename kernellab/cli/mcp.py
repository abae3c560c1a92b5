"""``kernellab mcp`` and ``kernellab skill``: the tools for coding agents, and what such an agent is taught."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Annotated

import typer

from kernellab.cli.output import say


def mcp(
    workspace: Annotated[
        Path | None, typer.Option(help="The folder with tasks and journal; default: this one's.")
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve on loopback instead of the standard streams.")] = False,
    relay: Annotated[str, typer.Option(hidden=True, help="Carry the streams to the server at this address.")] = "",
    unsandboxed: Annotated[
        bool, typer.Option("--unsandboxed", help="Kernels may run with my rights, to read a GPU's counters.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of --http.")] = 8765,
) -> int:
    """Serve kernellab's tools to a coding agent (Claude Code, Codex, OpenCode, Gemini CLI, Jupyter AI ...).

    Over HTTP a client sends the bearer token that is printed; KERNELLAB_MCP_TOKEN sets it. The agent may run tasks of
    the workspace and start sessions there, as `kernellab verify` and `kernellab design` do.
    """
    from kernellab.content import find_workspace
    from kernellab.tools import Context, mcp_server

    if relay:
        mcp_server.relay(relay, os.environ.get("KERNELLAB_MCP_TOKEN", ""))
        return 0
    place = workspace if workspace is not None else find_workspace()
    context = Context(place, unsandboxed=unsandboxed)
    if not http:
        mcp_server.serve_stdio(context)
        return 0
    token = os.environ.get("KERNELLAB_MCP_TOKEN") or secrets.token_urlsafe(24)
    address = f"http://127.0.0.1:{port}/mcp/ with the header `Authorization: Bearer {token}`"
    mcp_server.serve_http(context, port, token, lambda: say(address))
    return 0


def skill(
    folder: Annotated[Path, typer.Argument(help="The folder that the agent works in.")] = Path("."),
    client: Annotated[str, typer.Option("--for", help="claude, codex, opencode, gemini or jupyter.")] = "claude",
) -> int:
    """Write the skill and the MCP setting of a coding agent into FOLDER. What its files hold already stays."""
    from kernellab.tools.skill import PERMISSION, write_skill

    for path in write_skill(client, folder):
        print(path)
    if asked := PERMISSION.get(client):
        say(asked)
    return 0
