"""``kernellab.toml``: one table for each kind of request, whose keys are the request's options for a file."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from kernellab.errors import KernellabError
from kernellab.options.entry import Request, Surface, build, entries

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "kernellab.toml"
#: every table that a room reads
TABLES = ("session", "memory", "models", "evolve", "agents")


def read_table(path: Path, table: str, model: type[Request], error: type[KernellabError] = KernellabError) -> Request:
    """What ``[table]`` of the file says, as a request that has only these options set; an empty one without a file.

    Raises:
        error: the file, a table's name, a key or a value is wrong; the sentence names it, and for a name the closest.
    """
    return _read(path, table, _table(path, table, error), model, error)


def read_tables(
    path: Path, table: str, model: type[Request], error: type[KernellabError] = KernellabError
) -> dict[str, Request]:
    """What each ``[table.NAME]`` of the file says, by its name. Raises as :func:`read_table`."""
    found = _table(path, table, error)
    return {name: _read(path, f"{table}.{name}", values, model, error) for name, values in found.items()}


def _table(path: Path, table: str, error: type[KernellabError]) -> Any:
    if not path.is_file():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as fault:
        raise error(f"{path} cannot be read: {fault}.", "Fix the file.") from None
    if unknown := sorted(set(tables) - set(TABLES)):
        raise error(f"In {path}, [{unknown[0]}] is wrong: no such table.", choose(unknown[0], TABLES))
    return tables.get(table, {})


def _read(path: Path, table: str, values: Any, model: type[Request], error: type[KernellabError]) -> Request:
    if not isinstance(values, dict):
        raise error(f"In {path}, {table} should be a table.", f"Write it as [{table}].")
    keys = keys_of(model)
    if unknown := sorted(set(values) - set(keys)):
        raise error(f"In {path}, [{table}] {unknown[0]} is wrong: no such setting.", choose(unknown[0], keys))
    return build(model, values, error, f"setting of [{table}] in {path},")


def keys_of(model: type[BaseModel]) -> dict[str, Any]:
    """The keys that a table may have, by name."""
    return {entry.name: entry for entry in entries(model, Surface.FILE)}


def choose(name: str, names: Iterable[str]) -> str:
    """A remedy for an unknown name: the closest one, and all."""
    listed = list(names)
    return f"{closest(name, listed)} Choose one of {', '.join(listed)}.".strip()


def closest(name: str, names: Iterable[str]) -> str:
    """``Did you mean roles?``; "" where no name is like it."""
    near = get_close_matches(name, list(names), 1)
    return f"Did you mean {near[0]}?" if near else ""
