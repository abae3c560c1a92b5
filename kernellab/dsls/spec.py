"""A DSL by documents: reads and checks ``knowledge/dsl/<name>/spec.toml``.

The file defines how a source is built and called, what must be installed, what an honest source contains, and how the
compiler's errors are read. :mod:`kernellab.dsls.documented` makes the adapter from it, so a new DSL needs no Python."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from kernellab.content import content, find_workspace
from kernellab.errors import KernellabError, TargetError, refused
from kernellab.target import Backend

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SPEC = "spec.toml"
#: the placeholder that an import leaves for a person
PLACEHOLDER = re.compile(r"\bFILL[ _]IN\b")


class SpecError(TargetError):
    """A spec.toml that cannot be read; the message names the file and the field."""


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.MULTILINE)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from None
    return text


Pattern = Annotated[str, AfterValidator(_pattern)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Needed(_Part):
    """A requirement: exactly one of a Python package, a command on PATH, or a path (a glob)."""

    package: str = ""
    command: str = ""
    path: str = ""
    remedy: str

    @model_validator(mode="after")
    def _one(self) -> Needed:
        if sum(map(bool, (self.package, self.command, self.path))) != 1:
            raise ValueError("name one of package, command and path")
        return self


class Ready(_Part):
    """``refuse`` is the reason, in one sentence, why kernellab cannot run this DSL at all."""

    needs: tuple[Needed, ...] = ()
    refuse: str = ""
    remedy: str = ""


class Build(_Part):
    """``command`` runs in the source's folder before the entry is imported; empty if the import builds."""

    command: tuple[str, ...] = ()


class WorkerPart(_Part):
    """``preload``: modules imported once, before workers are forked; ``environment``: ``{scratch}`` is filled in.
    ``runtime``: packages that compile a source's kernels in memory and launch them: that code counts as the
    candidate's, the packages' compiled functions as a library's."""

    preload: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    environment: Mapping[str, str] = Field(default_factory=dict)


class StaticPart(_Part):
    """What an honest source contains. A kernel is a Python function with one of ``decorators``, or text that
    ``pattern`` matches in a file with one of ``files``'s endings or in a string of Python; its group ``name`` is the
    kernel's. ``called``: code that is no kernel itself must call it. ``library``: names of the runtime's own operators
    (``svd``, ``linalg``), which no source may reach."""

    decorators: tuple[str, ...] = ()
    pattern: Pattern = ""
    files: tuple[str, ...] = ()
    called: bool = True
    library: tuple[str, ...] = ()


class DiagnosticPart(_Part):
    """A compiler's line: ``pattern`` with the group ``message``, and optional groups ``file`` and ``line``."""

    pattern: Pattern

    @model_validator(mode="after")
    def _message(self) -> DiagnosticPart:
        if "message" not in re.compile(self.pattern).groupindex:
            raise ValueError(f"{self.pattern!r} has no group (?P<message>...)")
        return self


class DocumentsPart(_Part):
    """``toolchain``: the name in code -> the module whose names the documents may use; ``inside`` are names that only
    the DSL's compiler knows (``wp.tid``) and that the module does not have. ``versions``: the distributions whose
    versions are recorded when the code blocks pass. ``not_run`` is the reason why no block is executed."""

    toolchain: Mapping[str, str] = Field(default_factory=dict)
    inside: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    not_run: str = ""


class DslSpec(_Part):
    """One DSL. ``adapter`` is ``python`` if a class of ``kernellab/dsls`` or the folder's ``adapter.py`` builds and
    checks it; ``call`` is module:function."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    title: str
    summary: str
    adapter: Literal["documents", "python"] = "documents"
    backends: tuple[Backend, ...]
    frameworks: tuple[str, ...] = ("torch",)
    suffixes: tuple[str, ...] = (".py",)
    call: str = Field(default="kernel:kernel", pattern=r"^[A-Za-z_]\w*:[A-Za-z_]\w*$")
    ready: Ready = Ready()
    build: Build = Build()
    worker: WorkerPart = WorkerPart()
    static: StaticPart = StaticPart()
    diagnostics: tuple[DiagnosticPart, ...] = ()
    documents: DocumentsPart = DocumentsPart()

    @model_validator(mode="after")
    def _runs_somewhere(self) -> DslSpec:
        if not self.backends and not self.ready.refuse:
            raise ValueError("backends is empty, and ready.refuse does not say why")
        if self.worker.runtime and not self.static.library:
            raise ValueError("worker.runtime needs static.library: the names of its operators, which are refused")
        return self

    @property
    def entry_file(self) -> str:
        return f"{self.call.partition(':')[0]}.py"

    @property
    def entry(self) -> str:
        return self.call.partition(":")[2]


def read_spec(path: Path) -> DslSpec:
    """Return the DSL that ``path`` describes.

    Raises:
        SpecError: no such file, invalid TOML, an unknown or missing field, or a name that differs from the folder's.
    """
    try:
        fields: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        spec = DslSpec.model_validate(fields)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}.", "A DSL's folder holds a spec.toml.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is not TOML: {error}.", "Fix that line.") from None
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "the file"
        raise SpecError(
            f"{path}: {refused(first, field)}.", "`kernellab docs new NAME` writes an annotated one."
        ) from None
    if spec.name != path.parent.name:
        raise SpecError(f"{path} names {spec.name!r}, and its folder is {path.parent.name!r}.", "Name both alike.")
    return spec


def knowledge_roots(workspace: Path | None = None) -> tuple[Path, ...]:
    """Return the folders of documents: that of the workspace first, then those of this installation."""
    roots = [(workspace or find_workspace()) / "knowledge"]
    with suppress(KernellabError):  # an installation without documents still has its adapters
        roots.append(content("knowledge"))
    unique = dict.fromkeys(root.resolve() for root in roots if root.is_dir())
    return tuple(unique)


#: notes on a document of the workspace
OWN, REPLACES = "workspace document", "workspace document, replaces the package's"


def whose(path: Path, workspace: Path | None = None) -> str:
    """Return "" for a document of this installation; for one of the workspace a note, also on whether it replaces
    another."""
    roots = knowledge_roots(workspace)
    own = ((workspace or find_workspace()) / "knowledge").resolve()
    document = path.resolve()
    if len(roots) < 2 or roots[0] != own or not document.is_relative_to(own):
        return ""
    return REPLACES if (roots[-1] / document.relative_to(own)).exists() else OWN


def spec_files(workspace: Path | None = None, file: str = SPEC) -> dict[str, Path]:
    """Return the ``file`` of each DSL; a document of the workspace has precedence."""
    files: dict[str, Path] = {}
    for root in knowledge_roots(workspace):
        for path in sorted(root.glob(f"dsl/*/{file}")):
            files.setdefault(path.parent.name, path)
    return files
