"""A person's kernel as a Source: reads a file or a folder, recognises its DSL, and sets its constants."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kernellab.dsls import ADAPTERS, get_adapter
from kernellab.dsls.detect import dsl_of
from kernellab.errors import MOST_BYTES, KernellabError
from kernellab.records import Author, Source

#: the top-level definitions of a kernel file
_ENTRY = re.compile(
    r"^(?:(?:async )?def kernel\b|class ModelNew\b|kernel\s*[:=]|from .* import .*\b(?:kernel|ModelNew)\b)", re.M
)
_NUMBER = r"[-+]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"


def read_source(path: Path, dsl: str | None = None, default: str = "cpp") -> Source:
    """Return a Source from a Python file or a folder with one; without ``dsl`` it is recognised from the text, and is
    ``default`` for a text without one (plain PyTorch).

    Raises:
        KernellabError: no such file, not Python, or a folder in which several files may define the kernel.
        TargetError: no DSL has that name.
    """
    texts: str | dict[str, str] | None = None
    if path.is_dir():
        endings = source_endings(dsl)
        texts = {
            file.relative_to(path).as_posix(): _text(file)
            for file in sorted(path.rglob("*"))
            if file.is_file() and file.suffix in endings and not _hidden(file.relative_to(path))
        }
    elif path.exists():
        texts = _text(path) if path.suffix == ".py" else ""
    return source_of_texts(path, texts, dsl, default)


def source_endings(dsl: str | None) -> Collection[str]:
    """Return suffixes of the files of a source in ``dsl`` (None: any). Raises TargetError: no DSL has that name."""
    return {ending for name in ([dsl] if dsl else ADAPTERS) for ending in get_adapter(name).suffixes}


def source_of_texts(
    path: Path, texts: str | Mapping[str, str] | None, dsl: str | None = None, default: str = "cpp"
) -> Source:
    """Return the Source of the texts read at ``path``: a file's text, or a folder's files by name; None if there is
    nothing. As :func:`read_source`."""
    adapter = get_adapter(dsl) if dsl is not None else None
    if texts is None:
        raise KernellabError(f"The source {path} does not exist.", "Give a Python file, or a folder with one.")
    if not isinstance(texts, str):
        files = dict(texts)
        entry = _entry(path, files, adapter.entry_file if adapter else "kernel.py")
    else:
        if path.suffix != ".py":
            raise KernellabError(
                f"The source {path} is not a Python file.",
                "Give a Python file that defines kernel(*inputs), or a folder with one and what it compiles.",
            )
        files, entry = {path.name: texts}, path.name
    return Source(
        dsl=dsl or dsl_of(files) or default, files=files, entry_file=entry,
        entry=adapter.entry if adapter else "kernel", origin=Author.HUMAN,
    )  # fmt: skip


def defines_kernel(text: str) -> bool:
    """Does a Python text define ``kernel`` or ``ModelNew`` at the top level?"""
    return _ENTRY.search(text) is not None


def with_constants(source: Source, values: Mapping[str, int | float]) -> Source:
    """Return ``source`` with constants set: ``NAME = 16`` of Python, ``constexpr int NAME = 16;``, ``#define NAME 16``
    of C++.

    Raises:
        KernellabError: the source sets no such constant, or sets it in several places.
    """
    files = dict(source.files)
    for name, value in values.items():
        places = [(file, match) for file, text in files.items() for match in _constant(name).finditer(text)]
        outermost = [(file, match) for file, match in places if not match["indent"]]
        definitions = outermost if len(outermost) == 1 else places
        if len(definitions) != 1:
            settable = sorted({m["name"] for text in files.values() for m in _constant(r"[A-Z]\w*").finditer(text)})
            there = f"It sets {', '.join(settable)}." if settable else "It sets none in capital letters."
            how = f"sets {name} in {len(definitions)} places" if definitions else f"sets no constant {name}"
            raise KernellabError(f"--set {name}: the source {how}.", there)
        file, match = definitions[0]
        files[file] = files[file][: match.start("value")] + repr(value) + files[file][match.end("value") :]
    return source.model_copy(update={"files": files})


def _constant(name: str) -> re.Pattern[str]:
    qualified = r"(?:static\s+|inline\s+|__device__\s+)*(?:constexpr|const)\s+[\w:]+(?:\s+[\w:]+)*\s+"
    return re.compile(
        rf"^(?P<indent>[ \t]*)(?:{qualified}|#\s*define\s+)?(?P<name>{name})\b(?:\s*:[^=\n]+)?"
        r"[ \t]*(?:=[ \t]*|(?<=\w)[ \t]+|\{)"
        rf"(?P<value>{_NUMBER})(?=[ \t]*(?:;|\}}|#|//|$))",
        re.MULTILINE,
    )


def _entry(path: Path, files: Mapping[str, str], usual: str) -> str:
    if usual in files:
        return usual
    python = [name for name in files if name.endswith(".py")]
    if not python:
        raise KernellabError(f"{path} has no Python file.", "Put a kernel.py in it that defines kernel(*inputs).")
    defining = [name for name in python if _ENTRY.search(files[name])]
    candidates: Sequence[str] = defining or python
    if len(candidates) == 1:
        return candidates[0]
    words = (
        f"{len(candidates)} files that define a kernel"
        if defining
        else f"{len(candidates)} Python files, none with a kernel"
    )
    raise KernellabError(f"{path} has {words}: {', '.join(candidates[:6])}.", f"Name one file, or call it {usual}.")


def _hidden(relative: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in relative.parts)


def _text(path: Path) -> str:
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise KernellabError(
                f"The source {path} has {size / 1e6:.0f} MB.", "Give a kernel's text; weights and data stay out of it."
            )
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise KernellabError(f"The source {path} cannot be read: {reason}.", "Check the path.") from None
