"""The interface of a DSL: whether it is ready here, how its code is built, how its errors are read.

To add a DSL, write documents with a ``spec.toml`` (:mod:`kernellab.dsls.spec`); if that is not enough, add one file
``knowledge/dsl/<name>/adapter.py`` with one subclass of :class:`Adapter`, which is found by its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kernellab.records import CompilerLine, Source
from kernellab.target import Backend

#: the imports of ``from a.b import c`` and ``import a, b.c as d``, by text, since a file may not parse
_IMPORTED = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^\n#;]+))", re.MULTILINE)
_ROOT = re.compile(r"(?:^|,)\s*(\w+)")


def is_importable(package: str) -> bool:
    """Is the module ``package`` (``a.b`` too) installed? It is not imported, its parents are."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False


@dataclass(frozen=True)
class Readiness:
    """``reason`` and ``remedy`` are one sentence each if it is not ready; ``backend`` is where it runs."""

    ready: bool
    reason: str = ""
    remedy: str = ""
    backend: Backend | None = None


@dataclass(frozen=True)
class Finding:
    """One finding of the static stage; ``fatal`` means that the source cannot be honest, else it is a flag."""

    rule: str
    message: str
    file: str
    line: int | None = None
    fatal: bool = False


class Adapter:
    """A DSL. ``backends`` in order of preference."""

    name: str = ""
    backends: tuple[Backend, ...] = ()
    #: modules that the fork server imports before any candidate, in order
    preload: tuple[str, ...] = ()
    #: a source that imports one of these is recognised as this DSL if none is named
    marks: tuple[str, ...] = ()
    #: packages that compile kernels in memory and launch them: their code counts as the candidate's
    runtime: tuple[str, ...] = ()
    #: a command that runs in the source's folder before its entry is imported; empty if the import builds
    build: tuple[str, ...] = ()
    #: suffixes of the files of a source
    suffixes: tuple[str, ...] = (".py", ".cpp", ".cc", ".cxx", ".c", ".cu", ".h", ".hpp", ".cuh")
    #: the default entry function of a source
    entry_file: str = "kernel.py"
    entry: str = "kernel"
    #: does it write code into memory at run time, as a compiler of Python does? If not, all code that runs must be in a
    #: file of the build
    makes_code: bool = True
    #: does a call at a new size compile into the cache of :meth:`environment`?
    compiles_in_calls: bool = False
    #: folders of its builds below a user's home folder, if no variable names another
    built_in: tuple[str, ...] = ()

    def readiness(self) -> Readiness:
        """Can code in this DSL be built and run here? Does not raise, and imports neither torch nor a compiler's
        package."""
        raise NotImplementedError

    def recognises(self, source: Source) -> bool:
        """Is ``source`` written in this DSL? Called if none is named; by default a file must import one of
        ``marks``."""
        lines = [match for text in source.files.values() for match in _IMPORTED.findall(text)]
        roots = {root for one, several in lines for root in _ROOT.findall(one or several)}
        return bool(roots & set(self.marks))

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Return variables that must be set before the DSL is imported (caches under ``scratch``, interpreter
        switches)."""
        return {}

    def static(self, source: Source) -> list[Finding]:
        """Return findings on whether the source defines and launches a kernel of this DSL."""
        raise NotImplementedError

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """Return the compiler's lines in a build log, first error first."""
        return []

    def explain(self, log: str, source: Source) -> list[CompilerLine]:
        """Return :meth:`diagnostics` at lines of ``source``, for an adapter whose code may be in Python strings."""
        return self.diagnostics(log, tuple(source.files))
