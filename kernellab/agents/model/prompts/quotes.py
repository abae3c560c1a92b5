"""What the prompts quote from documents, with each text's source; the language's own tables where no document is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernellab.agents.model.prompts.facts import chip_lines
from kernellab.agents.model.prompts.templates import render
from kernellab.capture.family import family_of
from kernellab.errors import KernellabError
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.library import LIBRARY, PREFIX
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax.docs import HIDDEN, STRUCTURAL, signature
from kernellab.sketch.syntax.messages import MESSAGES
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import DslDocuments, Knowledge, Passage

#: the wrong sketches that a Designer is shown: what first sketches most often get wrong
_WRONG = ("tile-index-as-offset", "race")

#: the sections of the language's exact rules that say what its tables in short do not
_BEYOND = ("Several sketches", "Values from outside", "Footprint")

#: the source of what the code says of the language itself
OWN = "kernellab.sketch"

DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool")

_KINDS = {
    "elementwise": (OpKind.POINTWISE,),
    "comparison and logic": (OpKind.COMPARE,),
    "reductions, `axis=`": (OpKind.REDUCE,),
    "scans, `axis=`": (OpKind.SCAN,),
    "sorting": (OpKind.SORT,),
    "by index": (OpKind.PICK,),
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

    def language(self) -> Quote:
        """The sketch language's reference, the same for every task of a role: its tables, two sketches that are right
        and, where there are documents, two that are wrong."""
        own = own_language()
        if self._knowledge is None:
            return own
        rules, wrong = self._knowledge.meaning(_BEYOND), self._knowledge.wrong_sketches(_WRONG)
        parts = [own.text, *(plain_fences(untitled(p.text)) for p in (rules, wrong) if p is not None)]
        sources = [own.source, *(p.source for p in (rules, wrong) if p is not None)]
        return Quote(own.title, "; ".join(sources), "\n\n".join(part.strip() for part in parts))

    def fast(self, dsl: str) -> Quote | None:
        """What is fast in a DSL, for who designs for it: the first section of its suggestions."""
        documents = self.dsl(dsl)
        if documents is None or not documents.suggestions.text.strip():
            return None
        first = re.split(r"^## ", documents.suggestions.text, flags=re.MULTILINE)
        text = first[1].partition("\n")[2] if len(first) > 1 else first[0]
        return Quote(f"What is fast in {documents.spec.title}", documents.suggestions.source, text.strip())

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

    def examples(self, dsl: str, task: Task, nearest: bool = False, k: int = 1) -> list[Quote]:
        """Examples of the task's family; with ``nearest``, the likest one where its family has none."""
        documents = self.dsl(dsl)
        if self._knowledge is None or documents is None:
            return []
        family = self.family(task)
        own = [example.passage for example in documents.examples if family and example.family == family]
        likest = self._knowledge.examples(dsl, family, 1, task.text) if nearest and not own else ()
        return [_quote(p) for p in (own[:k] or likest)]

    def patterns(self, task: Task) -> list[Quote]:
        """What is known to win for operators of the task's family."""
        family = self.family(task)
        if self._knowledge is None or not family:
            return []
        try:
            found = _quote(self._knowledge.patterns(family))
            return [
                replace(found, text=re.sub(r"^```python\n.*?^```\n+", "", found.text, flags=re.DOTALL | re.MULTILINE))
            ]
        except KernellabError:
            # a family that has examples and no separate document
            return []

    def family(self, task: Task) -> str:
        """The task's family, by its captured graph; empty where no known design would help."""
        from kernellab.capture import capture

        try:
            return family_of(capture(task)).value
        except Exception:  # a prompt does without what only helps
            return ""


def own_language() -> Quote:
    """The sketch language in short, generated from the tables that the checker and the lowerings use."""
    operations = [(kind, [*_spelled(kinds)]) for kind, kinds in _KINDS.items()]
    operations.append(("library calls, each alone in its sketch", [f"{PREFIX}{name}" for name in LIBRARY]))
    text = render(
        "language", "language",
        operations=operations, dtypes=DTYPES, loop_hints=LOOP_HINTS, axes=AXES, memory_hints=MEMORY_HINTS,
    )  # fmt: skip
    return Quote("The Unified Sketch language", OWN, text)


def _spelled(kinds: tuple[OpKind, ...]) -> Iterator[str]:
    """The operations of some kinds: of one value by name, of two together, others with their signatures."""
    found = [op for op in OPS.values() if op.kind in kinds and op.name not in HIDDEN]
    told = [op for op in found if op.name in STRUCTURAL or op.arity > 2]
    yield from (op.name for op in found if op not in told and op.arity == 1)
    yield from (signature(op.name) for op in told)
    if two := [op.name for op in found if op not in told and op.arity == 2]:
        yield f"of (a, b): {' '.join(two)}"


def mistakes() -> Quote:
    """The checker's messages that newcomers meet, with what corrects them."""
    rows = [(MESSAGES[rule].code, MESSAGES[rule].sentence, MESSAGES[rule].remedy) for rule in _COMMON]
    return Quote("Mistakes", "kernellab.sketch.syntax.messages", render("language", "mistakes", mistakes=rows))


def on_cores(text: str) -> str:
    """``text`` whose sketches share loops out to a CPU's cores instead of a GPU's grid."""
    return re.sub(r'"grididx(?:\.[xyz])?"', '"coreidx"', text)


def _quote(passage: Passage) -> Quote:
    text = untitled(passage.text)
    if passage.source.endswith(".py"):
        text = f"```python\n{text.rstrip()}\n```"
    return Quote(passage.title, passage.source, plain_fences(text))


def plain_fences(text: str) -> str:
    """``text`` without what its fences say to the tools that check it (``task=``, ``fails=``, ``sizes:``)."""
    text = re.sub(r"^(```+\w+)[ \t][^\n`]*$", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"^(?:family|task|sizes|note|Sketch operations): ?[^\n]*\n\n?", "", text, flags=re.MULTILINE)


def apart(text: str, title: str) -> tuple[str, str]:
    """``text`` without its section of that title, and that section; empty where there is none."""
    found = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return text, ""
    return text[: found.start()] + text[found.end() :], found[0]


def untitled(text: str) -> str:
    """``text`` without its first heading: the prompt has the title already."""
    first, _, rest = text.lstrip().partition("\n")
    return rest.strip("\n") if first.startswith("# ") else text
