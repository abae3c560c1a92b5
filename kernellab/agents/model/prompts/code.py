"""The Coder's prompt: the sketch, the code that the rules lower from it, the DSL's documents, and the last fault."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab import python_tree
from kernellab.agents.briefs import Attempt, CodeBrief, avoidable, best_of, own_reason
from kernellab.agents.model.expected.lines import expected_lines
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.cost import lowered_work
from kernellab.agents.model.prompts.facts import (
    bound_lines,
    hot_of_kernel,
    hot_text,
    limit_lines,
    numbered,
    time_lines,
)
from kernellab.agents.model.prompts.helpers import helpers_page, is_helper
from kernellab.agents.model.prompts.history import history_text
from kernellab.agents.model.prompts.manual_edits import by_hand, diff_of, lowered_code
from kernellab.agents.model.prompts.marks import in_short
from kernellab.agents.model.prompts.memory import code_parts
from kernellab.agents.model.prompts.quotes import Library, Quote, apart, untitled
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.prompts.verdict import error_map, log_end, verdict_lines
from kernellab.agents.rules.classify import LATE, is_of_judge
from kernellab.errors import duration
from kernellab.lowering.embedded_sketch import bare, same_code
from kernellab.records import GateState, Source, Stage, Verdict
from kernellab.target import Backend

if TYPE_CHECKING:
    from kernellab.knowledge import DslDocuments

_FILE = "prompts/coder.j2"
_API_SHARE = 0.2
#: The section of a DSL's suggestions that is included after an error.
_ERRORS = "Reading errors"
_LAST_ROUNDS = 3
#: Maximum length of the Designer's rationale for a new sketch, in characters.
_DESIGN_CHARACTERS = 600
_FENCES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".hpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".c": "c"}
_SUFFIX = {"cpp": ".cpp", "cuda_c": ".cu"}


@dataclass(frozen=True)
class Base:
    """The files from which an answer starts: the last code of this sketch, otherwise the rules' lowering."""

    source: Source | None
    lowered: Source | None
    main_file: str
    why_not_lowered: str = ""
    #: The manual changes in the earlier sketch's code, as a diff per file; empty without changes.
    by_hand: str = ""
    #: The sketch that a prompt contains in addition to the code; empty without one.
    sketch: str = ""

    @property
    def files(self) -> Mapping[str, str]:
        """The source's files without the embedded sketch: a prompt contains the sketch only once."""
        return bare(self.source).files if self.source else {}

    @property
    def shown(self) -> dict[str, str]:
        """The kernel's own files as a prompt shows them: comments that quote the sketch are replaced by line numbers.

        A lowered source's helpers and host code are omitted.
        """
        return {name: in_short(name, self.files[name], self.sketch) for name in self._own}

    @property
    def _own(self) -> list[str]:
        if self.lowered is None or self.source is None or self.lowered.files.keys() != self.source.files.keys():
            return [name for name in self.files if not is_helper(name)]
        rules = bare(self.lowered).files
        unchanged = {name for name, text in self.files.items() if text == rules.get(name)}
        return [name for name in self.files if name == self.main_file or not (is_helper(name) or name in unchanged)]

    @property
    def zeroed(self) -> list[str]:
        """The lines of the host code, which a prompt omits, that fill a tensor with zeros before a call."""
        if self.source is None or self.source.entry_file in self._own:
            return []
        text = self.files[self.source.entry_file]
        assignments = (node for node in ast.walk(python_tree.parse(text)) if isinstance(node, ast.Assign))
        calls = (n for n in assignments if isinstance(n.value, ast.Call) and ast.unparse(n.value.func) == "torch.zeros")
        return [line for node in calls if (line := ast.get_source_segment(text, node))]

    @property
    def in_short(self) -> frozenset[str]:
        """The files whose text in a prompt differs from their own."""
        return frozenset(name for name, text in self.shown.items() if text != self.files[name])


def base_of(brief: CodeBrief, options: Options) -> Base:
    """Return the files to start from, and the reason if the sketch cannot be lowered."""
    is_blind = without_sketch(brief, options)
    lowered, reason = (None, "") if is_blind else lowered_code(brief)
    sketch = "" if is_blind else brief.sketch
    previous = brief.previous if brief.previous is not None and brief.previous.dsl == brief.target.dsl else None
    if brief.redesigned and lowered is not None:
        diff = by_hand(brief, previous, brief.previous_sketch, brief.previous_constexpr)
        return Base(lowered, lowered, _main_file(brief.target.dsl, lowered), reason, diff, sketch)
    source = previous or lowered
    return Base(source, lowered, _main_file(brief.target.dsl, source), reason, sketch=sketch)


def without_sketch(brief: CodeBrief, options: Options) -> bool:
    """Whether this Coder works from the task only."""
    return not brief.sketch.strip() or "sketch" in options.ablation | brief.ablation


def code_prompt(brief: CodeBrief, library: Library, options: Options, base: Base | None = None) -> Prompt:
    """Return everything that the Coder receives, in at most ``options.token_budget`` tokens.

    Raises:
        PromptError: the task, the sketch and the code to fix are longer than the budget.
    """
    base = base or base_of(brief, options)
    dsl, has_sketch = brief.target.dsl, not without_sketch(brief, options)
    entry_file, entry = (base.source.entry_file, base.source.entry) if base.source else ("kernel.py", "kernel")
    fence = _FENCES.get("." + base.main_file.rpartition(".")[2], "")
    chip = library.chip(brief.target)
    documents = library.dsl(dsl)
    title = documents.spec.title if documents else dsl
    is_gated = "gate" not in options.ablation | brief.ablation and not _unrun(brief)
    interpreted = brief.target.backend is Backend.INTERPRETER
    verdict = judged(brief)
    # the verdict, or the best code, already contains its figures
    has_figures = (verdict is not None and verdict.passed) or best_elsewhere(brief, base) is not None
    timing_lines = [] if has_figures else time_lines(brief)
    parts = [
        Part(
            "role", _FILE,
            render(
                "coder", "role", dsl=title, sketched=has_sketch, entry=entry, entry_file=entry_file,
                lowered=base.lowered is not None, library=brief.allow_library, gated=is_gated,
                on_cores=brief.target.chip.kind == "cpu" and not interpreted,
            ),
            stable=True,
        ),
        Part("answer", _FILE, render("coder", "answer", main_file=base.main_file, fence=fence), stable=True),
        *_documents(documents, base),
        Part(
            "chip", chip.source, render("coder", "chip", target=brief.target, facts=chip.text, interpreted=interpreted),
            stable=True, rank=8, trims=True,
        ),
        Part(
            "task", f"task {brief.task.hash[:8]}",
            render("coder", "task", task=brief.task, limits=limit_lines(brief)),
        ),
        Part(
            "bound", "task shapes x chip facts",
            render(
                "coder", "bound",
                lines=(*bound_lines(brief), *timing_lines),
            ),
            rank=3,
        ),
    ]  # fmt: skip
    if has_sketch:
        values = sorted(brief.constexpr.items())
        text = render("coder", "sketch", numbered=numbered(brief.sketch), constexpr=values)
        parts.append(Part("sketch", "the Designer", text))
    if has_sketch and brief.redesigned:
        parts += _redesign_parts(brief, base)
    if base.lowered is None:
        parts += _looked_up(brief, library, options, verdict)
    else:
        page = helpers_page(base.files, base.files.get(base.main_file, ""))
        if page.strip():
            spaced = any(is_helper(name) and "namespace kl " in text for name, text in base.files.items())
            text = render("coder", "helpers", page=page, fence=fence, spaced=spaced)
            parts.append(Part("helpers", "kernellab.lowering", text, rank=4))
    parts += code_parts(brief)
    last = brief.history[-1].candidate if brief.history else None
    put_back = verdict is not None and last is not None and not same_code(last.source, base.source or last.source)
    work = lowered_work(brief) if base.lowered is not None and verdict is None else ""
    parts += _code_parts(base, verdict is not None, put_back, work)
    parts += _best_parts(brief, options, base)
    parts += _feedback(brief, verdict, put_back or by_rule(base), hot_text(brief, options.ablation))
    parts += _reading_errors(documents, verdict)
    if has_sketch and "intermediates" not in options.ablation | brief.ablation:
        expected = expected_lines(brief, verdict)
        text = render("coder", "expected", lines=expected) if expected else ""
        parts.append(Part("expected values", "kernellab.sketch.run", text, rank=2, trims=True))
    parts.append(Part("go", _FILE, render("coder", "go")))
    purpose = "edit" if brief.previous and not brief.redesigned else "code"
    return assemble(parts, options.token_budget, purpose=purpose)


def _unrun(brief: CodeBrief) -> bool:
    """Whether the gate could not run the sketch."""
    gates = [attempt.gate for attempt in brief.history if attempt.sketch == brief.sketch]
    return bool(gates) and (gates[-1] is None or gates[-1].state is GateState.NOT_RUNNABLE)


def _redesign_parts(brief: CodeBrief, base: Base) -> list[Part]:
    """The Designer's changes, and the manual changes in the earlier code."""
    diff = diff_of(brief.previous_sketch or "", brief.sketch, "the sketch")
    rationale = textwrap.shorten(brief.design, _DESIGN_CHARACTERS, placeholder=" ...")
    text = render("coder", "redesign", diff=diff, why=rationale)
    parts = [Part("sketch's changes", "the Designer", text, rank=5, trims=True)]
    if base.by_hand and best_elsewhere(brief, base) is None:
        text = render("coder", "by_hand", diff=base.by_hand)
        parts.append(Part("changes by hand", "the journal", text, rank=5, trims=True))
    return parts


def _documents(documents: DslDocuments | None, base: Base) -> list[Part]:
    """The DSL's documents; lowered code, which has its own binding, needs helpers instead of basics."""
    if documents is None:
        return []
    parts = []
    basics = () if base.lowered is not None else (("basics", documents.basic, 2),)
    for name, passage, rank in (*basics, ("suggestions", documents.suggestions, 7)):
        passage_text, _ = apart(untitled(passage.text), _ERRORS)
        if passage_text.strip():
            text = render("coder", "documents", title=passage.heading, text=passage_text)
            name = f"{documents.spec.name} {name}"
            parts.append(Part(name, passage.place, text, rank=rank, stable=True, trims=True))
    return parts


def _reading_errors(documents: DslDocuments | None, verdict: Verdict | None) -> list[Part]:
    """The DSL's suggestions about errors, after an error."""
    if documents is None or verdict is None or verdict.passed or verdict.stage not in (Stage.BUILD, Stage.SMOKE):
        return []
    _, error_text = apart(documents.suggestions.text, _ERRORS)
    text = render("coder", "documents", title=_ERRORS, text=error_text.partition("\n")[2])
    return [Part("reading errors", documents.suggestions.place, text, rank=7, trims=True)] if error_text else []


def _looked_up(brief: CodeBrief, library: Library, options: Options, verdict: Verdict | None) -> list[Part]:
    """The API's parts that the sketch and the last error need, and examples of the family."""
    dsl, parts = brief.target.dsl, []
    error = " ".join(verdict_lines(verdict)) if verdict is not None and not verdict.passed else ""
    api = library.api(dsl, operations_of(brief.sketch), error, int(options.token_budget * _API_SHARE))
    if api is not None:
        text = render("coder", "api", dsl=dsl, sketched=bool(brief.sketch.strip()), passages=[api])
        parts.append(Part("API", api.source, text, rank=4, trims=True))
    if "examples" not in options.ablation | brief.ablation:
        quotes: list[Quote] = library.examples(dsl, brief.task, nearest=True)
        if quotes:
            text = render("coder", "examples", passages=quotes)
            parts.append(Part("examples", ", ".join(p.source for p in quotes), text, rank=6))
    return parts


def operations_of(sketch: str) -> list[str]:
    """The operations and hints in a sketch, to look up their names in the DSL."""
    import re

    from kernellab.operations.sketch import OPS
    from kernellab.sketch.resolve.hints import LOOP_HINTS

    words = set(re.findall(r"\w+", sketch))
    if not words:
        return []
    return ["launch", *sorted(words & {*OPS, *LOOP_HINTS, "load", "store", "atomic_add", "gather", "scatter"})]


def _code_parts(base: Base, judged_before: bool, put_back: bool, work: str) -> list[Part]:
    if base.source is None:
        if not base.why_not_lowered:
            return []
        text = f"# No code by rule\nThe sketch could not be compiled by rule: {base.why_not_lowered}"
        return [Part("no lowering", "kernellab.lowering", text)]
    hidden = sorted(set(base.files) - set(base.shown))
    is_lowered = by_rule(base)
    title = (
        "Code that was compiled from the sketch by rule"
        + ("" if judged_before else ": right where the sketch is; make it faster, or keep it")
        if is_lowered and not put_back
        else "The best code so far, put back: no later one is better"
        if put_back
        else "Your last code"
    )
    text = render(
        "coder", "base", title=title, files=sorted(base.shown.items()), hidden=hidden, marked=bool(base.in_short),
        zeroed=base.zeroed, entry=base.source.entry_file, work=work if is_lowered else "",
        fences={name: _FENCES.get("." + name.rpartition(".")[2], "") for name in base.shown},
    )  # fmt: skip
    source = "kernellab.lowering" if is_lowered else "the journal"
    # edits and the interface of its host code refer to it, so it is complete, and the last part to be omitted
    return [Part("code", source, text, rank=1 if is_lowered and not judged_before else 0)]


def by_rule(base: Base) -> bool:
    """Whether the code from which an answer starts is the rules' unchanged lowering."""
    return base.source is not None and base.lowered is not None and same_code(base.source, base.lowered)


def best_elsewhere(brief: CodeBrief, base: Base) -> Attempt | None:
    """The best attempt so far if its code differs from that from which an answer starts."""
    best = best_of(brief.history)
    if best is None or best.candidate is None or best.candidate.source.dsl != brief.target.dsl or base.source is None:
        return None
    return None if same_code(best.candidate.source, base.source) else best


def _best_parts(brief: CodeBrief, options: Options, base: Base) -> list[Part]:
    """The best code so far, which the model does not remember, if an answer starts from other code."""
    best = best_elsewhere(brief, base)
    if best is None or best.candidate is None or best.verdict is None or best.verdict.time is None:
        return []
    files = {n: t for n, t in bare(best.candidate.source).files.items() if not is_helper(n) and base.files.get(n) != t}
    shortened = {
        name: in_short(name, text, brief.sketch) for name, text in files.items() if best.sketch == brief.sketch
    }
    marked = not base.in_short and any(shortened[name] != files[name] for name in shortened)
    files |= shortened
    text = render(
        "coder", "best", number=brief.history.index(best) + 1, time=duration(best.verdict.time.median_ms),
        files=sorted(files.items()), fences={n: _FENCES.get("." + n.rpartition(".")[2], "") for n in files},
        lines=[] if "profile" in options.ablation | brief.ablation else hot_of_kernel(best), marked=marked,
    )  # fmt: skip
    # an answer may go on from it, so it is complete or omitted
    return [Part("best code", "the journal", text, rank=2)]


def _feedback(brief: CodeBrief, verdict: Verdict | None, others: bool, hot: list[str]) -> list[Part]:
    parts = []
    if verdict is not None and brief.previous is not None:
        # as shown in the prompt, so that a quoted line occurs in the file
        quoted = {name: in_short(name, text, brief.sketch) for name, text in brief.previous.files.items()}
        text, short = (
            render(
                "coder",
                "judged",
                lines=verdict_lines(verdict, quoted, brief.route.suggestion if brief.route else ""),
                error_map=shown,
                log=log,
                passed=verdict.passed,
                limited=bool(avoidable(verdict.conditions)),
                others=others,
                late=verdict.evidence is not None and verdict.evidence.signature in LATE,
                of_judge=is_of_judge(verdict.evidence),
                interpreted=brief.target.backend is Backend.INTERPRETER,
            )
            for shown, log in ((error_map(verdict), log_end(verdict)), ("", ""))
        )
        parts.append(Part("verdict on the last code", "the Verifier", text, rank=1, shorter=(short,), trims=True))
    if hot:
        parts.append(Part("time", "the judge's samples", render("coder", "hot", lines=hot), rank=3))
    if brief.history:
        forms = [history_text(brief.history, count, brief.route, verdict) for count in (None, _LAST_ROUNDS, 1)]
        full, *shorter = (render("coder", "history", history=form) for form in forms)
        parts.append(Part("history", "the journal", full, rank=5, shorter=tuple(shorter)))
    if brief.route is not None and (own_reason(brief.route) or brief.route.suggestion):
        parts.append(
            Part("route", "the Conductor", render("coder", "route", route=brief.route, judged=verdict is not None))
        )
    if brief.notes:
        parts.append(Part("notes", "people and agents", render("coder", "notes", notes=brief.notes)))
    return parts


def judged(brief: CodeBrief) -> Verdict | None:
    """The verdict on ``brief.previous``; None if it was not judged, or belongs to another sketch."""
    if brief.previous is None or brief.redesigned:
        return None
    for attempt in reversed(brief.history):
        if attempt.candidate is not None and same_code(attempt.candidate.source, brief.previous):
            return attempt.verdict
    return None


def _main_file(dsl: str, source: Source | None) -> str:
    """The file that contains the kernel: the one in the DSL's own language, otherwise the entry."""
    suffix = _SUFFIX.get(dsl)
    if source is None:
        return "kernel.py" if suffix is None else f"kernel{suffix}"
    return next((name for name in sorted(source.files) if suffix and name.endswith(suffix)), source.entry_file)
