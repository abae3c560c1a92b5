"""`kernellab mcp`, driven by the official SDK's own client over the standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools.test_tools import FIXED, SKETCH, TASK
from tests.waiting import until

mcp = pytest.importorskip("mcp")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "kernellab.toml").touch()
    # what a task prints would break the protocol, were it to reach the client's stream
    (tmp_path / "twice.py").write_text(TASK + "\nprint('a task prints')\n")
    return tmp_path


@asynccontextmanager
async def client(workspace: Path, log: Any = sys.stderr) -> AsyncIterator[Any]:
    from mcp.client.stdio import stdio_client

    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "kernellab", "mcp", "--workspace", str(workspace)], env=dict(os.environ)
    )
    async with stdio_client(command, errlog=log) as (read, write), mcp.ClientSession(read, write) as session:
        await session.initialize()
        yield session


def test_a_client_lists_calls_and_reads(workspace: Path) -> None:
    async def talk() -> None:
        async with client(workspace) as session:
            listed = {tool.name: tool for tool in (await session.list_tools()).tools}
            assert {"gate_sketch", "verify_source", "lens"} <= set(listed)
            # a client that asks no one refuses what may start a model, and nothing else
            hints = {name: tool.annotations for name, tool in listed.items()}
            assert [name for name, hint in hints.items() if hint.open_world_hint] == ["begin_session"]
            assert hints["gate_sketch"].read_only_hint and not hints["submit_source"].read_only_hint
            right = await session.call_tool("gate_sketch", {"sketch": SKETCH, "task": "twice.py"})
            assert right.structured_content["state"] == "right" and not right.is_error
            wrong = await session.call_tool("gate_sketch", {"sketch": SKETCH})
            assert wrong.is_error and "task is missing" in wrong.content[0].text
            assert (await session.list_resource_templates()).resource_templates == []
            listed_kinds = {str(r.uri): r.mime_type for r in (await session.list_resources()).resources}
            documents = list(listed_kinds)
            for end in (".md", ".py"):
                uri = next(uri for uri in documents if uri.endswith(end))
                assert (await session.read_resource(uri)).contents[0].mime_type == listed_kinds[uri]
            page = await session.read_resource(next(uri for uri in documents if uri.endswith("language/overview.md")))
            assert "The sketch language" in page.contents[0].text
            assert {p.name for p in (await session.list_prompts()).prompts} == {"designer", "coder", "conductor"}

    asyncio.run(talk())


def test_what_is_not_there_is_one_sentence_without_a_traceback(workspace: Path, tmp_path: Path) -> None:
    said: list[str] = []

    async def talk(log: Any) -> None:
        async with client(workspace, log) as session:
            for asked in (
                session.get_prompt("nobody", {"session": "twice"}),
                session.read_resource("kernellab://documents/nothing.md"),
                session.read_resource("kernellab://sessions/twice"),
            ):
                with pytest.raises(Exception, match=r"\S") as error:
                    await asked
                said.append(str(error.value))

    with (tmp_path / "log").open("w+") as log:
        asyncio.run(talk(log))
        log.seek(0)
        assert "Traceback" not in log.read()
    assert "Roles:" in said[0] and "resources/list" in said[1] and "NAME/task|sketch|source|verdict" in said[2]


def test_progress_is_sent_and_a_sessions_brief_is_a_prompt(workspace: Path) -> None:
    (workspace / "twice.py").write_text(f"{FIXED}\nprint('a task prints')\n")
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def talk() -> None:
        async with client(workspace) as session:
            arguments = {"task": "twice.py", "dsl": "cpp"}
            begun = await session.call_tool("begin_session", arguments, progress_callback=hear)
            assert begun.structured_content["status"] == "finished"
            prompt = await session.get_prompt("designer", {"session": "twice"})
            assert "reference" in prompt.messages[0].content.text
            of_session = {str(r.uri) for r in (await session.list_resources()).resources if "/sessions/" in str(r.uri)}
            parts = {uri.rpartition("/")[2]: (await session.read_resource(uri)).contents[0].text for uri in of_session}
            assert "def reference" in parts["task"] and parts["sketch"].startswith("sketch ")
            assert "kernel" in parts["source"] and json.loads(parts["verdict"])["passed"]

    asyncio.run(talk())
    assert any("designer" in line for line in told) and any("verifier" in line for line in told)


def test_a_cancelled_call_ends_and_the_server_serves_on(workspace: Path) -> None:
    async def talk() -> None:
        async with client(workspace) as session:
            files = {"kernel.py": "import time\ndef kernel(x):\n    time.sleep(600)\n"}
            arguments = {"task": "twice.py", "files": files, "dsl": "cpp", "allow_library": True}
            call = asyncio.create_task(session.call_tool("verify_source", arguments))
            await asyncio.sleep(1.0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert (await session.call_tool("list_sessions", {})).structured_content["sessions"] == []

    asyncio.run(talk())


def test_a_client_that_dies_ends_its_server(workspace: Path) -> None:
    command = [sys.executable, "-m", "kernellab", "mcp", "--workspace", str(workspace)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None
    server.stdin.close()
    assert server.wait(60) == 0


def test_a_client_that_is_killed_while_a_kernel_is_judged_ends_its_server_without_a_word(
    workspace: Path, tmp_path: Path
) -> None:
    asks = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    sleeps = {"kernel.py": "import time\ndef kernel(x):\n    time.sleep(600)\n"}
    arguments = {"task": "twice.py", "files": sleeps, "dsl": "cpp", "allow_library": True}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asks},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "verify_source", "arguments": arguments},
        },
    ]
    sent[-1]["params"]["_meta"] = {"progressToken": 1}  # type: ignore[index]
    command = [sys.executable, "-m", "kernellab", "mcp", "--workspace", str(workspace)]
    with (tmp_path / "log").open("w+") as log:
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write("".join(f"{json.dumps(one)}\n" for one in sent).encode())
        server.stdin.flush()
        while b"progress" not in server.stdout.readline():
            pass
        # all of a killed process's ends close, its writing one first
        server.stdout.close()
        server.stdin.close()
        assert server.wait(60) == 0
        log.seek(0)
        assert not set(log.read().split("\n")) - {"a task prints", ""}


@pytest.mark.parametrize("line", [
    b"\xff\xfe",
    b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "lens", "arguments": {"a": "\xe9"}}}',
    b'{"half',
], ids=["no text", "in an argument", "no JSON"])  # fmt: skip
def test_a_line_that_cannot_be_read_ends_no_server(workspace: Path, line: bytes) -> None:
    asks = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asks}
    second = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    last = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    sent = [json.dumps(first).encode(), json.dumps(second).encode(), line, json.dumps(last).encode()]
    command = [sys.executable, "-m", "kernellab", "mcp", "--workspace", str(workspace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(b"\n".join(sent) + b"\n")
        server.stdin.flush()
        answers = list[dict[str, Any]]()
        while not any(answer["id"] == 2 for answer in answers):
            answers.append(json.loads(server.stdout.readline()))
        server.stdin.close()
        assert server.wait(60) == 0
    faults = [answer["error"]["code"] for answer in answers if "error" in answer]
    assert faults == ([-32700] if b"half" not in line else []), answers


def test_a_task_that_reads_what_is_typed_takes_no_request_of_the_server(workspace: Path) -> None:
    (workspace / "asks.py").write_text(f"import sys\nTYPED = sys.stdin.read()\n{TASK}")
    asks = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    named = {"name": "describe_task", "arguments": {"task": "asks.py"}}
    sent = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asks},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": named},
        {"jsonrpc": "2.0", "id": 3, "method": "ping"},
    ]
    command = [sys.executable, "-m", "kernellab", "mcp", "--workspace", str(workspace)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write("".join(f"{json.dumps(one)}\n" for one in sent).encode())
        server.stdin.flush()
        answers = dict[int, dict[str, Any]]()
        while not {2, 3} <= answers.keys():
            answer = json.loads(server.stdout.readline())
            answers[answer.get("id", 0)] = answer
        server.stdin.close()
        assert server.wait(60) == 0
    assert not answers[2]["result"].get("isError"), answers[2]


def asked(url: str, **headers: str) -> int:
    """The status of a client's first request."""
    asks = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asks}).encode()
    kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    try:
        return int(urllib.request.urlopen(urllib.request.Request(url, body, {**kinds, **headers}), timeout=60).status)
    except urllib.error.HTTPError as error:
        return error.code


def test_http_serves_two_clients_that_have_the_token_and_no_other(workspace: Path) -> None:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp/"
    command = [sys.executable, "-m", "kernellab", "mcp", "--http", "--port", str(port), "--workspace", str(workspace)]
    server = subprocess.Popen(command, env={**os.environ, "KERNELLAB_MCP_TOKEN": "open sesame"})

    def answers() -> int:
        request = urllib.request.Request(url, json.dumps({}).encode(), {"Authorization": "Bearer wrong"})
        try:
            urllib.request.urlopen(request, timeout=5)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0
        return 200

    async def names() -> set[str]:
        headers = {"Authorization": "Bearer open sesame"}
        async with (
            httpx2.AsyncClient(headers=headers, follow_redirects=True, timeout=60) as http,
            streamable_http_client(url, http_client=http) as streams,
            mcp.ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            return {tool.name for tool in (await session.list_tools()).tools}

    async def both() -> list[set[str]]:
        return list(await asyncio.gather(names(), names()))

    try:
        assert until(answers) == 401
        # a page whose name leads to this machine, and a page of another server
        local, right = f"127.0.0.1:{port}", "Bearer open sesame"
        assert asked(url, Host=local, Authorization=right) == 200
        # a scheme's case does not count (RFC 9110, 11.1)
        assert asked(url, Host=local, Authorization="bearer open sesame") == 200
        for host, origin in ((f"evil.example:{port}", ""), (local, "http://evil.example"), (local, "null")):
            assert asked(url, Host=host, Authorization=right, **({"Origin": origin} if origin else {})) in (403, 421)
        assert asked(f"{url}?token=open+sesame") == asked(url, Authorization="Basic open sesame") == 401
        one, other = asyncio.run(both())
        assert one == other and "verify_source" in one
    finally:
        server.terminate()
        server.wait(30)


def test_a_port_that_is_taken_is_one_sentence_and_no_address_is_printed(workspace: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "kernellab", "mcp", "--http", "--port", port, "--workspace", str(workspace)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and f"Port {port}" in ended.stderr and "--port" in ended.stderr
    assert "http://" not in ended.stdout + ended.stderr and "Traceback" not in ended.stderr


def test_clients_over_http_share_one_limit_of_verdicts(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second connection is no second judge: an agent may open as many as it likes."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from kernellab.tools import Context
    from kernellab.tools.mcp.handlers import Handlers
    from kernellab.tools.mcp.transports import http_app

    monkeypatch.setattr("kernellab.tools.context.MOST_VERDICTS", 1)
    app = http_app(Handlers(Context(workspace)), "key")
    arguments = {
        "task": "twice.py",
        "files": {"kernel.py": "def kernel(x):\n    return x\n"},
        "level": "T0",
        "dsl": "cpp",
    }

    async def asked(url: str) -> Any:
        async with (
            httpx2.AsyncClient(headers={"Authorization": "Bearer key"}, follow_redirects=True, timeout=60) as http,
            streamable_http_client(url, http_client=http) as streams,
            mcp.ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            return await session.call_tool("verify_source", arguments)

    async def talk() -> tuple[Any, Any]:
        import uvicorn

        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            serving = asyncio.create_task(server.serve([listening]))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp/"
            try:
                return await asked(url), await asked(url)
            finally:
                server.should_exit = True
                await serving

    first, second = asyncio.run(talk())
    assert not first.is_error and first.structured_content["stage"] == "static"
    assert second.is_error and "for its clients, which is the limit" in second.content[0].text
