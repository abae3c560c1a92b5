"""Records of rewrites: the rewrite, its input, and its result."""

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


#: DSL -> words that its lowering ignores: a variant that differs only in them would be the same code
UNREAD: Mapping[str, frozenset[str]] = {
    "cpp": frozenset(("pipeline", "swizzle", "persistent", "precision")),
    "cuda_c": frozenset(("persistent", "precision")),
}


@dataclass(frozen=True)
class Setting:
    """The input of a rewrite: a sketch without errors, and its target."""

    text: str
    tree: SketchFile
    chip: Chip
    dsl: str

    @property
    def gpu(self) -> bool:
        return self.chip.kind == "gpu"

    def reads(self, word: str) -> bool:
        """Does the hint or keyword ``word`` change the code in this DSL?"""
        return word not in UNREAD.get(self.dsl, frozenset())

    @cached_property
    def program(self) -> Program | None:
        """The resolved sketch; None if it has errors."""
        return check(self.text).program

    def resolved(self, launch: int, loop: For) -> Loop | None:
        """Return the resolved loop of ``loop`` in the launch of that number."""
        if self.program is None:
            return None
        inside = statements(self.program.kernels[launch].body)
        return next((s for s in inside if isinstance(s, Loop) and s.span == loop.span and s.var == loop.var), None)


#: one application of a rewrite: the changed file, and the sentence
Change = tuple[SketchFile, str]


@dataclass(frozen=True)
class Rewrite:
    """A rewrite. ``apply`` yields all of its applications, lazily and in a fixed order."""

    name: str
    #: one line for documents and the board
    doc: str
    apply: Callable[[Setting], Iterator[Rewritten]]
    #: it changes only numbers of a schedule, not operations or their order
    numbers: bool = False
    #: the word that the DSL must read, or "gpu"; "" if it may apply anywhere
    needs: str = ""

    def suits(self, target: Target) -> bool:
        """May a sketch have a variant by this rewrite on ``target``?"""
        if self.needs == "gpu":
            return target.chip.kind == "gpu"
        return self.needs not in UNREAD.get(target.dsl, frozenset())


def rewrite(
    name: str, doc: str, changes: Callable[[Setting], Iterator[Change]], *, numbers: bool = False, needs: str = ""
) -> Rewrite:
    """Return the rewrite of that name whose ``changes`` are trees."""

    def apply(setting: Setting) -> Iterator[Rewritten]:
        for file, why in changes(setting):
            yield Rewritten(name, format(file), why)

    return Rewrite(name, doc, apply, numbers, needs)
