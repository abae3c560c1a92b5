"""What students hand in: the notebooks of a folder, and the answer cells in them, read as text.

An answer cell begins with the magic that names its exercise (``%%kernel_exercise ID``), or with that of the attack
lesson. Files are strangers' files: links, huge notebooks and deep folders are refused, each with a sentence that names
it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernellab.content import content, find_workspace
from kernellab.errors import CourseError, KernellabError
from kernellab.teach.exercise import Course

#: the magic at the head of an answer cell: its exercise
_ANSWER = re.compile(r"\s*%%kernel_exercise\s+(?P<id>[a-z0-9-]+)(?![a-z0-9-])[^\n]*\n(?P<text>.*)", re.DOTALL)
#: the head of a cell of the attack lesson
_ATTACK = re.compile(r"\s*%%kernel_attack(?P<close>\s+--close)?[ \t]*\n(?P<text>.*)", re.DOTALL)
#: bytes of a notebook, at most: the course's own have 1 MB, and its text takes several times as many when it is read
_MOST_BYTES = 32_000_000
#: folders within each other in what is handed in, at most: their names make a path that the system reads
_MOST_FOLDERS = 10


def notebooks(folder: Path) -> list[Path]:
    """The notebooks below ``folder``, or itself, and of each student the first folder that is not read: :func:`answers`
    says why. Raises CourseError where there is none."""
    found = [folder] if folder.is_file() else sorted(_below(folder))
    if not found:
        raise CourseError(f"There is no notebook in {folder}.", "Name a folder of .ipynb files, or one of them.")
    return found


def _below(folder: Path) -> Iterator[Path]:
    unread: dict[str, Path] = {}
    for path, folders, files in os.walk(folder, onerror=lambda error: _unread(unread, folder, Path(error.filename))):
        here = Path(path)
        if len(here.relative_to(folder).parts) >= _MOST_FOLDERS:
            for name in folders:
                _unread(unread, folder, here / name)
            folders.clear()
        folders[:] = [name for name in folders if name != ".ipynb_checkpoints"]
        yield from (here / name for name in files if Path(name).suffix.lower() == ".ipynb")
    yield from unread.values()


def _unread(unread: dict[str, Path], folder: Path, path: Path) -> None:
    unread.setdefault(student_of(path / "_", folder), path)


def answers(notebook: Path, course: Course) -> dict[str, tuple[str, ...]]:
    """Exercise -> the text of its last answer cell that holds one; of attacks, each of which may find another hole, all
    cells.

    Raises:
        CourseError: it is no notebook, or a link to one.
    """
    texts: dict[str, tuple[str, ...]] = {}
    if os.path.isdir(notebook) and not os.path.islink(notebook):
        raise CourseError(
            f"{notebook} cannot be read, or lies below {_MOST_FOLDERS} others.", "Ask for the notebooks in one folder."
        )
    if os.path.islink(notebook) or (os.path.exists(notebook) and not os.path.isfile(notebook)):
        raise CourseError(f"{notebook} is no file, or a link to another's.", "Ask for the file itself.")
    for source in _code(notebook):
        if answer := _ANSWER.match(source):
            if answer["id"] not in texts or not is_blank(answer["text"]):
                texts[answer["id"]] = (answer["text"],)
        elif cell := _ATTACK.match(source):
            name = course.attack("close" if cell["close"] else "break").id
            texts[name] = (cell["text"],) if cell["close"] else (*texts.get(name, ()), cell["text"])
    return texts


def _code(notebook: Path) -> list[str]:
    """The texts of its code cells. Raises CourseError: the file is no notebook, or too large for one."""
    try:
        with notebook.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            size = f"{notebook.stat().st_size / 1e6:.0f} MB, and at most {_MOST_BYTES / 1e6:.0f} are read"
            raise CourseError(f"{notebook} has {size}.", "Clear its outputs, and hand it in again.")
        cells = json.loads(text.decode("utf-8-sig"))["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise CourseError(f"{notebook} is no notebook: {error}.", "Ask for the file again.") from None


def starters(lesson: str, exercise: str, graded: Path | None = None) -> Iterator[str]:
    """The answer cells that the lesson's notebook begins with: the workspace's, as its exercises go before, unless that
    is the one which is ``graded``, and this installation's."""
    folders = [find_workspace()]
    with suppress(KernellabError):
        folders.append(content("notebooks"))
    for path in (folder / "lessons" / f"{lesson}.ipynb" for folder in folders):
        if path.is_file() and not (graded is not None and path.samefile(graded)):
            cells = filter(None, map(_ANSWER.match, _code(path)))
            yield from (cell["text"] for cell in cells if cell["id"] == exercise)


def plain(text: str) -> str:
    """``text`` with what is not printed, or no Unicode, as Python writes it: fit for a terminal and a file."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def student_of(notebook: Path, folder: Path) -> str:
    """Whose notebook it is: the folder below ``folder`` that it lies in, else its own name."""
    parts = notebook.relative_to(folder).parts if notebook.is_relative_to(folder) else (notebook.name,)
    return parts[0] if len(parts) > 1 else notebook.stem


def is_blank(text: str) -> bool:
    """Does the cell hold nothing but comments?"""
    return not any(line.strip() and not line.strip().startswith("#") for line in text.splitlines())
