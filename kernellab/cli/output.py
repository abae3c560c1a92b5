"""What the commands share: words to stderr, one JSON object to stdout, and the options' parsing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from kernellab.content import written
from kernellab.errors import MOST_BYTES, KernellabError, counted


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def emit(value: Mapping[str, Any]) -> None:
    """The command's one JSON object, on stdout. NaN and infinities become null: they are no JSON."""
    print(json.dumps(_plain(value), indent=2, allow_nan=False, default=str), flush=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def ask_to_remember(name: str, remember: Callable[[], int]) -> None:
    """Offers what a session or a run of that name has verified to the memory: a person at a terminal is asked, a script
    sees how. Raises as ``remember``."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        if typer.confirm("Remember it for later designs?", default=False, err=True):
            say(f"{counted(remember(), 'kernel')} remembered")
    else:
        say(f"`kernellab memory add {name}` remembers it for later designs.")


def read_text(path: Path, what: str) -> str:
    """A file's text. Raises KernellabError, naming the file."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise KernellabError(f"The {what} {path} has {size / 1e6:.0f} MB.", f"Check that it is a {what}.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise KernellabError(f"The {what} {path} cannot be read: {reason}.", "Check the path.") from None


def write_files(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Write ``files`` under ``folder``; the paths written. Raises KernellabError when that fails."""
    return [str(written(folder / name, text)) for name, text in files.items()]


def write_kernel(folder: Path, name: str, sketch: str | None, source: Mapping[str, str]) -> list[str]:
    """What ``--out`` is for a kernel, whatever made it: ``NAME.sketch`` and ``source/``; the paths written."""
    sketches = {f"{name}.sketch": sketch} if sketch else {}
    return write_files(folder, {**sketches, **{f"source/{file}": text for file, text in source.items()}})


def check_folder(folder: Path | None) -> None:
    """Makes the folder that a long command writes to at its end. Raises KernellabError now where that will not do."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        why = "" if os.access(folder, os.W_OK) else "Permission denied"
    except OSError as error:
        why = error.strerror or type(error).__name__
    if why:
        raise KernellabError(f"{folder} cannot be written: {why}.", "Choose another folder.")
