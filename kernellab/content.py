"""Where the documents are: ``knowledge/`` and ``notebooks/`` of this installation, and the person's workspace; and
texts that are written to files of a person's choice."""

from __future__ import annotations

from pathlib import Path

from kernellab.errors import KernellabError

#: the folder of a workspace that holds its journal
WORKSPACE = ".kernellab"

_PACKAGE = Path(__file__).resolve().parent


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


def written(path: Path, text: str) -> Path:
    """``text`` in a file, whose folder is made. Raises KernellabError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise KernellabError(f"{path} cannot be written: {error.strerror}.", "Give another path.") from None
    return path
