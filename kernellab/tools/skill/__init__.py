"""``kernellab skill``: what a coding agent reads, and the setting by which it starts the server."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernellab.content import module_command, written
from kernellab.tools.records import ToolError
from kernellab.tools.skill import jsonc

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TEXT = Path(__file__).with_name("skill.md")
#: before and after the skill in a file that holds other instructions too
_MARK, _END = "<!-- kernellab skill -->", "<!-- end of kernellab skill -->"
#: a table's line in TOML, and a key's of a plain table
_TABLE = re.compile(r"""\s*\[\s*mcp_servers\s*\.\s*(["']?)kernellab\1\s*\]\s*(#.*)?""")
_KEY = re.compile(r"\s*(\w+)\s*=")

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
#: what a client wants of a person before it starts the server of a folder
PERMISSION = {
    "claude": "Start `claude` in that folder once and allow the server kernellab; until then it has none of the tools.",
    "gemini": "Start `gemini` in that folder once and trust the folder; until then it has none of the tools.",
}


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
    return {folder / "AGENTS.md": _with_section(folder / "AGENTS.md"), path: _with_table(path)}


def write_skill(client: str, folder: Path) -> list[Path]:
    """Writes the skill and the client's setting below ``folder``; which files. What else they hold stays.

    Raises:
        ToolError: an unknown client, or a setting of the folder that cannot be read, or is a link out of it.
        KernellabError: a file cannot be written.
    """
    if client not in CLIENTS:
        raise ToolError(f"There is no client {client!r}.", f"Choose one of {', '.join(CLIENTS)}.")
    files = _files(client, folder)
    for path in files:
        # the folder may be another's repository, whose links would choose a file of the person's
        if not (real := Path(os.path.realpath(path))).is_relative_to(os.path.realpath(folder)):
            raise ToolError(f"{path} leads out of the folder, to {real}.", "Remove that link, or name another folder.")
    for path, text in files.items():
        written(path, text)
    return list(files)


def skill_text() -> str:
    return _TEXT.read_text(encoding="utf-8")


def _with_section(path: Path) -> str:
    """The file's instructions with the skill at their end, or in place of an earlier one.

    Raises:
        ToolError: where an earlier one ends is not known, and something of the person's may follow it.
    """
    body = skill_text().split("---\n", 2)[2].strip() + "\n"
    above, earlier, below = _text_of(path).partition(_MARK)
    _, ended, after = below.partition(_END)
    if earlier and not ended:
        if not below.lstrip().startswith(body):
            raise ToolError(
                f"{path} holds the skill of an earlier version, whose end is not marked.",
                f"Write the line {_END} after it, or remove it from {_MARK} on.",
            )
        after = below.lstrip()[len(body) :]
    return f"{above.rstrip()}\n\n{_MARK}\n{body}{_END}\n{after.lstrip()}".lstrip()


def _text_of(path: Path) -> str:
    """Raises ToolError: it is no text."""
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeError) as error:
        raise ToolError(f"{path} cannot be read: {error}", "Correct it, or name another folder.") from None


def _with_table(path: Path) -> str:
    """Codex's setting with the server kernellab. Of a table that is there only our keys' values change: other keys,
    tables below it, comments and order stay.

    Raises:
        ToolError: it is no TOML, or its table is written in another form.
    """
    before = _text_of(path)
    program, *arguments = command()
    # who waits longer or shorter has chosen so
    ours: dict[str, Any] = {"command": program, "args": arguments}
    # Codex begins a turn without the tools of a server that still starts, unless it is required
    chosen = {"startup_timeout_sec": 60, "tool_timeout_sec": _PATIENCE, "required": True}
    try:
        settings = tomllib.loads(before)
        old = settings.get("mcp_servers", {}).get("kernellab", {})
        _no_address(path, old)
        new = {**chosen, **old, **ours}
        wanted = {**settings, "mcp_servers": {**settings.get("mcp_servers", {}), "kernellab": new}}
        after = _edited(before, {key: value for key, value in new.items() if old.get(key) != value})
        if tomllib.loads(after) != wanted:
            raise ValueError("the table [mcp_servers.kernellab] is written in another form")
    except (ValueError, AttributeError, TypeError) as error:
        lines = "; ".join(f"{key} = {json.dumps(value)}" for key, value in (chosen | ours).items())
        remedy = f"Correct it, or write into [mcp_servers.kernellab] by hand: {lines}."
        raise ToolError(f"{path} cannot be changed: {error}.", remedy) from None
    return after


def _edited(text: str, values: Mapping[str, Any]) -> str:
    """``text`` with ``values`` in the table of the server. Its reader compares what came of it."""
    lines = text.splitlines(keepends=True)
    at = next((n for n, line in enumerate(lines) if _TABLE.fullmatch(line.rstrip("\n"))), None)
    told = {key: f"{key} = {json.dumps(value)}" for key, value in values.items()}
    if at is None:
        table = "\n".join(["[mcp_servers.kernellab]", *told.values()])
        return f"{text.rstrip()}\n\n{table}\n".lstrip()
    kept, n = [lines[at].rstrip("\n") + "\n"], at + 1
    while n < len(lines) and not lines[n].lstrip().startswith("["):
        # a value may go over several lines
        end = next((e for e in range(n + 1, len(lines) + 1) if _parses("".join(lines[n:e]))), n + 1)
        value, key = "".join(lines[n:end]), _KEY.match(lines[n])
        if key is not None and key[1] in told:
            rests = (value[i:].strip() for i, sign in enumerate(value) if sign == "#" and _parses(value[:i]))
            value = "  ".join(filter(None, (told.pop(key[1]), next(rests, "")))) + "\n"
        kept.append(value)
        n = end
    added = [f"{line}\n" for line in told.values()]
    return "".join([*lines[:at], kept[0], *added, *kept[1:], *lines[n:]])


def _parses(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _no_address(path: Path, server: Mapping[str, Any]) -> None:
    """Raises ToolError: the person's entry is a server that runs already."""
    if "url" in server:
        raise ToolError(f"{path} reaches kernellab at {server['url']}.", "Keep that, or remove its entry first.")


def _with_entry(path: Path, key: str, entry: dict[str, Any]) -> str:
    """The JSON file with ``entry`` as the server kernellab: servers are listed, or go by their names. Comments and all
    else stay.

    Raises:
        ToolError: it is no JSON object, or its servers are written in another form.
    """
    before = _text_of(path) or "{}\n"
    # what starts the server is ours; the rest is as the person has it
    ours = {word: entry[word] for word in ("command", "args") if word in entry}
    try:
        settings = jsonc.read(before)
        servers: Any = settings.get(key, [] if "name" in entry else {})
        if "name" in entry:
            old = next((one for one in servers if one.get("name") == "kernellab"), dict[str, Any]())
            new = {**entry, **old, **ours}
            wanted: Any = [*(one for one in servers if one is not old), new]
            after = jsonc.with_value(before, (key,), wanted)
        else:
            old = servers.get("kernellab", {})
            new = {**entry, **old, **ours}
            wanted = {**servers, "kernellab": new}
            differ = {word: value for word, value in new.items() if word not in old or old[word] != value}
            after = jsonc.with_values(before, (key, "kernellab"), differ)
        _no_address(path, old)
        settings[key] = wanted
        if jsonc.read(after) != settings:
            raise ValueError(f"{key} is written in another form")
    except (ValueError, AttributeError, TypeError) as error:
        place = f"{key}.kernellab" if "name" not in entry else f"the list {key}"
        remedy = f"Correct it, or write into {place} by hand: {json.dumps(entry)}."
        raise ToolError(f"{path} is no JSON object with {key}: {error}.", remedy) from None
    return after
