"""The Designer that a model plays: its sketch is parsed, checked and run before anyone writes code from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief, DesignReply, changed_defaults, design_of
from kernellab.agents.model.conversation import REPEATED_REMEDY, REPEATS, Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.design import design_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.reading import (
    SKETCH_HEAD,
    AnswerError,
    NoAnswer,
    SketchAnswer,
    fences,
    finish,
    parse_done,
    parse_sketch,
)
from kernellab.errors import DesignError, counted
from kernellab.records import Author, GateResult, GateState, Route
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

#: findings that go back at once
_MOST = 8
#: a reply of words alone is asked for again so often; then it is shown, in so many characters
_REFUSALS, _QUOTED = 1, 240
#: more than the gate's own: a request to a model takes longer, and a fault that is found now saves a round
_GATE_SECONDS = 2.0
_WORTH = {GateState.RIGHT: 2, GateState.NOT_RUNNABLE: 1, GateState.WRONG: 0}


class ModelDesigner:
    """Asks a model for a sketch, and for a fixed one while the gate finds faults in it.

    ``talk`` is a :class:`kernellab.models.Talk`; ``knowledge`` may be None, then only what the code itself knows of
    the language and the chip is quoted.
    """

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._library = Library(knowledge)
        self._options = options or Options.within(talk)

    def prompt(self, brief: DesignBrief) -> Prompt:
        """What the model will be sent first. Raises PromptError when it does not fit."""
        return design_prompt(brief, self._library, self._options)

    def design(self, brief: DesignBrief) -> DesignReply | Route:
        """The first sketch that the gate finds right; when the repairs are used up, the best that came.

        A route to FINISH where the model knows no better design than one that has passed.

        Raises:
            ModelError: the model could not be asked, or its replies were cut or filtered.
            DesignError: no reply held a sketch, or every revision broke a pinned line (named).
            PromptError: the prompt does not fit its budget.
        """
        conversation = Conversation(self._talk, self.prompt(brief), self._options)
        text = conversation.ask()
        done = parse_done(text)
        if brief.passed and (done is not None or _unchanged(text, brief)):
            return done or finish("The Designer gave the same sketch again: it has no better one.")
        return sketch_by(conversation, text, brief, self._options)


@dataclass(frozen=True)
class Judged:
    """A reply after the gate: ``findings`` are empty when nothing has to be fixed."""

    answer: SketchAnswer | None
    gate: GateResult | None
    problem: str = ""
    findings: tuple[str, ...] = ()
    breach: str = ""
    #: a reply of words alone, such as a refusal
    words: str = ""

    @property
    def worth(self) -> int:
        if self.answer is None or self.breach:
            return -1
        return _WORTH[self.gate.state] if self.gate else 0


def sketch_by(conversation: Conversation, text: str, brief: DesignBrief, options: Options) -> DesignReply:
    """The sketch that a conversation ends with, fixed in as many rounds as ``options.repairs`` allows."""
    gated = "gate" not in options.ablation | brief.ablation
    best = judged = judge_sketch(text, brief, gated, brief.previous)
    meant = judged.answer
    shown = brief.previous
    rounds = words_alone = 0
    while judged.findings and rounds < options.repairs:
        words_alone = words_alone + 1 if judged.words else 0
        if words_alone > _REFUSALS:
            break
        rounds += 1
        request = render("designer", "repair", problem=judged.problem, findings=judged.findings[:_MOST])
        # a reply that cannot be used leaves the last one that can for edits
        shown = judged.answer.sketch if judged.answer else shown
        text = conversation.again(request, "repair-sketch")
        if conversation.repeated:
            break
        judged = judge_sketch(text, brief, gated, shown)
        if judged.worth >= best.worth:
            best = judged
            if meant is None or (best.answer is not None and _launches(best.answer) != _launches(meant)):
                meant = best.answer
    if best.answer is None:
        said = f'It answers: "{shorten(judged.words, _QUOTED)}"' if judged.words else best.problem
        if conversation.repeated:
            raise DesignError(f"{REPEATS} {said}", REPEATED_REMEDY)
        raise DesignError(
            f"None of the model's {rounds + 1} replies holds a sketch. {said}",
            "Look at its replies, give the role to another model or to the rules, or write the sketch.",
        )
    if best.breach:
        raise DesignError(
            f"The model's revisions change what a person has pinned: {best.breach}",
            "Unpin the line, or write the revision yourself.",
        )
    answer = best.answer
    fixed = f"Fixed in {counted(rounds, 'round')}." if rounds and not best.findings else ""
    open_ = f"Still open after {counted(rounds, 'repair')}: {best.findings[0]}" if best.findings and rounds else ""
    open_ = f"{REPEATS} {open_} {REPEATED_REMEDY}" if conversation.repeated else open_
    # a repair says what it repairs; what the design is meant for stands in the first reply that has its launches
    words = dict.fromkeys(filter(None, (meant.rationale if meant else "", answer.rationale, fixed, open_)))
    return DesignReply(answer.sketch, answer.constexpr or {}, " ".join(words), answer.claims)


def _launches(answer: SketchAnswer) -> int:
    """How many sketches an answer holds."""
    return len(SKETCH_HEAD.findall(answer.sketch))


def judge_sketch(text: str, brief: DesignBrief, gated: bool = True, shown: str | None = None) -> Judged:
    """What is wrong with a reply, in findings that its author can act on; ``shown`` is the sketch that it may edit."""
    if parse_done(text) is not None:
        return Judged(None, None, "No kernel has passed yet, so the work is not done.", ("Write a sketch.",))
    try:
        answer = parse_sketch(text, shown)
    except AnswerError as error:
        words = text if isinstance(error, NoAnswer) and not fences(text) else ""
        return Judged(None, None, "The reply could not be used.", error.findings, words=words)
    answer = _only_known(answer)
    breaches = _breaches(brief.previous, answer.sketch)
    if breaches:
        return Judged(answer, None, "The sketch changes lines that must stay.", breaches, breaches[0])
    if not gated:
        return Judged(answer, None)
    if brief.route is not None and _same_design(answer, brief):
        return Judged(
            answer, None, "The sketch and its values are the same as before, which was sent back.",
            ("Nothing has changed in it.",),
        )  # fmt: skip
    result = gate_sketch(answer.sketch, brief.task, brief.target, answer.constexpr or {})
    lines = answer.sketch.splitlines()
    found = tuple(f"{_at(d.line, lines)}: {d.code} {d.message} {d.remedy}".strip() for d in result.diagnostics
                  if d.severity == "error")  # fmt: skip
    if result.state is GateState.RIGHT or (result.state is GateState.NOT_RUNNABLE and not found):
        return Judged(answer, result)
    if found:
        return Judged(answer, result, "The sketch has faults.", found)
    warnings = tuple(f"{_at(d.line, lines)}: {d.message} {d.remedy}".strip() for d in result.diagnostics)
    # a sketch whose sizes or outputs are not the task's has run on nothing
    problem = "but it does not compute the reference" if result.cases else "but not run on this task"
    problem = f"The sketch can be read, {problem}."
    return Judged(answer, result, problem, (result.reason, *warnings))


def _at(number: int, lines: Sequence[str]) -> str:
    """``line 7 (`load(...)`)``: a line by its number and its text, so that no copy of the sketch is needed."""
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number} (`{text}`)" if text else f"line {number}"


def gate_sketch(sketch: str, task: Task, target: Target, constexpr: dict[str, int | float]) -> GateResult:
    """The sketch gate's answer, with some patience."""
    from kernellab.sketch.gate import gate

    return gate(sketch, task, chip=target.chip, constexpr=constexpr, seconds=_GATE_SECONDS)


def _only_known(answer: SketchAnswer) -> SketchAnswer:
    """The answer without values for constexprs that its sketch does not declare: they say nothing."""
    from kernellab.sketch.check import check

    program = check(answer.sketch).program
    if program is None or not answer.constexpr:
        return answer
    names = {c.name for c in program.constexprs}
    kept = {k: v for k, v in answer.constexpr.items() if k in names}
    return SketchAnswer(answer.sketch, answer.rationale, kept, answer.claims)


def _breaches(previous: str | None, sketch: str) -> tuple[str, ...]:
    from kernellab.sketch.syntax.pins import check_pins

    if not previous:
        return ()
    return tuple(f"line {d.line}: {d.message} {d.remedy}" for d in check_pins(previous, sketch, Author.MODEL))


def _unchanged(text: str, brief: DesignBrief) -> bool:
    """Is the reply the design that the work was sent back with?"""
    try:
        return _same_design(parse_sketch(text, brief.previous), brief)
    except AnswerError:
        return False


def _same_design(answer: SketchAnswer, brief: DesignBrief) -> bool:
    """The same sketch with the same values of its tunables; another value is another design."""
    if brief.previous is None:
        return False
    before, chosen = brief.previous_constexpr, changed_defaults(brief.previous, answer.sketch)
    return design_of(answer.sketch, {**before, **chosen, **(answer.constexpr or {})}) == design_of(
        brief.previous, before
    )
