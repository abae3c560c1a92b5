"""Quotations of documents for prompts, with their sources; the language's own tables if there are no documents."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernellab.agents.model.prompts.facts import chip_lines
from kernellab.agents.model.prompts.templates import render
from kernellab.capture import capture
from kernellab.capture.family import family_of, traits_of
from kernellab.errors import KernellabError
from kernellab.operations.sketch import OPS, OpKind
from kernellab.sketch.program.library import LIBRARY
from kernellab.sketch.resolve.hints import AXES, LOOP_HINTS, MEMORY_HINTS
from kernellab.sketch.syntax.docs import HIDDEN, HINTS, STRUCTURAL, signature
from kernellab.sketch.syntax.messages import MESSAGES
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import DslDocuments, Knowledge, Passage

#: The wrong sketches that a Designer sees: the most frequent errors of first sketches.
_WRONG = ("tile-index-as-offset",)

#: The sections of the language's rules with content that the short tables lack.
_BEYOND = ("Several sketches", "Values from outside")

#: The source of text about the language that comes from the code.
OWN = "kernellab.sketch"

DTYPES = ("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool")

_KINDS = {
    "elementwise": (OpKind.POINTWISE,),
    "comparison and logic": (OpKind.COMPARE,),
    "reductions, `axis=`": (OpKind.REDUCE,),
    "scans, `axis=`": (OpKind.SCAN,),
    "sorting": (OpKind.SORT,),
    "matrix": (OpKind.MATRIX,),
    "shape": (OpKind.SHAPE,),
}
#: Hints without effect on a CPU.
_ON_GPU = (
    "persistent", "swizzle", "copy_engine", "warp_roles", "in_turn", "registers", "ahead", "async_store", "cluster",
    "team", "shared_between_threads", *(axis for axis in AXES if axis != "coreidx"),
)  # fmt: skip
#: Frequent faults in a newcomer's first sketch.
_COMMON = (
    "new-name", "alloc-visible", "extent-varies", "gemm-assign", "tensor-as-value", "tile-index",
    "not-index-condition", "tile-index-as-offset", "not-covered", "race", "carried", "parallel-tail", "second-nest",
    "footprint", "pad-identity", "pad-mean", "undefined-read",
)  # fmt: skip


@dataclass(frozen=True)
class Quote:
    """A text with a title and its source."""

    title: str
    source: str
    text: str


class Library:
    """The documents of ``knowledge`` as quotes. Missing ones are omitted; without any, the language's own tables and
    the chip's own facts remain."""

    def __init__(self, knowledge: Knowledge | None) -> None:
        self._knowledge = knowledge

    def language(self, kind: str = "gpu", library: bool = True) -> Quote:
        """The sketch language's reference, the same for every task on a kind of chip: its tables, two correct sketches
        and, if there are documents, two wrong ones. ``library``: its calls may be used."""
        tables = own_language(kind, library)
        if self._knowledge is None:
            return tables
        rules, wrong = self._knowledge.meaning(_BEYOND), self._knowledge.wrong_sketches(_WRONG)
        parts = [tables.text]
        if rules is not None:
            parts += [*([f"({rules.heading})"] if rules.whose else []), plain_fences(untitled(rules.text))]
        parts += [f"## {wrong.heading}\n\n{plain_fences(_deeper(untitled(wrong.text)))}"] if wrong is not None else []
        sources = [tables.source, *(p.place for p in (rules, wrong) if p is not None)]
        return Quote(tables.title, "; ".join(sources), "\n\n".join(part.strip() for part in parts))

    def fast(self, dsl: str) -> Quote | None:
        """What is fast in a DSL, for its Designer: the first section of its suggestions."""
        documents = self.dsl(dsl)
        if documents is None or not documents.suggestions.text.strip():
            return None
        parts = re.split(r"^## ", documents.suggestions.text, flags=re.MULTILINE)
        text = parts[1].partition("\n")[2] if len(parts) > 1 else parts[0]
        suggestions = documents.suggestions
        title = f"What is fast in {documents.spec.title}{f' ({suggestions.whose})' if suggestions.whose else ''}"
        return Quote(title, suggestions.place, text.strip())

    def chip(self, target: Target) -> Quote:
        if self._knowledge is not None:
            return _quote(self._knowledge.chip(target))
        return Quote(target.chip.name, target.chip.source or "this machine", "\n".join(chip_lines(target.chip)))

    def dsl(self, name: str) -> DslDocuments | None:
        """A DSL's documents; None if there are none."""
        if self._knowledge is None or name not in self._knowledge.dsls():
            return None
        return self._knowledge.dsl(name)

    def api(self, dsl: str, names: Sequence[str], error: str, budget: int) -> Quote | None:
        """The part of the API's documents that ``names`` and an error require."""
        if self._knowledge is None or self.dsl(dsl) is None:
            return None
        passage = self._knowledge.api_for(dsl, names, error, budget)
        return _quote(passage) if passage.text.strip() else None

    def examples(self, dsl: str, task: Task, nearest: bool = False, k: int = 1) -> list[Quote]:
        """Examples of the task's family; with ``nearest``, the most similar one if its family has none."""
        documents = self.dsl(dsl)
        if self._knowledge is None or documents is None:
            return []
        family = self.family(task)
        of_family = [example.passage for example in documents.examples if family and example.family == family]
        likest = self._knowledge.examples(dsl, family, 1, task.text) if nearest and not of_family else ()
        return [_quote(p) for p in (of_family[:k] or likest)]

    def patterns(self, task: Task, kind: str = "gpu") -> list[Quote]:
        """Successful designs for operators of the task's family. Sections whose requirements the task or its ``kind``
        of chip does not meet (``needs: scatter``) are omitted."""
        family = self.family(task)
        if self._knowledge is None or not family:
            return []
        try:
            passage = self._knowledge.patterns(family)
            traits = traits_of(capture(task)) | {kind}
            quote = _quote(replace(passage, text=_fitting(passage.text, traits)))
            return [
                replace(quote, text=re.sub(r"^```python\n.*?^```\n+", "", quote.text, flags=re.DOTALL | re.MULTILINE))
            ]
        except KernellabError:
            # a family with examples but without a separate document
            return []

    def family(self, task: Task) -> str:
        """The task's family, from its captured graph; empty if no known design would help."""
        try:
            return family_of(capture(task)).value
        except Exception:  # the family is optional in a prompt
            return ""


def own_language(kind: str = "gpu", library: bool = True) -> Quote:
    """The sketch language in short, generated from the tables of the checker and the lowerings; without hints that have
    no effect on a ``kind`` of chip, and without calls of the ``library`` if they may not be used."""
    operations = [(title, [*_spelled(kinds)]) for title, kinds in _KINDS.items()]
    if library:
        operations.append(("library calls, each alone in its sketch", [op.signature for op in LIBRARY.values()]))
    left_out = _ON_GPU if kind == "cpu" else ()
    loop_hints, axes, memory_hints = (
        [word for word in words if word not in left_out] for words in (LOOP_HINTS, AXES, MEMORY_HINTS)
    )
    symbols = f"`{' '.join(op.symbol for op in OPS.values() if op.symbol)}`"
    text = render(
        "language", "language", symbols=symbols, kind=kind,
        operations=operations, dtypes=DTYPES, loop_hints=_explained(loop_hints), axes=axes,
        memory_hints=_explained(memory_hints),
    )  # fmt: skip
    return Quote("The Unified Sketch language", OWN, text)


def _explained(hints: Sequence[str]) -> list[str]:
    """Each hint with its meaning; hints with the same meaning are grouped."""
    by_meaning: dict[str, list[str]] = {}
    for hint in hints:
        by_meaning.setdefault(HINTS[hint], []).append(hint)
    return [
        f"{' or '.join(names)}: {meaning[0].lower()}{meaning[1:].rstrip('.')}" for meaning, names in by_meaning.items()
    ]


def _spelled(kinds: tuple[OpKind, ...]) -> Iterator[str]:
    """The operations of some kinds: unary ones by name, binary ones together, others with their signatures."""
    ops = [op for op in OPS.values() if op.kind in kinds and op.name not in HIDDEN]
    with_signature = [op for op in ops if op.name in STRUCTURAL or op.arity > 2]
    yield from (op.name for op in ops if op not in with_signature and op.arity == 1)
    yield from (signature(op.name) for op in with_signature)
    if binary := [op.name for op in ops if op not in with_signature and op.arity == 2]:
        yield f"of (a, b): {' '.join(binary)}"


def mistakes() -> Quote:
    """The checker's messages that newcomers meet, with their remedies."""
    rows = [(MESSAGES[rule].code, MESSAGES[rule].sentence, MESSAGES[rule].remedy) for rule in _COMMON]
    return Quote("Mistakes", "kernellab.sketch.syntax.messages", render("language", "mistakes", mistakes=rows))


def on_cores(text: str) -> str:
    """Return ``text`` with sketches that distribute loops over a CPU's cores instead of a GPU's grid."""
    return re.sub(r'"grididx(?:\.[xyz])?"', '"coreidx"', text).replace(', "swizzle"', "")


def _quote(passage: Passage) -> Quote:
    text = untitled(passage.text)
    if passage.source.endswith(".py"):
        text = f"```python\n{text.rstrip()}\n```"
    return Quote(passage.heading, passage.place, plain_fences(text))


def plain_fences(text: str) -> str:
    """Return ``text`` without the attributes of its fences for checking tools (``task=``, ``fails=``, ``sizes:``)."""
    text = re.sub(r"^(```+\w+)[ \t][^\n`]*$", r"\1", text, flags=re.MULTILINE)
    return re.sub(r"^(?:family|needs|task|sizes|note|Sketch operations): ?[^\n]*\n\n?", "", text, flags=re.MULTILINE)


def _fitting(text: str, traits: Collection[str]) -> str:
    """Return ``text`` without sections whose needs are not in ``traits``; the other sections move one level down."""
    first, *sections = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    fitting = []
    for section in sections:
        needs = re.search(r"^needs: ?(.*)$", section, re.MULTILINE)
        if needs is None or set(needs[1].split()) <= set(traits):
            fitting.append(_deeper(section))
    return "".join([first, *fitting]).rstrip()


def _deeper(text: str) -> str:
    """Return ``text`` with its headings one level down."""
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)


def apart(text: str, title: str) -> tuple[str, str]:
    """Split ``text`` into the text without its section of that title, and that section; empty if there is none."""
    match = re.search(rf"^## {re.escape(title)}\n.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if match is None:
        return text, ""
    return text[: match.start()] + text[match.end() :], match[0]


def untitled(text: str) -> str:
    """Return ``text`` without its first heading: the prompt has the title already."""
    first, _, rest = text.lstrip().partition("\n")
    return rest.strip("\n") if first.startswith("# ") else text
