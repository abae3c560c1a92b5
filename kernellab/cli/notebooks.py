"""``kernellab lab``: JupyterLab on copies of the tutorials or of the course's lessons."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from kernellab.content import content
from kernellab.errors import KernellabError
from kernellab.options.commands.machine import NotebookOptions


def lab(
    context: typer.Context,
    options: NotebookOptions,
    notebook: Annotated[str | None, typer.Argument(help="A tutorial's name, or a path; default: the folder.")] = None,
) -> int:
    """Open JupyterLab on the tutorials, or on the course's lessons, copied so that you may change them.

    Options that are not listed here are JupyterLab's: kernellab lab --no-browser --port=9000 --allow-root. Write their
    values with "=".
    """
    # the parser takes the first word for the notebook, also one that begins with a dash
    jupyter_options = list(context.args)
    if notebook is not None and notebook.startswith("-"):
        jupyter_options.insert(0, notebook)
        notebook = next((word for word in jupyter_options if not word.startswith("-")), None)
        jupyter_options = [word for word in jupyter_options if word != notebook]
    if importlib.util.find_spec("jupyterlab") is None:
        raise KernellabError("JupyterLab is not installed.", f"{sys.executable} -m pip install jupyterlab")
    place = _place(notebook, options)
    jupyter = [sys.executable, "-m", "jupyterlab", str(place), *jupyter_options]
    return subprocess.run(jupyter, check=False).returncode and 1


def _place(notebook: str | None, options: NotebookOptions) -> Path:
    """What JupyterLab opens: a path that is there, else a copy of a lesson or of a tutorial."""
    if notebook is not None and Path(notebook).exists():
        return Path(notebook)
    if options.course or options.solutions:
        return copy_course(options.out, options.solutions, notebook)
    names = sorted(path.name for path in content("notebooks").glob("*.ipynb"))
    matching = [name for name in names if notebook is None or name.removesuffix(".ipynb").endswith(notebook)]
    matching = matching or [name for name in names if notebook and notebook in name]
    if not matching:
        raise KernellabError(f"There is no tutorial {notebook!r}.", f"Choose one of {', '.join(names) or 'none'}.")
    copy_tutorials(options.out)
    return options.out / matching[0]


def copy_tutorials(out: Path) -> None:
    """Copies the tutorials with their pictures and recordings to ``out``. What is there already is kept."""
    source = content("notebooks")
    for path in (*source.glob("*.ipynb"), *source.glob("images/*"), *source.glob("replays/*")):
        place = out / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            _copy(path, place)


def _copy(path: Path, place: Path) -> None:
    """Copies a file of the installation; a notebook is signed, so that JupyterLab shows its saved pictures."""
    import sqlite3

    shutil.copyfile(path, place)
    if path.suffix == ".ipynb" and importlib.util.find_spec("nbformat") is not None:
        nbformat: Any = importlib.import_module("nbformat")
        sign: Any = importlib.import_module("nbformat.sign")
        with suppress(OSError, sqlite3.Error):  # without a place for signatures the pictures appear when cells run
            sign.NotebookNotary().sign(nbformat.read(path, as_version=4))


def copy_course(out: Path, solutions: bool, lesson: str | None = None) -> Path:
    """Copies the lessons to ``out`` and gives what to open: the lesson, else the first. What is there already is kept.

    Answers and the teacher's guide are copied only for ``solutions``.

    Raises:
        KernellabError: there is no such lesson.
    """
    source = content("notebooks")
    if solutions and not (source / "solutions").is_dir():
        raise KernellabError(
            "An installed kernellab has no reference answers: its users could read them.",
            "Copy notebooks/solutions/ of the repository into your workspace; they are then found there.",
        )
    folders = ["lessons", "solutions", "exercises"] if solutions else ["lessons"]
    for folder in folders:
        (out / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((source / folder).iterdir()):
            if path.is_file() and not (out / folder / path.name).exists() and (solutions or path.suffix != ".md"):
                _copy(path, out / folder / path.name)
    (out / "kernellab.toml").touch()
    names = sorted(path.name for path in (out / "lessons").glob("*.ipynb"))
    matching = [name for name in names if lesson is None or lesson in name]
    if not matching:
        raise KernellabError(f"There is no lesson {lesson!r}.", f"Choose one of {', '.join(names) or 'none'}.")
    return out / "lessons" / matching[0]
