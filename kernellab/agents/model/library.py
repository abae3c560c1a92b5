"""What the prompts quote from documents, with each text's source; the language's own tables where no document is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.agents.model.facts import chip_lines
from kernellab.agents.model.templates import render
from kernellab.errors import KernellabError
from kernellab.sketch.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.messages import MESSAGES
from kernellab.sketch.ops import OPS, OpKind
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import DslDocuments, Knowledge, Passage

#: the source of what the code says of the language itself
OWN = "kernellab.sketch"

DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool")

_KINDS = {
    "elementwise": (OpKind.POINTWISE,),
    "comparison and logic": (OpKind.COMPARE,),
    "reductions, `axis=`": (OpKind.REDUCE,),
    "scans, `axis=`": (OpKind.SCAN,),
    "matrix": (OpKind.MATRIX,),
    "shape": (OpKind.SHAPE,),
}
#: faults that a first sketch of somebody new to the language has
_COMMON = (
    "new-name", "alloc-visible", "extent-varies", "gemm-assign", "tensor-as-value", "tile-index",
    "not-index-condition", "tile-index-as-offset", "not-covered", "race", "carried", "parallel-tail", "second-nest",
    "footprint", "pad-identity", "pad-mean", "undefined-read",
)  # fmt: skip


@dataclass(frozen=True)
class Quote:
    """A text with a title and the place that it is from."""

    title: str
    source: str
    text: str


class Library:
    """The documents of ``knowledge`` as quotes. What they lack is left out; without any, the language's own tables and
    the chip's own facts remain."""

    def __init__(self, knowledge: Knowledge | None) -> None:
        self._knowledge = knowledge

    def language(self, budget: int) -> Quote:
        """The sketch language's reference, the same for every task of a role."""
        if self._knowledge is not None:
            found = self._knowledge.language(budget=budget)
            if found.text.strip():
                return _quote(found)
        return own_language()

    def chip(self, target: Target) -> Quote:
        if self._knowledge is not None:
            return _quote(self._knowledge.chip(target))
        return Quote(target.chip.name, target.chip.source or "this machine", "\n".join(chip_lines(target.chip)))

    def dsl(self, name: str) -> DslDocuments | None:
        """A DSL's documents; None when there are none."""
        if self._knowledge is None or name not in self._knowledge.dsls():
            return None
        return self._knowledge.dsl(name)

    def api(self, dsl: str, names: Sequence[str], error: str, budget: int) -> Quote | None:
        """The part of the API's documents that ``names`` and an error need."""
        if self._knowledge is None or self.dsl(dsl) is None:
            return None
        found = self._knowledge.api_for(dsl, names, error, budget)
        return _quote(found) if found.text.strip() else None

    def examples(self, dsl: str, task: Task, k: int = 2) -> list[Quote]:
        if self._knowledge is None or self.dsl(dsl) is None:
            return []
        return [_quote(p) for p in self._knowledge.examples(dsl, self.family(task), k, task.text)]

    def patterns(self, task: Task) -> list[Quote]:
        """What is known to win for operators of the task's family."""
        family = self.family(task)
        if self._knowledge is None or not family:
            return []
        try:
            return [_quote(self._knowledge.patterns(family))]
        except KernellabError:
            # a family that has examples and no document of its own
            return []

    def family(self, task: Task) -> str:
        """The family of operators that the task's text speaks of; empty when it is not known."""
        return self._knowledge.family(f"{task.name} {task.text}") if self._knowledge is not None else ""


def own_language() -> Quote:
    """The sketch language in short, generated from the tables that the checker and the lowerings use."""
    operations = [(kind, [o.name for o in OPS.values() if o.kind in kinds]) for kind, kinds in _KINDS.items()]
    text = render(
        "language", "language",
        operations=operations, dtypes=DTYPES, loop_hints=LOOP_HINTS, axes=AXES, memory_hints=MEMORY_HINTS,
    )  # fmt: skip
    return Quote("The Unified Sketch language", OWN, text)


def mistakes() -> Quote:
    """The checker's messages that newcomers meet, with what mends them."""
    rows = [(MESSAGES[rule].code, MESSAGES[rule].sentence, MESSAGES[rule].remedy) for rule in _COMMON]
    return Quote("Mistakes", "kernellab.sketch.messages", render("language", "mistakes", mistakes=rows))


def _quote(passage: Passage) -> Quote:
    return Quote(passage.title, passage.source, untitled(passage.text))


def untitled(text: str) -> str:
    """``text`` without its first heading: the prompt has the title already."""
    first, _, rest = text.lstrip().partition("\n")
    return rest.strip("\n") if first.startswith("# ") else text
