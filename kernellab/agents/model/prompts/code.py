"""The Coder's prompt: the task, the sketch, the code from which the answer starts, what is needed to change it, and
the last fault.

If the sketch was lowered by rule, the prompt has the signatures of that code's helpers; otherwise the parts of the
DSL's API that the sketch needs. Each part is one function here; :func:`code_prompt` lists them in the prompt's order.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernellab.agents.briefs import CodeBrief, avoidable, own_reason
from kernellab.agents.model.expected.lines import expected_lines
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.code_base import (
    Base,
    base_of,
    best_elsewhere,
    by_rule,
    fence_of,
    judged,
    without_sketch,
)
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
from kernellab.agents.model.prompts.history import history_part
from kernellab.agents.model.prompts.manual_edits import diff_of
from kernellab.agents.model.prompts.marks import in_short
from kernellab.agents.model.prompts.memory import code_parts
from kernellab.agents.model.prompts.quotes import Library, apart, untitled
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
#: Share of the prompt's budget for the API's documents.
_API_SHARE = 0.2
#: The section of a DSL's suggestions that is included after an error.
_ERRORS = "Reading errors"
#: Maximum length of the Designer's rationale for a new sketch, in characters.
_DESIGN_CHARACTERS = 600


@dataclass(frozen=True)
class _Situation:
    """What the parts of one prompt are made from; ``verdict`` is that on the last code, None if it was not judged."""

    brief: CodeBrief
    library: Library
    options: Options
    base: Base
    verdict: Verdict | None
    #: The DSL's documents, if there are any.
    documents: DslDocuments | None

    @property
    def omitted(self) -> frozenset[str]:
        """The parts of the method that this prompt omits on purpose."""
        return self.options.ablation | self.brief.ablation

    @property
    def has_sketch(self) -> bool:
        return not without_sketch(self.brief, self.options)

    @property
    def is_put_back(self) -> bool:
        """Whether the answer starts from an earlier code than the last one, because no later one is better."""
        last = self.brief.history[-1].candidate if self.brief.history else None
        if self.verdict is None or last is None:
            return False
        return not same_code(last.source, self.base.source or last.source)


def code_prompt(brief: CodeBrief, library: Library, options: Options, base: Base | None = None) -> Prompt:
    """Return everything that the Coder receives, in at most ``options.token_budget`` tokens.

    Raises:
        PromptError: the task, the sketch and the code to fix are longer than the budget.
    """
    base = base or base_of(brief, options)
    situation = _Situation(brief, library, options, base, judged(brief), library.dsl(brief.target.dsl))
    parts = [
        *_stable_parts(situation),
        *_task_parts(situation),
        *(_sketch_parts(brief, base) if situation.has_sketch else []),
        *(_looked_up(situation) if base.lowered is None else _helper_parts(base)),
        *code_parts(brief),
        *_code_parts(situation),
        *_best_parts(situation),
        *_feedback(situation),
        *_reading_errors(situation.documents, situation.verdict),
        *_expected_parts(situation),
        Part("go", _FILE, render("coder", "go")),
    ]
    purpose = "edit" if brief.previous and not brief.redesigned else "code"
    return assemble(parts, options.token_budget, purpose=purpose)


def _stable_parts(situation: _Situation) -> list[Part]:
    """The role, the form of the answer, the DSL's documents and the chip: equal in every turn."""
    brief, base, documents = situation.brief, situation.base, situation.documents
    target, source = brief.target, base.source
    chip = situation.library.chip(target)
    is_interpreted = target.backend is Backend.INTERPRETER
    role = render(
        "coder", "role", dsl=documents.spec.title if documents else target.dsl, sketched=situation.has_sketch,
        entry=source.entry if source else "kernel", entry_file=source.entry_file if source else "kernel.py",
        lowered=base.lowered is not None, library=brief.allow_library,
        gated="gate" not in situation.omitted and not _unrun(brief),
        on_cores=target.chip.kind == "cpu" and not is_interpreted,
    )  # fmt: skip
    answer = render("coder", "answer", main_file=base.main_file, fence=fence_of(base.main_file))
    chip_text = render("coder", "chip", target=target, facts=chip.text, interpreted=is_interpreted)
    return [
        Part("role", _FILE, role, stable=True),
        Part("answer", _FILE, answer, stable=True),
        *_documents(documents, base),
        Part("chip", chip.source, chip_text, stable=True, rank=8, trims=True),
    ]


def _task_parts(situation: _Situation) -> list[Part]:
    brief, verdict = situation.brief, situation.verdict
    # the verdict, or the best code, already contains its figures
    has_figures = (verdict is not None and verdict.passed) or best_elsewhere(brief, situation.base) is not None
    lines = (*bound_lines(brief), *([] if has_figures else time_lines(brief)))
    task = render("coder", "task", task=brief.task, limits=limit_lines(brief))
    return [
        Part("task", f"task {brief.task.hash[:8]}", task),
        Part("bound", "task shapes x chip facts", render("coder", "bound", lines=lines), rank=3),
    ]


def _sketch_parts(brief: CodeBrief, base: Base) -> list[Part]:
    """The sketch with its values, and what the Designer changed in it."""
    text = render("coder", "sketch", numbered=numbered(brief.sketch), constexpr=sorted(brief.constexpr.items()))
    parts = [Part("sketch", "the Designer", text)]
    return parts + _redesign_parts(brief, base) if brief.redesigned else parts


def _helper_parts(base: Base) -> list[Part]:
    """The signatures of the helpers that lowered code calls."""
    page = helpers_page(base.files, base.files.get(base.main_file, ""))
    if not page.strip():
        return []
    spaced = any(is_helper(name) and "namespace kl " in text for name, text in base.files.items())
    text = render("coder", "helpers", page=page, fence=fence_of(base.main_file), spaced=spaced)
    return [Part("helpers", "kernellab.lowering", text, rank=4)]


def _expected_parts(situation: _Situation) -> list[Part]:
    """What the sketch computes at the first wrong element."""
    if not situation.has_sketch or "intermediates" in situation.omitted:
        return []
    expected = expected_lines(situation.brief, situation.verdict)
    text = render("coder", "expected", lines=expected) if expected else ""
    return [Part("expected values", "kernellab.sketch.run", text, rank=2, trims=True)]


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


def _looked_up(situation: _Situation) -> list[Part]:
    """The API's parts that the sketch and the last error need, and examples of the family."""
    brief, library, verdict, parts = situation.brief, situation.library, situation.verdict, list[Part]()
    dsl = brief.target.dsl
    error = " ".join(verdict_lines(verdict)) if verdict is not None and not verdict.passed else ""
    budget = int(situation.options.token_budget * _API_SHARE)
    api = library.api(dsl, operations_of(brief.sketch), error, budget)
    if api is not None:
        text = render("coder", "api", dsl=dsl, sketched=bool(brief.sketch.strip()), passages=[api])
        parts.append(Part("API", api.source, text, rank=4, trims=True))
    quotes = library.examples(dsl, brief.task, nearest=True) if "examples" not in situation.omitted else []
    if quotes:
        text = render("coder", "examples", passages=quotes)
        parts.append(Part("examples", ", ".join(quote.source for quote in quotes), text, rank=6))
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


def _code_parts(situation: _Situation) -> list[Part]:
    """The code from which the answer starts, or why there is none."""
    base, is_first = situation.base, situation.verdict is None
    if base.source is None:
        if not base.why_not_lowered:
            return []
        text = f"# No code by rule\nThe sketch could not be compiled by rule: {base.why_not_lowered}"
        return [Part("no lowering", "kernellab.lowering", text)]
    is_lowered = by_rule(base)
    work = lowered_work(situation.brief) if is_lowered and is_first else ""
    text = render(
        "coder", "base", title=_code_title(situation), files=sorted(base.shown.items()),
        hidden=sorted(set(base.files) - set(base.shown)), marked=bool(base.in_short), zeroed=base.zeroed,
        entry=base.source.entry_file, work=work, fences={name: fence_of(name) for name in base.shown},
    )  # fmt: skip
    source = "kernellab.lowering" if is_lowered else "the journal"
    # edits and the interface of its host code refer to it, so it is complete, and the last part to be omitted
    return [Part("code", source, text, rank=1 if is_lowered and is_first else 0)]


def _code_title(situation: _Situation) -> str:
    if situation.is_put_back:
        return "The best code so far, put back: no later one is better"
    if not by_rule(situation.base):
        return "Your last code"
    title = "Code that was compiled from the sketch by rule"
    return title if situation.verdict is not None else f"{title}: right where the sketch is; make it faster, or keep it"


def _best_parts(situation: _Situation) -> list[Part]:
    """The best code so far, which the model does not remember, if an answer starts from other code."""
    brief, base = situation.brief, situation.base
    best = best_elsewhere(brief, base)
    if best is None or best.candidate is None or best.verdict is None or best.verdict.time is None:
        return []
    files = {n: t for n, t in bare(best.candidate.source).files.items() if not is_helper(n) and base.files.get(n) != t}
    is_of_sketch = best.sketch == brief.sketch
    shown = {name: in_short(name, text, brief.sketch) if is_of_sketch else text for name, text in files.items()}
    is_marked = not base.in_short and shown != files
    text = render(
        "coder", "best", number=brief.history.index(best) + 1, time=duration(best.verdict.time.median_ms),
        files=sorted(shown.items()), fences={name: fence_of(name) for name in shown},
        lines=[] if "profile" in situation.omitted else hot_of_kernel(best), marked=is_marked,
    )  # fmt: skip
    # an answer may go on from it, so it is complete or omitted
    return [Part("best code", "the journal", text, rank=2)]


def _feedback(situation: _Situation) -> list[Part]:
    """The verdict on the last code, where its time goes, earlier rounds, the route, and people's notes."""
    brief, verdict, parts = situation.brief, situation.verdict, list[Part]()
    if verdict is not None and brief.previous is not None:
        parts.append(_verdict_part(situation, verdict, brief.previous))
    if hot := hot_text(brief, situation.options.ablation):
        parts.append(Part("time", "the judge's samples", render("coder", "hot", lines=hot), rank=3))
    if brief.history:
        parts.append(history_part("coder", brief.history, brief.route, verdict))
    if brief.route is not None and (own_reason(brief.route) or brief.route.suggestion):
        text = render("coder", "route", route=brief.route, judged=verdict is not None)
        parts.append(Part("route", "the Conductor", text))
    if brief.notes:
        parts.append(Part("notes", "people and agents", render("coder", "notes", notes=brief.notes)))
    return parts


def _verdict_part(situation: _Situation, verdict: Verdict, previous: Source) -> Part:
    """The verdict; its shorter form is without the map of errors and the log."""
    brief = situation.brief
    # as shown in the prompt, so that a quoted line occurs in the file
    quoted = {name: in_short(name, text, brief.sketch) for name, text in previous.files.items()}

    def form(map_text: str, log: str) -> str:
        return render(
            "coder", "judged", error_map=map_text, log=log, passed=verdict.passed,
            lines=verdict_lines(verdict, quoted, brief.route.suggestion if brief.route else ""),
            limited=bool(avoidable(verdict.conditions)), others=situation.is_put_back or by_rule(situation.base),
            late=verdict.evidence is not None and verdict.evidence.signature in LATE,
            of_judge=is_of_judge(verdict.evidence), interpreted=brief.target.backend is Backend.INTERPRETER,
        )  # fmt: skip

    full, short = form(error_map(verdict), log_end(verdict)), form("", "")
    return Part("verdict on the last code", "the Verifier", full, rank=1, shorter=(short,), trims=True)
