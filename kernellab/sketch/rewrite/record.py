"""What a rewrite is, what it may look at, and what it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from kernellab.sketch.check import check
from kernellab.sketch.program.program import Loop, Program
from kernellab.sketch.program.walk import statements
from kernellab.sketch.syntax.printer import format
from kernellab.sketch.syntax.tree import For, SketchFile
from kernellab.target import Chip, Target


@dataclass(frozen=True)
class Rewritten:
    """One variant of a sketch."""

    #: the name of the rewrite, e.g. "interchange"
    rewrite: str
    #: canonical sketch text
    text: str
    #: one sentence: what was changed and where
    why: str


#: DSL -> words that its lowering does not read: a variant that only says them would be the same code
UNREAD: Mapping[str, frozenset[str]] = {
    "cpp": frozenset(("pipeline", "swizzle", "persistent", "precision")),
    "cuda_c": frozenset(("persistent", "precision")),
}


@dataclass(frozen=True)
class Setting:
    """What a rewrite may look at: a sketch without errors, and where it is to run."""

    text: str
    tree: SketchFile
    chip: Chip
    dsl: str

    @property
    def gpu(self) -> bool:
        return self.chip.kind == "gpu"

    def reads(self, word: str) -> bool:
        """Does the hint or the keyword ``word`` change the code in this DSL?"""
        return word not in UNREAD.get(self.dsl, frozenset())

    @cached_property
    def program(self) -> Program | None:
        """The resolved sketch; None where it has errors."""
        return check(self.text).program

    def resolved(self, launch: int, loop: For) -> Loop | None:
        """What ``loop`` of the launch of that number was resolved to."""
        if self.program is None:
            return None
        inside = statements(self.program.kernels[launch].body)
        return next((s for s in inside if isinstance(s, Loop) and s.span == loop.span and s.var == loop.var), None)


#: one way to apply a rewrite: the changed file, and the sentence
Change = tuple[SketchFile, str]


@dataclass(frozen=True)
class Rewrite:
    """``apply`` gives every way in which the rewrite can be applied, lazily and in a fixed order."""

    name: str
    #: one line for documents and the board
    doc: str
    apply: Callable[[Setting], Iterator[Rewritten]]
    #: it changes numbers of a schedule alone, not what is done in which order
    numbers: bool = False
    #: the word that a DSL has to read, or "gpu"; "" where it may apply anywhere
    needs: str = ""

    def suits(self, target: Target) -> bool:
        """May any sketch have a variant by it there?"""
        if self.needs == "gpu":
            return target.chip.kind == "gpu"
        return self.needs not in UNREAD.get(target.dsl, frozenset())


def rewrite(
    name: str, doc: str, changes: Callable[[Setting], Iterator[Change]], *, numbers: bool = False, needs: str = ""
) -> Rewrite:
    """The rewrite of that name whose ``changes`` are trees."""

    def apply(setting: Setting) -> Iterator[Rewritten]:
        for file, why in changes(setting):
            yield Rewritten(name, format(file), why)

    return Rewrite(name, doc, apply, numbers, needs)
