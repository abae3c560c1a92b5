"""Knowledge: one object that answers what a Designer, a Coder or a person asks of the documents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path

from kernellab.dsls.spec import DslSpec, knowledge_roots, read_spec, spec_files, whose
from kernellab.errors import KernellabError
from kernellab.knowledge.cut import cut, operation_words, operations_of_section
from kernellab.knowledge.examples import Example, read_example
from kernellab.knowledge.modules import short_signature, written_with
from kernellab.knowledge.pages import DocumentError, Page, Section, read_page
from kernellab.knowledge.passage import Passage, tokens
from kernellab.knowledge.rank import scores
from kernellab.knowledge.toolchain import Name, dotted, toolchain
from kernellab.target import Chip, Target
from kernellab.target.chips import known_chips


@dataclass(frozen=True)
class DslDocuments:
    """The four parts of a DSL's DocSpec, and what its spec.toml says."""

    spec: DslSpec
    folder: Path
    basic: Passage
    api: Passage
    suggestions: Passage
    examples: tuple[Example, ...]


class Knowledge:
    """The documents for one target and workspace. Each is read when it is first asked for."""

    def __init__(self, target: Target | None = None, workspace: Path | None = None) -> None:
        self.target = target
        self.workspace = workspace
        self.roots = knowledge_roots(workspace)

    @classmethod
    def load(cls, target: Target | None = None, workspace: str | Path | None = None) -> Knowledge:
        """The knowledge of this installation and of ``workspace`` (default: the one around the current folder).

        Raises:
            DocumentError: there are no documents at all.
        """
        knowledge = cls(target, Path(workspace) if workspace is not None else None)
        if not knowledge.roots:
            raise DocumentError("There is no knowledge folder.", "Install kernellab again from its wheel.")
        return knowledge

    # -- the sketch language

    def language(self, names: Iterable[str] = (), error: str = "", budget: int = 3500) -> Passage:
        """The language's reference. With ``names`` (operations, hints, rule words or codes) or an error, its overview
        and the sections that these need; without, all of it that ``budget`` tokens hold."""
        pages = self._pages("language")
        sections = _order([s for _, page in pages for s in page.sections], first="overview", pages=pages)
        asked = list(names)
        chosen = cut(sections, asked, error, budget, keep_first=True)
        return Passage("The sketch language", "language/", _join(chosen), self._whose(pages))

    def of_language(self, name: str) -> str:
        """What the language's pages say of ``name``, an operation or a hint; of "language", the whole on one page."""
        pages = self._pages("language")
        if name == "language":
            operations = sorted({op for _, page in pages for s in page.sections for op in operations_of_section(s)})
            overview = _join([s for path, page in pages if path.stem == "overview" for s in page.sections])
            return f"{overview}\n\nOperations: {', '.join(operations)}." if overview else ""
        return _join([s for _, page in pages for s in page.sections if name in operations_of_section(s)])

    def meaning(self, sections: Collection[str] = ()) -> Passage | None:
        """The language's exact rules, or those ``sections`` of them; None where there is no such document."""
        path, page = next(
            ((path, page) for path, page in self._pages("language") if path.stem == "meaning"), (None, None)
        )
        if path is None or page is None:
            return None
        text = _join([s for s in page.sections if s.title in sections]) if sections else page.text
        return Passage("Exact rules", "language/meaning.md", text, whose(path, self.workspace))

    def wrong_sketches(self, rules: Iterable[str]) -> Passage | None:
        """The sections on these rules of the checker, each with a sketch that breaks it; None where there is none."""
        pages = [(path, page) for path, page in self._pages("language") if path.stem == "errors"]
        chosen = [s for _, page in pages for rule in rules for s in page.sections if s.title.endswith(f" {rule}")]
        text = f"# Wrong sketches\n\n{_join(chosen)}"
        return Passage("Wrong sketches", "language/errors.md", text, self._whose(pages)) if chosen else None

    # -- DSLs

    def dsls(self) -> tuple[str, ...]:
        """Names of the DSLs that have documents."""
        return tuple(spec_files(self.workspace))

    def dsl(self, name: str) -> DslDocuments:
        """The documents of a DSL.

        Raises:
            KernellabError: there are none; the remedy names the nearest.
        """
        files = spec_files(self.workspace)
        if name not in files:
            raise KernellabError(f"There are no documents of a DSL {name!r}.", _nearest(name, files))
        folder = files[name].parent
        spec = read_spec(files[name])

        def part(file: str, title: str) -> Passage:
            path = folder / file
            text = read_page(path).text if path.is_file() else ""
            return Passage(f"{spec.title}: {title}", f"dsl/{name}/{file}", text, whose(folder, self.workspace))

        examples = tuple(read_example(path, name) for path in sorted(folder.glob("examples/*/*.py")))
        return DslDocuments(
            spec,
            folder,
            part("basic.md", "basics"),
            part("api.md", "API"),
            part("suggestions.md", "suggestions"),
            examples,
        )

    def api_for(
        self,
        dsl: str,
        names: Iterable[str] = (),
        error: str = "",
        budget: int = 2500,
    ) -> Passage:
        """What the Coder needs of a DSL's API for ``names`` (a sketch's operations, the DSL's functions) and an error.

        First the sections of api.md, then the installed toolchain's own signatures and docstrings of the functions
        that these sections, ``names`` and ``error`` speak of.
        """
        documents = self.dsl(dsl)
        asked = list(names)
        page = read_page(documents.folder / "api.md")
        answered = {name for section in page.sections for name in operation_words(section)}
        asked += [part for name in list(asked) if name not in answered for part in written_with(name)]
        chosen = cut(page.sections, asked, error, budget * 2 // 3)
        text = _join(chosen)
        titles = {section.title for section in chosen}
        signatures, versions = self._signatures(documents.spec, f"{text}\n{' '.join(asked)}", error, titles)
        source = documents.api.source
        room = budget - tokens(text)
        installed = _fit(signatures, room)
        if installed:
            text = f"{text}\n## As installed ({versions})\n\n{installed}"
            source = f"{source}; {versions}"
        return Passage(documents.api.title, source, text, documents.api.whose)

    def _signatures(self, spec: DslSpec, text: str, error: str, titles: Collection[str]) -> tuple[list[str], str]:
        modules = spec.documents.toolchain
        if not modules:
            return [], ""
        offered = toolchain(modules)
        asked = [*dotted(error, modules), *dotted(text, modules)]
        signatures = [offered.names[name] for name in dict.fromkeys(asked) if name in offered.names]
        # a section that was imported begins with the signature
        rows = [
            _entry(n, n.name in error)
            for n in signatures
            if n.name in error or f"{n.name}{short_signature(n.signature)}" not in titles
        ]
        return rows, ", ".join(f"{name} {number}" for name, number in offered.versions.items())

    def examples(self, dsl: str, family: str = "", k: int = 2, words: str = "") -> tuple[Passage, ...]:
        """The ``k`` examples nearest to a family of operators and to ``words`` (a sketch, a task)."""
        documents = self.dsl(dsl)
        examples, own = documents.examples, whose(documents.folder, self.workspace)
        rank = scores(f"{family} {words}", [f"{e.family} {e.title} {e.text}" for e in examples])
        order = sorted(range(len(examples)), key=lambda i: (examples[i].family != family, -rank[i]))
        return tuple(replace(examples[i].passage, whose=own) for i in order[:k])

    # -- chips and patterns

    def chip(self, target: Target | None = None) -> Passage:
        """The chip's facts as this machine or its file gives them, and what its file says of it in words."""
        target = target or self.target
        if target is None:
            raise KernellabError("No target is known.", "Give a target: Knowledge.load(detect_target(dsl)).")
        chip = target.chip
        file = next((entry for entry in known_chips() if entry.chip.name == chip.name), None)
        like = [e for e in known_chips() if e.match and all(word in chip.name.lower() for word in e.match)]
        file = file or max(like, key=lambda entry: len(entry.match), default=None)
        words = "" if file is None else _without_title(read_page(file.path))
        source = f"hardware/{file.path.name}" if file else chip.source or "this machine"
        of_workspace = whose(file.path, self.workspace) if file else ""
        return Passage(chip.name, source, f"{chip_facts(chip)}\n{words}".rstrip() + "\n", of_workspace)

    @cached_property
    def families(self) -> tuple[str, ...]:
        """Families of operators that have a pattern document."""
        return tuple(sorted({path.stem for path, _ in self._pages("patterns")}))

    def patterns(self, family: str) -> Passage:
        """What wins for a family of operators, and why.

        Raises:
            KernellabError: there is no such document; the remedy names the nearest.
        """
        for path, page in self._pages("patterns"):
            if path.stem == family:
                return Passage(page.title, f"patterns/{path.name}", page.text, whose(path, self.workspace))
        raise KernellabError(f"There is no pattern document {family!r}.", _nearest(family, self.families))

    def family(self, words: str) -> str:
        """The family that ``words`` (a task's text, a sketch, a person's sentence) speaks of most; empty when none."""
        pages = self._pages("patterns")
        ranking = scores(words, [page.front.get("words", "") + " " + path.stem for path, page in pages])
        best = max(range(len(pages)), key=lambda i: ranking[i], default=None)
        return pages[best][0].stem if best is not None and ranking[best] > 0 else ""

    def _whose(self, pages: Sequence[tuple[Path, Page]]) -> str:
        """Which of the pages are the workspace's own, and what these stand for."""
        own = {path.name: told for path, _ in pages if (told := whose(path, self.workspace))}
        return "; ".join(f"{name}: {told}" for name, told in own.items()) if len(pages) > 1 else "".join(own.values())

    def _pages(self, folder: str) -> list[tuple[Path, Page]]:
        """The documents of a folder by file name; a workspace's own goes before the installation's of that name."""
        by_stem: dict[str, Path] = {}
        for root in self.roots:
            for path in sorted((root / folder).glob("*.md")):
                by_stem.setdefault(path.name, path)
        return [(path, read_page(path)) for _, path in sorted(by_stem.items())]


def _order(sections: list[Section], first: str, pages: Sequence[tuple[Path, Page]]) -> list[Section]:
    """The page ``first`` as one section before the others: an introduction is not cut in pieces."""
    page = next((page for path, page in pages if path.stem == first), None)
    if page is None or not page.sections:
        return sections
    whole = replace(page.sections[0], text=page.text)
    return [whole, *(s for s in sections if s not in page.sections)]


def _join(sections: Sequence[Section]) -> str:
    return "\n".join(section.text for section in sections)


def _without_title(page: Page) -> str:
    lines = page.text.splitlines()
    return "\n".join(line for line in lines if not line.startswith("# ")).strip() + "\n"


def _nearest(name: str, names: Iterable[str]) -> str:
    names = sorted(names)
    near = get_close_matches(name, names, n=1, cutoff=0.4)
    listed = f"Choose one of {', '.join(names)}." if names else "There are none."
    return f"Did you mean {near[0]!r}? {listed}" if near else listed


def _entry(name: Name, whole: bool) -> str:
    """A signature with its docstring: the first paragraph, or all of it for what an error speaks of."""
    doc = name.doc if whole else name.doc.split("\n\n")[0]
    doc = "\n".join(f"    {line}" for line in doc.strip().splitlines())
    return f"{name.name}{short_signature(name.signature)}\n{doc}".rstrip()


def chip_facts(chip: Chip) -> str:
    """The chip's numbers, one line each; what is not known is left out."""
    gpu = chip.kind == "gpu"
    lines = [f"- {chip.cores} {'SMs' if gpu else 'cores'}" if chip.cores else ""]
    lines += [f"- SIMD {chip.simd_bits} bits ({', '.join(chip.isa)})" if chip.simd_bits else ""]
    sizes = {
        "L1": chip.l1_bytes,
        "L2": chip.l2_bytes,
        "L3": chip.l3_bytes,
        "shared memory of one block": chip.shared_bytes,
        "memory": chip.memory_bytes,
    }
    lines += [f"- {name} {_size(count)}" for name, count in sizes.items() if count]
    lines += [f"- {chip.registers_per_core} 32-bit registers per SM" if chip.registers_per_core else ""]
    lines += [f"- bandwidth {chip.bandwidth / 1e9:,.0f} GB/s" if chip.bandwidth else ""]
    peaks = ", ".join(f"{kind} {rate / 1e12:.4g}" for kind, rate in chip.peak_flops.items())
    lines += [f"- dense peaks in TFLOP/s: {peaks}" if peaks else ""]
    if chip.bandwidth and chip.peak_flops.get("f32"):
        ridge = chip.peak_flops["f32"] / chip.bandwidth
        lines += [f"- below {ridge:.1f} FLOPs a byte an f32 kernel is bound by memory"]
    lines += [f"- from: {chip.source}" if chip.source else ""]
    return "\n".join(filter(None, lines)) + "\n"


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:g} {unit}" if count % scale == 0 else f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def _fit(rows: Sequence[str], budget: int) -> str:
    kept: list[str] = []
    for row in rows:
        budget -= tokens(row) + 1
        if budget < 8:
            break
        kept.append(row)
    return "```text\n" + "\n".join(kept) + "\n```\n" if kept else ""
