"""``kernellab skill``: what a coding agent reads, and the setting by which it starts the server."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernellab.content import written
from kernellab.tools.tool import ToolError

COMMAND = ("kernellab", "mcp")
_TEXT = Path(__file__).with_name("skill.md")
#: before the skill in a file that holds other instructions too
_MARK = "<!-- kernellab skill -->"


def _server() -> dict[str, Any]:
    return {"command": COMMAND[0], "args": list(COMMAND[1:])}


def _claude(folder: Path) -> dict[Path, str]:
    return {
        folder / ".claude" / "skills" / "kernellab" / "SKILL.md": skill_text(),
        folder / ".mcp.json": _with_entry(folder / ".mcp.json", "mcpServers", _server()),
    }


def _codex(folder: Path) -> dict[Path, str]:
    path = folder / ".codex" / "config.toml"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    head = "[mcp_servers.kernellab]"
    table = f'{head}\ncommand = "{COMMAND[0]}"\nargs = {json.dumps(list(COMMAND[1:]))}\n'
    return {
        folder / "AGENTS.md": _with_section(folder / "AGENTS.md"),
        path: before if head in before else f"{before.rstrip()}\n\n{table}".lstrip(),
    }


def _opencode(folder: Path) -> dict[Path, str]:
    # OpenCode's usual 5 s for the list of tools are too short on a busy machine
    entry = {"type": "local", "command": list(COMMAND), "enabled": True, "timeout": 60_000}
    return {
        folder / "AGENTS.md": _with_section(folder / "AGENTS.md"),
        folder / "opencode.json": _with_entry(folder / "opencode.json", "mcp", entry),
    }


def _gemini(folder: Path) -> dict[Path, str]:
    path = folder / ".gemini" / "settings.json"
    return {
        folder / "GEMINI.md": _with_section(folder / "GEMINI.md"),
        path: _with_entry(path, "mcpServers", _server()),
    }


def _jupyter(folder: Path) -> dict[Path, str]:
    # Jupyter AI 3 starts these servers for each agent of a chat
    path = folder / ".jupyter" / "mcp_settings.json"
    settings = _settings(path, "mcp_servers", [])
    others = [one for one in settings["mcp_servers"] if one.get("name") != "kernellab"]
    settings["mcp_servers"] = [*others, {"name": "kernellab", **_server(), "env": []}]
    return {folder / "AGENTS.md": _with_section(folder / "AGENTS.md"), path: json.dumps(settings, indent=2) + "\n"}


CLIENTS: Mapping[str, Callable[[Path], dict[Path, str]]] = {
    "claude": _claude, "codex": _codex, "opencode": _opencode, "gemini": _gemini,
    "jupyter": _jupyter,
}  # fmt: skip


def write_skill(client: str, folder: Path) -> list[Path]:
    """Writes the skill and the client's setting below ``folder``; which files. What else they hold stays.

    Raises:
        ToolError: an unknown client, or a setting of the folder that cannot be read.
    """
    if client not in CLIENTS:
        raise ToolError(f"There is no client {client!r}.", f"Choose one of {', '.join(CLIENTS)}.")
    files = CLIENTS[client](folder)
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


def _with_entry(path: Path, key: str, entry: Mapping[str, Any]) -> str:
    """The JSON file with ``entry`` as the server kernellab."""
    settings = _settings(path, key, {})
    settings[key]["kernellab"] = dict(entry)
    return json.dumps(settings, indent=2) + "\n"


def _settings(path: Path, key: str, empty: dict[str, Any] | list[Any]) -> dict[str, Any]:
    """The JSON object of a file, with ``key`` in it. Raises ToolError."""
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not isinstance(settings.setdefault(key, empty), type(empty)):
            raise TypeError(f"{key} is something else")
    except (ValueError, AttributeError, TypeError) as error:
        remedy = "Correct it, or name another folder."
        raise ToolError(f"{path} is no JSON object with {key}: {error}", remedy) from None
    return settings
