"""Tools of what is written down: documents of the language, DSLs and patterns; chips; the memory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from kernellab.dsls.spec import whose
from kernellab.errors import KernellabError, counted
from kernellab.tools.context import Context
from kernellab.tools.records import MATERIAL, MOST_TEXT, Page, Request, Result, ToolError
from kernellab.tools.results.fitting import page_of
from kernellab.tools.tool import tool

if TYPE_CHECKING:
    from kernellab.options.memory import MemoryDefaults


def documents(workspace: Path) -> dict[str, Path]:
    """Every document by its name, ``language/overview.md``; a workspace's own goes before the installation's. A link
    that leads out of the workspace's folder is none, nor is anything of a folder that is such a link."""
    from kernellab.dsls.spec import knowledge_roots

    found: dict[str, Path] = {}
    for root in knowledge_roots(workspace):
        own = root == (workspace / "knowledge").resolve()
        if own and not root.is_relative_to(workspace.resolve()):
            continue
        for path in sorted([*root.rglob("*.md"), *root.rglob("examples/*/*.py")]):
            if own and not (path.is_file() and path.resolve().is_relative_to(root)):
                continue
            name = path.relative_to(root).as_posix()
            # a name that is no text cannot be sent, nor can a list that holds it
            if name.encode(errors="ignore").decode() == name:
                found.setdefault(name, path)
    return found


def text_of(name: str, path: Path) -> str:
    """A document's text. Raises ToolError: it has more than ``MOST_TEXT`` bytes, or is no UTF-8 text."""
    try:
        # one that grows meanwhile is read no further
        with path.open("rb") as file:
            data = file.read(MOST_TEXT + 1)
        if len(data) > MOST_TEXT:
            raise ToolError(f"The document {name!r} has more than {MOST_TEXT:,} bytes.", "It is too long to be read.")
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        words = f"The document {name!r} cannot be read: {reason}."
        raise ToolError(words, "list_documents names the others.") from None


class SearchRequest(Request):
    words: str = Field(description="What to look for, in a few words.")
    limit: int = Field(6, ge=1, le=20)
    task: str = Field(default="", description="A task's file or session, for whose DSL and chip it is searched.")
    dsl: str = Field(default="", description="Or the DSL; empty: the task's, else this machine's.")


class Passage(BaseModel):
    document: str
    section: str
    text: str
    whose: str = Field(default="", description="Of the workspace's own document, that it is, and what it replaces.")


class SearchResult(Result):
    passages: list[Passage]


#: the share that counts of a section on another DSL, or on a chip of another kind, which the words do not name
_ELSEWHERE = 0.3


@tool()
def search_documents(context: Context, request: SearchRequest) -> SearchResult:
    """Search the documents of the sketch language, the DSLs, chips and patterns; the nearest sections come first."""
    from kernellab.knowledge.pages import read_page
    from kernellab.knowledge.rank import scores, words

    if not words(request.words):
        raise ToolError(f"There is no word to look for in {request.words!r}.", "Give a few words, or list_documents.")
    known = documents(context.workspace)
    sections, unread = list[tuple[str, str, str]](), list[str]()
    for name, path in known.items():
        if path.suffix != ".md":
            continue
        try:
            if whose(path, context.workspace):
                text_of(name, path)
            sections += [(name, section.title, section.text) for section in read_page(path).sections]
        except KernellabError:  # one of the workspace's takes no other document from a reader
            unread.append(name)
    rank = scores(request.words, [f"{name} {title} {text}" for name, title, text in sections])
    share = _shares(context, request, known)
    rank = [score * share.get(name, 1.0) for score, (name, _, _) in zip(rank, sections, strict=True)]
    order = sorted((i for i in range(len(sections)) if rank[i] > 0), key=lambda i: -rank[i])[: request.limit]
    passages = [
        Passage(document=name, section=title, text=text[:800], whose=whose(known[name], context.workspace))
        for name, title, text in (sections[i] for i in order)
    ]
    names = ", ".join(dict.fromkeys(_named(p.document, p.whose) for p in passages))
    following = "read_document gives a whole document, in pages." if passages else "list_documents names them all."
    left = f"{counted(len(unread), 'document')} cannot be read: {', '.join(unread[:4])}." if unread else ""
    return SearchResult(
        summary=f"Nearest: {names}." if passages else f"No document speaks of {request.words!r}.",
        next=" ".join(filter(None, (following, left))),
        passages=passages,
    )


def _shares(context: Context, request: SearchRequest, known: Collection[str]) -> dict[str, float]:
    """What counts of the documents that are for another DSL or chip than the search is for."""
    from kernellab.knowledge.rank import words
    from kernellab.target.chips import known_chips

    try:
        target = context.target(request.dsl, request.task)
    except KernellabError:
        if request.dsl or request.task:
            raise
        return {}  # no DSL is ready here: all are alike
    kinds = {f"hardware/{entry.path.name}": entry.chip.kind for entry in known_chips()}
    named = set(words(request.words))

    def other(name: str) -> bool:
        folder, _, rest = name.partition("/")
        dsl = rest.partition("/")[0]
        if folder == "dsl":
            return dsl != target.dsl and dsl not in named
        return kinds.get(name, target.chip.kind) != target.chip.kind

    return {name: _ELSEWHERE for name in known if other(name)}


def _named(document: str, own: str) -> str:
    return f"{document} ({own})" if own else document


class ReadRequest(Request):
    document: str = Field(description="A document's name, such as language/overview.md.")
    page: int = Field(default=1, ge=1)


class ReadResult(Result):
    text: Page
    whose: str = Field(default="", description="Of the workspace's own document, that it is, and what it replaces.")


@tool()
def read_document(context: Context, request: ReadRequest) -> ReadResult:
    """Read one document, in pages."""
    from difflib import get_close_matches

    known = documents(context.workspace)
    if request.document not in known:
        near = get_close_matches(request.document, known, 3, 0.6)
        remedy = f"Near it: {', '.join(near)}." if near else "list_documents names them all."
        raise ToolError(f"There is no document {request.document!r}.", remedy)
    text = page_of(text_of(request.document, known[request.document]), request.page)
    rest = f"Page {text.page + 1} continues." if text.page < text.pages else ""
    own = whose(known[request.document], context.workspace)
    summary = f"{_named(request.document, own)}, page {text.page} of {text.pages}."
    return ReadResult(summary=summary, next=f"{rest} {MATERIAL if own else ''}".strip(), text=text, whose=own)


class ListRequest(Request):
    folder: str = Field(default="", description="Only names that begin so: language/, dsl/triton/, hardware/ ...")


class ListResult(Result):
    names: list[str]
    workspace: dict[str, str] = Field(
        default_factory=dict, description="The workspace's own documents among them, and what each replaces."
    )


@tool()
def list_documents(context: Context, request: ListRequest) -> ListResult:
    """List the documents by name."""
    known = documents(context.workspace)
    names = [name for name in known if name.startswith(request.folder)]
    if not names:
        folders = ", ".join(f"{folder}/" for folder in dict.fromkeys(name.partition("/")[0] for name in known))
        raise ToolError(f"No document's name begins with {request.folder!r}.", f"The folders: {folders}.")
    own = {name: told for name in names if (told := whose(known[name], context.workspace))}
    told = f" {counted(len(own), 'is', 'are')} the workspace's own." if own else ""
    return ListResult(
        summary=f"{counted(len(names), 'document')}.{told}", next="Start with language/overview.md.", names=names,
        workspace=own,
    )  # fmt: skip


class ChipRequest(Request):
    chip: str = Field(default="", description="A chip's name, such as h100; empty: this machine's for the DSL.")
    dsl: str = Field(default="", description="triton, cpp or cuda_c; empty: triton with a GPU, else cpp.")


class ChipResult(Result):
    name: str
    facts: Page


@tool()
def chip_facts(context: Context, request: ChipRequest) -> ChipResult:
    """Facts of a chip: cores, memory levels, rates, and what is known to pay on it."""
    from kernellab.dsls.machine import named_chip
    from kernellab.knowledge.loader import Knowledge
    from kernellab.target import Backend, Target

    if request.chip:
        chip = named_chip(request.chip)
        backend = Backend.CUDA if chip.kind == "gpu" else Backend.CPU
        target = Target(request.dsl or ("triton" if chip.kind == "gpu" else "cpp"), backend, chip)
    else:
        target = context.target(request.dsl)
    passage = Knowledge.load(target, context.workspace).chip()
    return ChipResult(
        summary=f"{passage.title}, from {passage.place}.", name=target.chip.name, facts=page_of(passage.text)
    )


class MemoryRequest(Request):
    task: str = Field(default="", description="A task's file or session: kernels of similar computations are found.")
    words: str = Field(default="", description="Or words of a kernel's name, operations or rationale.")
    dsl: str = Field(default="", description="Only kernels of this DSL.")
    limit: int = Field(3, ge=1, le=10)


class Remembered(BaseModel):
    id: str
    name: str
    why: str
    stale: str
    sketch: str


class MemoryResult(Result):
    kernels: list[Remembered]
    notes: list[str] = Field(default_factory=list, description="Advice that a person approved, with its effect.")


def _remembers(said: MemoryDefaults) -> str:
    """When what a session verifies comes into the memory, by the workspace's settings."""
    from kernellab.memory.recall import OFF

    if said.use == OFF:
        return 'What a session verifies is not remembered: kernellab.toml has `[memory] use = "off"`.'
    if said.offer == "always":
        return "What a session verifies is remembered at its end."
    asked = ", or a person answers its offer" if said.offer == "ask" else ""
    return f'What a session verifies is remembered where kernellab.toml has `[memory] offer = "always"`{asked}.'


@tool()
def search_memory(context: Context, request: MemoryRequest) -> MemoryResult:
    """Search the memory for kernels that were verified before: of a similar computation, or by words."""
    from kernellab.memory.memory import Memory
    from kernellab.memory.recall import place_named
    from kernellab.options.memory import memory_defaults
    from kernellab.session.memory_use import by_task, by_words

    if bool(request.task) == bool(request.words):
        raise ToolError("search_memory takes either a task or words.", "Give one of them.")
    said = memory_defaults(context.workspace)
    memory = Memory.open_existing(context.workspace, place_named(said.use))
    if memory is None:
        return MemoryResult(
            summary="The workspace has no memory yet.", kernels=[],
            next="A person loads the package's kernels into it (`kernellab memory seed` in a shell). "
            f"{_remembers(said)} Until then search_documents and the patterns/ documents help.",
        )  # fmt: skip
    if request.task:
        found = by_task(memory, context.task(request.task), request.dsl, request.limit)
    else:
        found = by_words(memory, request.words, request.limit, context.workspace)
    kernels = [
        Remembered(id=f.kernel.id, name=f.kernel.name, why=f.why, stale=f.stale, sketch=(f.kernel.sketch or "")[:3000])
        for f in found
    ]
    notes = [
        f"{note.advice} ({note.ratio:.2f}x [{note.low:.2f}, {note.high:.2f}])"
        for note in sorted(memory.store.skills("approved = true"), key=lambda note: -note.ratio)
        if request.dsl in ("", note.dsl) or not note.dsl
    ][: request.limit]
    return MemoryResult(
        summary=f"{len(kernels)} kernels." if kernels else "Nothing similar is remembered.",
        next=f"A remembered kernel counts only after it is verified again. {MATERIAL}"
        if kernels
        else MATERIAL
        if notes
        else "",
        kernels=kernels,
        notes=notes,
    )
