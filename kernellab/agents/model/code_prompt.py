"""The Coder's prompt: the sketch, the code that the rules make of it, the DSL's documents, and the last fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.agents.briefs import CodeBrief
from kernellab.agents.model.assembly import Part, Prompt, assemble
from kernellab.agents.model.facts import history_text
from kernellab.agents.model.library import Library, Quote, untitled
from kernellab.agents.model.options import Options
from kernellab.agents.model.templates import render
from kernellab.agents.model.verdict_lines import error_map, log_end, verdict_lines
from kernellab.errors import KernellabError
from kernellab.records import Source, Verdict

if TYPE_CHECKING:
    from kernellab.knowledge import DslDocuments

_FILE = "prompts/coder.j2"
_API_SHARE = 0.2
_LAST_ROUNDS = 3
#: helper files that come with lowered code: large, the same for every kernel
_HELPERS = ("kl_math.h", "kl_tile.h", "kl_window.h", "kl_sort.h", "kl_cuda.h", "kl_triton.py")
_FENCES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".hpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".c": "c"}
_SUFFIX = {"cpp": ".cpp", "cuda_c": ".cu"}


@dataclass(frozen=True)
class Base:
    """The files that an answer starts from: the last code that was judged, else what the rules lowered."""

    source: Source | None
    lowered: Source | None
    main_file: str
    why_not_lowered: str = ""

    @property
    def files(self) -> Mapping[str, str]:
        return self.source.files if self.source else {}

    @property
    def shown(self) -> dict[str, str]:
        return {name: text for name, text in self.files.items() if name not in _HELPERS}


def base_of(brief: CodeBrief, options: Options) -> Base:
    """The files to start from. A sketch that cannot be lowered leaves the reason."""
    lowered, why = (None, "") if without_sketch(brief, options) else lowered_code(brief)
    source = brief.previous if brief.previous is not None and brief.previous.dsl == brief.target.dsl else lowered
    return Base(source, lowered, _main_file(brief.target.dsl, source), why)


def without_sketch(brief: CodeBrief, options: Options) -> bool:
    """Does this Coder work from the task alone?"""
    return not brief.sketch.strip() or "sketch" in options.ablation | brief.ablation


def lowered_code(brief: CodeBrief) -> tuple[Source | None, str]:
    """The rules Coder's source for the brief, or why there is none."""
    from kernellab.agents.coder import RulesCoder

    try:
        return RulesCoder().code(brief).source, ""
    except KernellabError as error:
        return None, str(error)


def code_prompt(brief: CodeBrief, library: Library, options: Options, base: Base | None = None) -> Prompt:
    """Everything that the Coder is told, in at most ``options.token_budget`` tokens.

    Raises:
        PromptError: the task, the sketch and the code to mend are longer than that.
    """
    base = base or base_of(brief, options)
    dsl, sketched = brief.target.dsl, not without_sketch(brief, options)
    entry_file, entry = (base.source.entry_file, base.source.entry) if base.source else ("kernel.py", "kernel")
    fence = _FENCES.get("." + base.main_file.rpartition(".")[2], "")
    chip = library.chip(brief.target)
    documents = library.dsl(dsl)
    title = documents.spec.title if documents else dsl
    parts = [
        Part(
            "role", _FILE,
            render("coder", "role", dsl=title, sketched=sketched, entry=entry, entry_file=entry_file), stable=True,
        ),
        Part("answer", _FILE, render("coder", "answer", main_file=base.main_file, fence=fence), stable=True),
        *_documents(documents),
        Part(
            "chip", chip.source, render("coder", "chip", target=brief.target, facts=chip.text),
            stable=True, rank=8, trims=True,
        ),
        Part("task", f"task {brief.task.hash[:8]}", render("coder", "task", task=brief.task)),
    ]  # fmt: skip
    verdict = judged(brief)
    if sketched:
        values = sorted(brief.constexpr.items())
        parts.append(Part("sketch", "the Designer", render("coder", "sketch", sketch=brief.sketch, constexpr=values)))
    parts += _looked_up(brief, library, options, verdict)
    parts += _code_parts(base, judged_before=verdict is not None)
    parts += _feedback(brief, verdict)
    parts.append(Part("go", _FILE, render("coder", "go")))
    return assemble(parts, options.token_budget, purpose="edit" if brief.previous else "code")


def _documents(documents: DslDocuments | None) -> list[Part]:
    if documents is None:
        return []
    parts = []
    for name, passage, rank in (("basics", documents.basic, 2), ("suggestions", documents.suggestions, 7)):
        if passage.text.strip():
            text = render("coder", "documents", title=passage.title, text=untitled(passage.text))
            name = f"{documents.spec.name} {name}"
            parts.append(Part(name, passage.source, text, rank=rank, stable=True, trims=True))
    return parts


def _looked_up(brief: CodeBrief, library: Library, options: Options, verdict: Verdict | None) -> list[Part]:
    """The API's parts that the sketch and the last error need, and examples of the family."""
    dsl, parts = brief.target.dsl, []
    error = " ".join(verdict_lines(verdict)) if verdict is not None and not verdict.passed else ""
    api = library.api(dsl, operations_of(brief.sketch), error, int(options.token_budget * _API_SHARE))
    if api is not None:
        text = render("coder", "api", dsl=dsl, passages=[api])
        parts.append(Part("API", api.source, text, rank=4, trims=True))
    if "examples" not in options.ablation | brief.ablation:
        found: list[Quote] = library.examples(dsl, brief.task)
        if found:
            one = render("coder", "examples", passages=found[:1])
            text = render("coder", "examples", passages=found)
            sources = ", ".join(p.source for p in found)
            parts.append(Part("examples", sources, text, rank=6, shorter=(one,) if len(found) > 1 else ()))
    return parts


def operations_of(sketch: str) -> list[str]:
    """The operations that a sketch names, for looking up what the DSL calls them."""
    import re

    from kernellab.sketch.ops import OPS

    words = set(re.findall(r"\w+", sketch))
    return sorted(words & (set(OPS) | {"load", "store", "atomic_add", "gather", "scatter"}))


def _code_parts(base: Base, judged_before: bool) -> list[Part]:
    if base.source is None:
        if not base.why_not_lowered:
            return []
        text = f"# No code by rule\nThe sketch could not be compiled by rule: {base.why_not_lowered}"
        return [Part("no lowering", "kernellab.lowering", text)]
    hidden = [(name, text.count("\n") + 1) for name, text in base.files.items() if name in _HELPERS]
    is_lowered = not judged_before and base.lowered is not None and base.source.hash == base.lowered.hash
    title = (
        "Code that was compiled from the sketch by rule: right where the sketch is; make it faster, or keep it"
        if is_lowered
        else "Your last code"
    )
    text = render(
        "coder", "base", title=title, files=sorted(base.shown.items()), hidden=hidden,
        fences={name: _FENCES.get("." + name.rpartition(".")[2], "") for name in base.shown},
    )  # fmt: skip
    source = "kernellab.lowering" if is_lowered else "the journal"
    # edits are made to it, so it is whole or not there
    return [Part("code", source, text, rank=9 if is_lowered else 0)]


def _feedback(brief: CodeBrief, verdict: Verdict | None) -> list[Part]:
    parts = []
    if verdict is not None and brief.previous is not None:
        text, short = (
            render("coder", "judged", lines=verdict_lines(verdict), error_map=shown, log=log)
            for shown, log in ((error_map(verdict), log_end(verdict)), ("", ""))
        )
        parts.append(Part("verdict on the last code", "the Verifier", text, rank=1, shorter=(short,), trims=True))
    if brief.history:
        forms = [history_text(brief.history, last, brief.route) for last in (None, _LAST_ROUNDS, 1)]
        full, *shorter = (render("coder", "history", history=form) for form in forms)
        parts.append(Part("history", "the journal", full, rank=5, shorter=tuple(shorter)))
    if brief.route is not None:
        parts.append(Part("route", "the Conductor", render("coder", "route", route=brief.route)))
    if brief.notes:
        parts.append(Part("notes", "a person", render("coder", "notes", notes=brief.notes)))
    return parts


def judged(brief: CodeBrief) -> Verdict | None:
    """The verdict on ``brief.previous``; None when it was not judged."""
    if brief.previous is None:
        return None
    for attempt in reversed(brief.history):
        if attempt.candidate is not None and attempt.candidate.source.hash == brief.previous.hash:
            return attempt.verdict
    return None


def _main_file(dsl: str, source: Source | None) -> str:
    """The file that holds the kernel: the one in the DSL's own language, else the entry."""
    suffix = _SUFFIX.get(dsl)
    if source is None:
        return "kernel.py" if suffix is None else f"kernel{suffix}"
    return next((name for name in sorted(source.files) if suffix and name.endswith(suffix)), source.entry_file)
