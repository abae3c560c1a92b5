"""`kernellab skill`: an agent's folder gets the skill and a setting by which the server really starts."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.tools import ToolError, tools
from kernellab.tools.sessions import PATIENCE
from kernellab.tools.skill import CLIENTS, write_skill

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def command_of(client: str, folder: Path) -> list[str]:
    """The command that a client reads from its setting."""
    if client == "codex":
        entry = tomllib.loads((folder / ".codex/config.toml").read_text())["mcp_servers"]["kernellab"]
    elif client == "opencode":
        return list(json.loads((folder / "opencode.json").read_text())["mcp"]["kernellab"]["command"])
    elif client == "jupyter":
        (entry,) = json.loads((folder / ".jupyter/mcp_settings.json").read_text())["mcp_servers"]
    else:
        name = ".mcp.json" if client == "claude" else ".gemini/settings.json"
        entry = json.loads((folder / name).read_text())["mcpServers"]["kernellab"]
    return [entry["command"], *entry["args"]]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_server_starts_by_the_clients_own_setting(client: str, tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from mcp.client.stdio import stdio_client

    write_skill(client, tmp_path)
    command, *arguments = command_of(client, tmp_path)
    # a client that a desktop started has no shell's path
    server = mcp.StdioServerParameters(command=command, args=arguments, env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path)

    async def names() -> set[str]:
        async with stdio_client(server) as (read, write), mcp.ClientSession(read, write) as session:
            await session.initialize()
            return {tool.name for tool in (await session.list_tools()).tools}

    assert asyncio.run(names()) == set(tools())


@pytest.mark.parametrize("client", CLIENTS)
def test_the_setting_of_an_environment_without_a_command_names_its_interpreter(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a person's own packages lie apart from Python's; a setting of another environment is replaced."""
    write_skill(client, tmp_path)
    (other := tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(other))
    write_skill(client, tmp_path)
    command = command_of(client, tmp_path)
    assert command[0] == str(other) and len(command) > 2
    (tmp_path / "kernellab.py").write_text("raise SystemExit('not this one')")
    asked = [sys.prefix + "/bin/python", *command[1:], "--help"]
    told = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0 and "Serve kernellab's tools" in told.stdout, told.stderr


def test_clients_that_give_up_after_a_minute_are_told_to_wait_for_a_verdict(tmp_path: Path) -> None:
    for client in ("codex", "opencode"):
        write_skill(client, tmp_path)
    codex = tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["kernellab"]
    opencode = json.loads((tmp_path / "opencode.json").read_text())["mcp"]["kernellab"]
    assert codex["tool_timeout_sec"] == opencode["timeout"] / 1000 > 2 * PATIENCE
    assert codex["startup_timeout_sec"] >= 60


def test_the_skill_is_short_and_names_tools_that_exist(tmp_path: Path) -> None:
    files = write_skill("claude", tmp_path)
    text = files[0].read_text()
    assert len(text.splitlines()) <= 150
    named = {word for word in text.replace("`", " ").replace(",", " ").replace(".", " ").split() if "_" in word}
    assert {name for name in named if name in tools()} >= {"gate_sketch", "verify_source", "submit_sketch"}
    assert named - set(tools()) <= {"get_inputs", "allow_library"}


def test_what_a_folder_holds_already_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "AGENTS.md").write_text("# Mine\n\nSay please.\n")
    (tmp_path / "opencode.json").write_text('{"theme": "dark", "mcp": {"other": {"type": "local", "command": ["x"]}}}')
    for _ in range(2):
        assert main(["skill", str(tmp_path), "--for", "opencode"]) == 0
    settings = json.loads((tmp_path / "opencode.json").read_text())
    assert settings["theme"] == "dark" and set(settings["mcp"]) == {"other", "kernellab"}
    text = (tmp_path / "AGENTS.md").read_text()
    assert text.startswith("# Mine\n\nSay please.\n") and text.count("# Kernels with kernellab") == 1
    assert str(tmp_path / "AGENTS.md") in capsys.readouterr().out


def test_an_unknown_client_and_a_broken_setting_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no client 'emacs'"):
        write_skill("emacs", tmp_path)
    (tmp_path / ".mcp.json").write_text("[1]")
    with pytest.raises(ToolError, match="no JSON object"):
        write_skill("claude", tmp_path)
