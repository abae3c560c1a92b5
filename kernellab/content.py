"""Where the documents are: ``knowledge/`` and ``notebooks/`` of this installation."""

from __future__ import annotations

from pathlib import Path

from kernellab.errors import KernellabError

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
