"""Who writes what: roles and authors, kernel code in a DSL, and a candidate with its sketch."""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from kernellab.content import inside
from kernellab.records.base import Record


class Role(str, Enum):
    DESIGNER = "designer"
    CODER = "coder"
    VERIFIER = "verifier"
    CONDUCTOR = "conductor"
    #: explains a round or a result in words; it changes nothing
    ANALYST = "analyst"


class Author(str, Enum):
    """The author of a turn; a person's edit is a turn, too."""

    RULES = "rules"
    MODEL = "model"
    HUMAN = "human"


#: texts by path below one folder
Files = Annotated[dict[str, str], AfterValidator(inside)]


class Source(Record):
    """Kernel code in a DSL: files by relative path, and the Python file that defines ``entry(*args)``."""

    dsl: str
    files: Files
    entry_file: str = "kernel.py"
    entry: str = "kernel"
    #: the origin of the code, which decides whether it may run without asking
    origin: Author = Author.RULES
    #: generated line -> sketch line, by file; empty for code without a sketch
    line_map: dict[str, dict[int, int]] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the DSL, the entry, and the files' names and texts."""
        digest = hashlib.sha256(f"{self.dsl}:{self.entry_file}:{self.entry}".encode())
        for name in sorted(self.files):
            digest.update(f"\0{name}\0{self.files[name]}".encode())
        return digest.hexdigest()[:16]


class Candidate(Record):
    """A Source with its Sketch (if any) and its origin."""

    id: str
    source: Source
    sketch: str | None = None
    #: values of tunables in the lowered source, by name
    constexpr: dict[str, int | float] = Field(default_factory=dict)
    parent: str | None = None
    author: Author = Author.RULES
