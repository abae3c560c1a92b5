"""An agent that speaks the Agent Client Protocol and does what a file says: one list of acts for each prompt.

``python scripted_agent.py FILE [--stdio]``: with ``--stdio`` it takes MCP servers over the standard streams alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AgentCapabilities,
    Cost,
    McpCapabilities,
    PermissionOption,
    PlanEntry,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

OPTIONS = [
    PermissionOption(option_id="y", name="Yes", kind="allow_once"),
    PermissionOption(option_id="n", name="No", kind="reject_once"),
]


class Scripted:
    def __init__(self, prompts: list[list[dict[str, Any]]], http: bool) -> None:
        self.prompts, self.http = prompts, http
        self.stack = AsyncExitStack()
        self.connection: Any = None
        self.tools: Any = None
        self.heard: list[str] = []

    def on_connect(self, connection: Any) -> None:
        self.connection = connection

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        able = AgentCapabilities(mcp_capabilities=McpCapabilities(http=self.http))
        return acp.InitializeResponse(protocol_version=protocol_version, agent_capabilities=able)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Any:
        self.cwd, self.server = Path(cwd), mcp_servers[0]
        return acp.NewSessionResponse(session_id="s")

    async def cancel(self, session_id: str, **_: Any) -> None: ...

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        self.heard.append(prompt[0].text)
        usage = None
        for act in self.prompts.pop(0) if self.prompts else []:
            (what, value), *rest = act.items()
            if what == "usage":
                usage = Usage(total_tokens=sum(value), input_tokens=value[0], output_tokens=value[1])
            else:
                await getattr(self, f"_{what}")(value, **dict(rest))
        return acp.PromptResponse(stop_reason="end_turn", usage=usage)

    async def _update(self, update: Any) -> None:
        await self.connection.session_update(session_id="s", update=update)

    async def _say(self, text: str) -> None:
        await self._update(acp.update_agent_message_text(text))

    async def _think(self, text: str) -> None:
        await self._update(acp.update_agent_thought_text(text))

    async def _plan(self, entries: list[str]) -> None:
        made = [PlanEntry(content=entry, priority="medium", status="pending") for entry in entries]
        await self._update(acp.update_plan(made))

    async def _used(self, tokens: int) -> None:
        await self._update(UsageUpdate(session_update="usage_update", used=tokens, size=200_000))

    async def _cost(self, usd: float) -> None:
        update = UsageUpdate(session_update="usage_update", used=1, size=2, cost=Cost(amount=usd, currency="USD"))
        await self._update(update)

    async def _edit(self, name: str, text: str) -> None:
        (self.cwd / name).write_text(text)
        diff = acp.tool_diff_content(str(self.cwd / name), text, "")
        await self._update(acp.start_tool_call("e1", f"edit {name}", kind="edit", content=[diff]))
        await self._update(acp.update_tool_call("e1", status="completed", content=[diff]))

    async def _ask(self, title: str, writes: str = "", to: str = "notes.md") -> None:
        diff = [acp.tool_diff_content(str(self.cwd / to), writes, "")] if writes else None
        call = ToolCallUpdate(tool_call_id="p1", title=title, kind="edit" if writes else None, content=diff)
        answer = await self.connection.request_permission(session_id="s", tool_call=call, options=OPTIONS)
        await self._say(f"permission: {getattr(answer.outcome, 'option_id', 'none')}. ")

    async def _ask_at_once(self, titles: list[str], dies: int = 0) -> None:
        if dies:
            asyncio.get_running_loop().call_later(2, os._exit, dies)
        await asyncio.gather(*(self._ask(title) for title in titles))

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _exit(self, code: int) -> None:
        print("out of sorts", file=sys.stderr, flush=True)
        os._exit(code)

    async def _spawn(self, where: str) -> None:
        """A process that detaches itself and lives on."""
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        (self.cwd / where).write_text(str(child.pid))
        await self._say(f"spawned {child.pid}")

    async def _keep(self, name: str) -> None:
        """Reads what an earlier run of this agent kept, and keeps this one's, where such programs do."""
        found = []
        for variable, usual in (("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", ".local/share")):
            folder = Path(os.environ.get(variable) or Path.home() / usual) / name
            folder.mkdir(parents=True, exist_ok=True)
            kept = folder / "kept"
            found.append(f"{folder}: {kept.read_text() if kept.exists() else 'new'}")
            kept.write_text("kept")
        await self._say(json.dumps(found))

    async def _leave(self, seconds: float) -> None:
        """A process that ends after its parent, and before the agent."""
        code = f"import subprocess; subprocess.Popen(['sleep', '{seconds}'], start_new_session=True)"
        subprocess.run([sys.executable, "-c", code], check=True)

    async def _try(self, code: str) -> None:
        """What Python code here comes to, said as a message."""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        await self._say((done.stdout + done.stderr[-300:]).strip())

    async def _heard(self, _: Any) -> None:
        await self._say(self.heard[-1])

    async def _tool(self, name: str, **arguments: Any) -> None:
        result = await (await self._session()).call_tool(name, arguments.get("with_", {}))
        await self._say("".join(f"<{c.text}>" for c in result.content) if arguments.get("loud") else "")

    async def _session(self) -> Any:
        if self.tools is None:
            self.tools = await self.stack.enter_async_context(_connected(self.server))
        return self.tools


def _connected(server: Any) -> Any:
    from contextlib import asynccontextmanager

    from mcp import ClientSession, StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    @asynccontextmanager
    async def connect() -> Any:
        async with AsyncExitStack() as stack:
            if hasattr(server, "url"):
                headers = {h.name: h.value for h in server.headers}
                http = await stack.enter_async_context(create_mcp_http_client(headers=headers))
                streams = await stack.enter_async_context(streamable_http_client(server.url, http_client=http))
            else:
                env = {**os.environ, **{e.name: e.value for e in server.env}}
                started = StdioServerParameters(command=server.command, args=server.args, env=env)
                streams = await stack.enter_async_context(stdio_client(started))
            session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
            await session.initialize()
            yield session

    return connect()


if __name__ == "__main__":
    agent = Scripted(json.loads(Path(sys.argv[1]).read_text()), "--stdio" not in sys.argv)
    asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))
