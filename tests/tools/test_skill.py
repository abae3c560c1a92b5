"""`kernellab skill`: an agent's folder gets the skill and a setting by which the server really starts."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.tools import ToolError, tools
from kernellab.tools.sessions import PATIENCE
from kernellab.tools.skill import _JSON, CLIENTS, command, jsonc, write_skill

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
        listed = json.loads((folder / ".jupyter/mcp_settings.json").read_text())["mcp_servers"]
        (entry,) = (one for one in listed if one["name"] == "kernellab")
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


def test_a_client_that_starts_no_server_unasked_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {}
    for client in CLIENTS:
        assert main(["skill", str(tmp_path / client), "--for", client]) == 0
        asked[client] = "until then it has none of the tools" in capsys.readouterr().err
    assert {client for client, told in asked.items() if told} == {"claude", "gemini"}


def test_an_unknown_client_and_a_broken_setting_are_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no client 'emacs'"):
        write_skill("emacs", tmp_path)
    (tmp_path / ".mcp.json").write_text("[1]")
    with pytest.raises(ToolError, match="no JSON object"):
        write_skill("claude", tmp_path)


MINE = (
    """# how I work
model = "mine"   # not the dear one

[mcp_servers.kernellab] # kernels
command = "/old/kernellab"  # of my other environment
tool_timeout_sec = 1200
args = [
  "mcp", # stdio
  "--unsandboxed",
]
enabled_tools = ["gate_sketch"]
note = """
    + '"""'
    + """
[mcp_servers.kernellab]
command = "no table"
"""
    + '"""'
    + """

[mcp_servers.kernellab.env]
OMP_NUM_THREADS = "2"  # half of them

[mcp_servers.other]
command = "x"
"""
)


def test_a_persons_codex_table_keeps_all_but_the_command(tmp_path: Path) -> None:
    path = tmp_path / "dotfiles" / "codex.toml"
    path.parent.mkdir()
    path.write_text(MINE)
    path.chmod(0o600)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/config.toml").symlink_to(path)
    for _ in range(2):
        write_skill("codex", tmp_path)
        text = path.read_text()
        before, after = tomllib.loads(MINE), tomllib.loads(text)
        (program, *arguments), ours = command(), after["mcp_servers"]["kernellab"]
        assert (ours.pop("command"), ours.pop("args"), ours.pop("startup_timeout_sec")) == (program, arguments, 60)
        assert ours.pop("required") is True, "Codex 0.171 begins a turn without the tools of a server that still starts"
        del before["mcp_servers"]["kernellab"]["command"], before["mcp_servers"]["kernellab"]["args"]
        assert after == before
        for comment in ("# how I work", "# not the dear one", "# kernels", "# of my other environment", "# half of"):
            assert comment in text
    assert path.stat().st_mode & 0o777 == 0o600 and [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { kernellab = { command = 'x', env = { A = 'b' } } }",
        "mcp_servers.kernellab.command = 'x'\n[mcp_servers.kernellab.env]\nA = 'b'",
        "[mcp_servers.kernellab]\nurl = 'http://127.0.0.1:9'",
        "[mcp_servers.kernellab]\n\"command\" = 'x'",
        "[mcp_servers\n",
        "mcp_servers = 3",
    ],
)
def test_a_setting_that_cannot_be_changed_safely_stays_and_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".codex/config.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ToolError, match=r"config\.toml") as raised:
        write_skill("codex", tmp_path)
    assert raised.value.remedy and path.read_text() == text and not (tmp_path / "AGENTS.md").exists()


def test_a_persons_keys_of_the_server_stay(tmp_path: Path) -> None:
    mine = {"command": "/old", "args": ["x"], "env": {"A": "b"}, "timeout": 5}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"kernellab": mine}}))
    (tmp_path / ".jupyter").mkdir()
    listed = {"mcp_servers": [{"name": "kernellab", **mine}, {"name": "other"}]}
    (tmp_path / ".jupyter/mcp_settings.json").write_text(json.dumps(listed))
    for client in ("claude", "jupyter"):
        write_skill(client, tmp_path)
        assert command_of(client, tmp_path) == command()
    entry = json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["kernellab"]
    other, ours = json.loads((tmp_path / ".jupyter/mcp_settings.json").read_text())["mcp_servers"]
    assert entry["env"] == ours["env"] == {"A": "b"} and entry["timeout"] == 5 and other == {"name": "other"}


def test_what_a_person_writes_after_the_skill_stays(tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("# Mine\n")
    write_skill("opencode", tmp_path)
    path.write_text(path.read_text() + "\n## More\n\nSay please.\n")
    write_skill("opencode", tmp_path)
    text = path.read_text()
    assert text.startswith("# Mine\n") and text.endswith("\n## More\n\nSay please.\n")
    assert text.count("# Kernels with kernellab") == 1
    earlier = "# Mine\n<!-- kernellab skill -->\nof another version\n\n## More\n"
    path.write_text(earlier)
    with pytest.raises(ToolError, match="earlier version"):
        write_skill("opencode", tmp_path)
    assert path.read_text() == earlier


COMMENTED = """{
  // mine: "mcp": {}
  "theme": "dark", /* not , } */
  "%s": {
    "other": {"command": ["http://x"],}, // another
    "kernellab": {"command": %s, /* old */ "env": {"A": "b"},},
  },
}
"""


@pytest.mark.parametrize("client", ["claude", "opencode", "gemini"])
@pytest.mark.parametrize("with_ours", [True, False])
def test_comments_and_trailing_commas_of_a_json_setting_stay(client: str, with_ours: bool, tmp_path: Path) -> None:
    _, setting, key, _ = _JSON[client]
    text = COMMENTED % (key, '["/old"]' if client == "opencode" else '"/old"')
    if not with_ours:
        text = "".join(line for line in text.splitlines(keepends=True) if "kernellab" not in line)
    path = tmp_path / setting
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    for _ in range(2):
        write_skill(client, tmp_path)
        after = path.read_text()
        settings = jsonc.read(after)
        ours = settings[key]["kernellab"]
        started = ours["command"] if client == "opencode" else [ours["command"], *ours["args"]]
        assert started == command() and ours.get("env") == ({"A": "b"} if with_ours else None)
        assert settings["theme"] == "dark" and settings[key]["other"] == {"command": ["http://x"]}
        for comment in ('// mine: "mcp": {}', "/* not , } */", "// another", *(["/* old */"] if with_ours else ())):
            assert comment in after
    written = after
    write_skill(client, tmp_path)
    assert path.read_text() == written


@pytest.mark.parametrize("text", ["[1]", '{"mcpServers": 3}', '{"mcpServers": {"kernellab": []}}', "{", '{"a": 1 // x'])
def test_a_json_setting_that_cannot_be_changed_stays_and_the_lines_are_given(text: str, tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text(text)
    with pytest.raises(ToolError, match=r"\.mcp\.json") as raised:
        write_skill("claude", tmp_path)
    assert command()[0] in raised.value.remedy and (tmp_path / ".mcp.json").read_text() == text
    assert not (tmp_path / ".claude").exists()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_link_out_of_the_folder_is_not_written_through(client: str, tmp_path: Path) -> None:
    folder, outside = tmp_path / "cloned", tmp_path / "home"
    for path in (path.relative_to(folder) for path in write_skill(client, folder)):
        for linked in [path, *path.parents][:-1]:
            shutil.rmtree(folder)
            outside.mkdir(exist_ok=True)
            (folder / linked).parent.mkdir(parents=True)
            (folder / linked).symlink_to(outside / "it", target_is_directory=linked != path)
            if linked != path:
                (outside / "it").mkdir()
            with pytest.raises(ToolError, match="out of the folder"):
                write_skill(client, folder)
            assert not [one for one in outside.rglob("*") if one.is_file()]
            shutil.rmtree(outside)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for client in CLIENTS:
        for folder in ("/proc/no_such_folder", str(tmp_path / "file")):
            assert main(["skill", folder, "--for", client]) == 2
            told = capsys.readouterr().err
            assert folder in told and "Traceback" not in told


def test_the_guide_names_each_key_that_a_clients_entry_gets(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/how-to/agents.md").read_text()
    for client in CLIENTS:
        write_skill(client, tmp_path)
    codex = tomllib.loads((tmp_path / ".codex/config.toml").read_text())["mcp_servers"]["kernellab"]
    keys = {*codex, *(word for *_, entry in _JSON.values() for word in entry)} - {"command", "args"}
    assert len(keys) > 5 and [key for key in keys if f"`{key}`" not in guide] == []
