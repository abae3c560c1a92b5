"""Where the documents are: ``knowledge/`` and ``notebooks/`` of this installation, and the person's workspace; and
texts that are written to files of a person's choice."""

from __future__ import annotations

import errno
import os
import sys
import threading
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PureWindowsPath

from kernellab.errors import KernellabError

#: the folder of a workspace that holds its journal
WORKSPACE = ".kernellab"

#: bytes of a file's name, leaving room for what a compiler appends
MOST_NAME = 200
#: names of this process's own descriptors
_STREAMS = ("/dev/std", "/dev/fd/", "/proc/self/fd/")
_PACKAGE = Path(__file__).resolve().parent


#: what `python -m` does, with this very package: a folder of its name where a person works is not looked into
_START = """
import sys
sys.path[:] = filter(None, sys.path)
import importlib.util, runpy
folder, name = sys.argv[1:3]
del sys.argv[1:3]
places = {"location": folder + "/__init__.py", "submodule_search_locations": [folder]}
spec = importlib.util.spec_from_file_location("kernellab", **places)
sys.modules["kernellab"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


def module_command(name: str, *arguments: str) -> list[str]:
    """The command that runs the module ``name`` of this installation as a program."""
    return [sys.executable, "-c", _START, str(_PACKAGE), name, *arguments]


def content(name: str) -> Path:
    """The folder ``name`` ("knowledge" or "notebooks").

    A wheel carries both under ``kernellab/_content/``; in an editable install they stand at the repository's root.

    Raises:
        KernellabError: this installation has no such folder.
    """
    for root in (_PACKAGE / "_content", _PACKAGE.parent):
        folder = root / name
        if folder.is_dir():
            return folder
    raise KernellabError(f"This installation has no {name!r} folder.", "Install kernellab again from its wheel.")


def find_workspace(start: Path | None = None) -> Path:
    """The nearest parent with ``kernellab.toml`` or ``.kernellab/``, else ``start`` (the current folder)."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "kernellab.toml").is_file() or (folder / WORKSPACE).is_dir():
            return folder
    return start


def written(path: Path, content: str | bytes) -> Path:
    """``content`` in a file, whose folder is made; a file that is there is whole at any time, and keeps its mode and
    the symbolic links to it. Raises KernellabError where it cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and (not path.is_file() or str(path).startswith(_STREAMS)):  # a terminal, a pipe
            path.write_bytes(data)
            return path
        file = Path(os.path.realpath(path))
        if file.exists() and not os.access(file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        draft = file.with_name(f".kernellab.{os.getpid()}.{threading.get_ident()}")
        try:
            if file.exists():
                draft.touch(file.stat().st_mode & 0o777)
            draft.write_bytes(data)
            if file.exists():
                draft.chmod(file.stat().st_mode & 0o777)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise KernellabError(f"{path} cannot be written: {error.strerror}.", "Give another path.") from None
    return path


def inside(files: dict[str, str]) -> dict[str, str]:
    """The same texts, whose names can be files below one folder, also as Windows reads them.

    Raises:
        ValueError: one cannot.
    """
    folders: set[PureWindowsPath] = set()
    for name in files:
        path = PureWindowsPath(name)  # splits at both slashes, and knows drives
        if not path.parts or path.anchor or ".." in path.parts or not name.isprintable():
            raise ValueError(f"the file {name!r} lies outside the source")
        if any(len(part.encode()) > MOST_NAME for part in path.parts) or len(name) > 4 * MOST_NAME:
            raise ValueError(f"the file's name {name[:40]!r}... is too long")
        folders.update(path.parents)
    if both := next((name for name in files if PureWindowsPath(name) in folders), None):
        raise ValueError(f"{both!r} is a file and a folder")
    return files


def installed(package: str = "kernellab") -> str:
    """The installed version of a distribution; "" where there is none."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
