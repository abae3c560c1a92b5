"""What a DSL must say of itself: whether it is ready here, how its code is built, how its errors read.

To add a DSL, write documents with a ``spec.toml`` (:mod:`kernellab.dsls.spec`); where that is not enough, one file
``knowledge/dsl/<name>/adapter.py`` with one subclass of :class:`Adapter`, which is found by its place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernellab.records import CompilerLine, Source
from kernellab.target import Backend

#: what ``from a.b import c`` and ``import a, b.c as d`` import: by text, since a file that does not parse is one too
_IMPORTED = re.compile(r"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([^\n#;]+))", re.MULTILINE)
_ROOT = re.compile(r"(?:^|,)\s*(\w+)")


@dataclass(frozen=True)
class Readiness:
    """``reason`` and ``remedy`` are one sentence each when not ready; ``backend`` is what it would run on."""

    ready: bool
    reason: str = ""
    remedy: str = ""
    backend: Backend | None = None


@dataclass(frozen=True)
class Finding:
    """One finding of the static stage; ``fatal`` means that it cannot be honest, else it is a flag."""

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
    #: a source that imports one of these is taken for this DSL where no one says what it is
    marks: tuple[str, ...] = ()
    #: packages that compile kernels in memory and launch them: code that they made is the candidate's own
    runtime: tuple[str, ...] = ()
    #: run in the source's folder before its entry is imported; empty where the import builds
    build: tuple[str, ...] = ()
    #: endings of the files that a source may have
    suffixes: tuple[str, ...] = (".py", ".cpp", ".cc", ".cxx", ".c", ".cu", ".h", ".hpp", ".cuh")
    #: where a source of this DSL is called unless it says otherwise
    entry_file: str = "kernel.py"
    entry: str = "kernel"
    #: does it write code into memory at run time, as a compiler of Python does? Where not, what runs must stand in a
    #: file of the build
    makes_code: bool = True
    #: does a call at a new size compile, into the cache that :meth:`environment` names?
    compiles_in_calls: bool = False
    #: folders below a user's home folder in which its builds lie, where no variable names another
    built_in: tuple[str, ...] = ()

    def readiness(self) -> Readiness:
        """Can code in this DSL be built and run here? Never raises, never imports torch or a compiler's package."""
        raise NotImplementedError

    def recognises(self, source: Source) -> bool:
        """Is ``source`` written in this DSL? Asked where no one says; by default a file imports one of ``marks``."""
        lines = [match for text in source.files.values() for match in _IMPORTED.findall(text)]
        roots = {root for one, several in lines for root in _ROOT.findall(one or several)}
        return bool(roots & set(self.marks))

    def environment(self, backend: Backend, scratch: Path) -> Mapping[str, str]:
        """Variables that must stand before the DSL is imported (caches under ``scratch``, interpreter switches)."""
        return {}

    def static(self, source: Source) -> list[Finding]:
        """Does the source define and launch a kernel of this DSL?"""
        raise NotImplementedError

    def diagnostics(self, log: str, files: tuple[str, ...]) -> list[CompilerLine]:
        """The compiler's lines in a build log, first error first."""
        return []

    def explain(self, log: str, source: Source) -> list[CompilerLine]:
        """:meth:`diagnostics` at lines of ``source``, for an adapter whose code may stand in strings of Python."""
        return self.diagnostics(log, tuple(source.files))
