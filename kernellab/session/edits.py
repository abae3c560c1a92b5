"""A person's edit of a Source: files that are given are replaced, the others are unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from kernellab.content import inside
from kernellab.errors import SessionError
from kernellab.records import Author, Source


def main_file(source: Source) -> str:
    """The file that contains the kernel: the only one that is not a Python binding or header, if there is one."""
    kernel_files = [name for name in source.files if not name.endswith((".py", ".h", ".hpp"))]
    return kernel_files[0] if len(kernel_files) == 1 else source.entry_file


def edited(earlier: Source | None, files: str | Mapping[str, str], dsl: str) -> Source:
    """Return the Source after an edit; a plain text replaces the main file. Without an earlier source, return a new one
    in ``dsl``.

    Raises:
        SessionError: a file is outside the source's folder, or a new source has no clear entry file.
    """
    if isinstance(files, str):
        files = {main_file(earlier) if earlier else "kernel.py": files}
    try:
        inside({**(earlier.files if earlier else {}), **files})
    except ValueError as error:
        raise SessionError(f"A wrong name: {error}.", "Give a relative path of printable characters.") from None
    if earlier is not None:
        update = {"files": {**earlier.files, **files}, "origin": Author.HUMAN, "line_map": {}}
        return earlier.model_copy(update=update)
    python = [name for name in files if name.endswith(".py")]
    if "kernel.py" not in files and len(python) != 1:
        raise SessionError("It is not clear which file defines kernel(...).", "Name that file kernel.py.")
    entry = "kernel.py" if "kernel.py" in files else python[0]
    return Source(dsl=dsl, files=dict(files), entry_file=entry, origin=Author.HUMAN)
