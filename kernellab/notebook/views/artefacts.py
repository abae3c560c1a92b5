"""What a compiler makes of a source, on demand: the lens's levels, one a tab; and our library headers."""

from __future__ import annotations

from kernellab.dsls.cpp import compiler
from kernellab.errors import SessionError
from kernellab.lens.cpp.build import flags_of, is_clang, main_cpp
from kernellab.lens.look import look
from kernellab.lens.records import Lens
from kernellab.notebook.answers import Artefact
from kernellab.notebook.protocol import NamedFigure
from kernellab.notebook.views.facts import Facts
from kernellab.notebook.views.headers import is_library
from kernellab.records import Source

__all__ = ["artefact", "flags_of", "lens_of", "names_of"]

#: of Triton and CUDA C++; what a machine has no tool for is said when it is asked for
_LEVELS = {"triton": ("ttir", "ttgir", "llir", "ptx", "sass"), "cuda_c": ("ptx", "sass")}


def names_of(source: Source) -> list[str]:
    """What :func:`artefact` can give for ``source``."""
    headers = [name for name, text in source.files.items() if is_library(name, text)]
    if source.dsl in _LEVELS:
        return [*_LEVELS[source.dsl], *headers]
    return [*levels_of(), *headers] if main_cpp(source) else headers


def artefact(source: Source, name: str, facts: Facts | None = None) -> Artefact:
    """An ``Artefact`` of the protocol; ``facts`` hold the task and chip that a GPU's kernel is compiled for.

    Blocking: a compiler's seconds.

    Raises:
        SessionError: there is no such text for this source, or the compiler refuses.
    """
    if name in source.files:
        return {"name": name, "text": source.files[name], "language": "text", "file": "", "lines": {}, "facts": []}
    if name not in names_of(source):
        there = ", ".join(names_of(source)) or "none"
        raise SessionError(f"This source has no {name!r} to show.", f"Choose one of {there}.")
    lens = lens_of(source, facts or Facts())
    level = lens.level(name)
    if level is None:
        raise SessionError(
            f"This source has no {name!r} to show. {' '.join(lens.notes)}", f"Choose one of {', '.join(lens.names)}."
        )
    return {
        "name": name, "text": level.text, "language": "asm", "file": lens.file,
        "lines": {here: there[0] for here, there in level.up.items()}, "facts": _figures(lens),
    }  # fmt: skip


def lens_of(source: Source, facts: Facts, unsandboxed: bool = False) -> Lens:
    """The source under the lens, for the session's own task and chip."""
    return look(source, facts.task, facts.chip, unsandboxed)


def _figures(lens: Lens) -> list[NamedFigure]:
    return [
        {
            "name": f"{fact.kernel}: {fact.name}" if fact.kernel else fact.name, "text": fact.value,
            "title": fact.sentence,
        }
        for fact in lens.facts
    ]  # fmt: skip


# -- levels ------------------------------------------------------------------------------------------------------------


def levels_of() -> tuple[str, ...]:
    """The text before the assembly, which depends on the compiler, and the assembly; none without a compiler."""
    path = compiler()
    return () if path is None else ("llir" if is_clang(path) else "gimple", "asm")
