"""``kernellab skill``: what a coding agent reads, and the setting by which it starts the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernellab.content import module_command, written
from kernellab.tools.tool import ToolError

_TEXT = Path(__file__).with_name("skill.md")
#: before the skill in a file that holds other instructions too
_MARK = "<!-- kernellab skill -->"


#: seconds that clients wait for a tool; some wait for one minute otherwise, and give up a verdict on a busy machine
_PATIENCE = 600
#: clients with a JSON setting: the file of the skill, that of the setting, the key of its servers, and ours but for the
#: command
_JSON: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "claude": (".claude/skills/kernellab/SKILL.md", ".mcp.json", "mcpServers", {}),
    # OpenCode's usual 5 s for the list of tools are too short on a busy machine, and 60 s for a verdict
    "opencode": ("AGENTS.md", "opencode.json", "mcp",
                 {"type": "local", "enabled": True, "timeout": 1000 * _PATIENCE}),
    "gemini": ("GEMINI.md", ".gemini/settings.json", "mcpServers", {}),
    # Jupyter AI 3 starts these for each agent of a chat
    "jupyter": ("AGENTS.md", ".jupyter/mcp_settings.json", "mcp_servers", {"name": "kernellab", "env": []}),
}  # fmt: skip
CLIENTS = ("codex", *_JSON)


def command() -> list[str]:
    """What starts the server of this environment: clients do so in another shell, or in none."""
    script = Path(sys.executable).with_name("kernellab")
    # a user's own packages have their commands elsewhere, and on a path that a client may not have
    return [str(script), "mcp"] if script.is_file() else module_command("kernellab.__main__", "mcp")


def _files(client: str, folder: Path) -> dict[Path, str]:
    if client != "codex":
        skill, setting, key, entry = _JSON[client]
        program, *arguments = command()
        started = {"command": command()} if "type" in entry else {"command": program, "args": arguments}
        entry = {**entry, **started}
        whole = skill_text() if skill.endswith("SKILL.md") else _with_section(folder / skill)
        return {folder / skill: whole, folder / setting: _with_entry(folder / setting, key, entry)}
    path = folder / ".codex" / "config.toml"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    head = "[mcp_servers.kernellab]\n"
    program, *arguments = command()
    table = f"{head}command = {json.dumps(program)}\nargs = {json.dumps(arguments)}\n"
    table += f"startup_timeout_sec = 60\ntool_timeout_sec = {_PATIENCE}\n"
    # an earlier one, perhaps of another environment, ends where the next table begins
    above, earlier, below = before.partition(head)
    rest = below[below.index("\n[") :] if "\n[" in below else ""
    kept = f"{above}{table}{rest}" if earlier else f"{above.rstrip()}\n\n{table}".lstrip()
    return {folder / "AGENTS.md": _with_section(folder / "AGENTS.md"), path: kept}


def write_skill(client: str, folder: Path) -> list[Path]:
    """Writes the skill and the client's setting below ``folder``; which files. What else they hold stays.

    Raises:
        ToolError: an unknown client, or a setting of the folder that cannot be read.
    """
    if client not in CLIENTS:
        raise ToolError(f"There is no client {client!r}.", f"Choose one of {', '.join(CLIENTS)}.")
    files = _files(client, folder)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        written(path, text)
    return list(files)


def skill_text() -> str:
    return _TEXT.read_text(encoding="utf-8")


def _with_section(path: Path) -> str:
    """The file's instructions with the skill at their end, in place of an earlier one."""
    before = path.read_text(encoding="utf-8").partition(_MARK)[0].rstrip() if path.exists() else ""
    body = skill_text().split("---\n", 2)[2].lstrip()
    return f"{before}\n\n{_MARK}\n{body}".lstrip()


def _with_entry(path: Path, key: str, entry: dict[str, Any]) -> str:
    """The JSON file with ``entry`` as the server kernellab: servers are listed, or go by their names."""
    empty: Any = [] if "name" in entry else {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        servers = settings.setdefault(key, empty)
        if not isinstance(servers, type(empty)):
            raise TypeError(f"{key} is something else")
        named = (one for one in servers if one.get("name") != "kernellab") if "name" in entry else ()
        settings[key] = [*named, entry] if "name" in entry else {**servers, "kernellab": entry}
    except (ValueError, AttributeError, TypeError) as error:
        remedy = "Correct it, or name another folder."
        raise ToolError(f"{path} is no JSON object with {key}: {error}", remedy) from None
    return json.dumps(settings, indent=2) + "\n"
