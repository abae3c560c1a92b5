"""The Designer that a model plays: its sketch is parsed, checked and run before code is written from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import TYPE_CHECKING

from kernellab.agents.briefs import DesignBrief, DesignReply
from kernellab.agents.designs import changed_defaults, design_of
from kernellab.agents.model.conversation import REPEATED_REMEDY, REPEATS, Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Prompt
from kernellab.agents.model.prompts.design import design_prompt
from kernellab.agents.model.prompts.quotes import Library
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.answers import AnswerError, NoAnswer
from kernellab.agents.model.reply.blocks import fences
from kernellab.agents.model.reply.sketches import SKETCH_HEAD, SketchAnswer, finish, parse_done, parse_sketch
from kernellab.errors import DesignError, counted
from kernellab.records import Author, GateResult, GateState, Route
from kernellab.target import Target
from kernellab.task import Task

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

#: Maximum number of findings in one request.
_MOST = 8
#: Number of repeated requests after a reply with only prose; then it is shown, with this many characters.
_REFUSALS, _QUOTED = 1, 240
#: Longer than the gate's own limit: a request to a model takes longer, and a fault found now saves a round.
_GATE_SECONDS = 2.0
_WORTH = {GateState.RIGHT: 2, GateState.NOT_RUNNABLE: 1, GateState.WRONG: 0}


class ModelDesigner:
    """Asks a model for a sketch, and for a fixed one while the gate finds faults in it.

    ``talk`` is a :class:`kernellab.models.Talk`. If ``knowledge`` is None, only the code's own facts about the language
    and the chip are quoted.
    """

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._library = Library(knowledge)
        self._options = options or Options.within(talk)

    def prompt(self, brief: DesignBrief) -> Prompt:
        """The model's first prompt. Raises PromptError if it does not fit."""
        return design_prompt(brief, self._library, self._options)

    def design(self, brief: DesignBrief) -> DesignReply | Route:
        """Return the first sketch that the gate finds right; when the repairs are used up, the best one.

        Return a route to FINISH if the model knows no better design than one that has passed.

        Raises:
            ModelError: the request failed, or the replies were cut or filtered.
            DesignError: no reply contained a sketch, or every revision broke a pinned line (named).
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
    """A reply after the gate: ``findings`` are empty if nothing must be fixed."""

    answer: SketchAnswer | None
    gate: GateResult | None
    problem: str = ""
    findings: tuple[str, ...] = ()
    breach: str = ""
    #: A reply with only prose, such as a refusal.
    words: str = ""

    @property
    def worth(self) -> int:
        if self.answer is None or self.breach:
            return -1
        return _WORTH[self.gate.state] if self.gate else 0


def sketch_by(conversation: Conversation, text: str, brief: DesignBrief, options: Options) -> DesignReply:
    """Return the final sketch of a conversation, fixed in at most ``options.repairs`` rounds."""
    is_gated = "gate" not in options.ablation | brief.ablation
    best = judged = judge_sketch(text, brief, is_gated, brief.previous)
    original = judged.answer
    shown_sketch = brief.previous
    rounds = prose_replies = 0
    while judged.findings and rounds < options.repairs:
        prose_replies = prose_replies + 1 if judged.words else 0
        if prose_replies > _REFUSALS:
            break
        rounds += 1
        request = render("designer", "repair", problem=judged.problem, findings=judged.findings[:_MOST])
        # after an unusable reply, edits refer to the last usable one
        shown_sketch = judged.answer.sketch if judged.answer else shown_sketch
        text = conversation.again(request, "repair-sketch")
        if conversation.repeated:
            break
        judged = judge_sketch(text, brief, is_gated, shown_sketch)
        if judged.worth >= best.worth:
            best = judged
            if original is None or (best.answer is not None and _launches(best.answer) != _launches(original)):
                original = best.answer
    if best.answer is None:
        problem = f'It answers: "{shorten(judged.words, _QUOTED)}"' if judged.words else best.problem
        if conversation.repeated:
            raise DesignError(f"{REPEATS} {problem}", REPEATED_REMEDY)
        raise DesignError(
            f"None of the model's {rounds + 1} replies holds a sketch. {problem}",
            "Look at its replies, give the role to another model or to the rules, or write the sketch.",
        )
    if best.breach:
        raise DesignError(
            f"The model's revisions change what a person has pinned: {best.breach}",
            "Unpin the line, or write the revision yourself.",
        )
    answer = best.answer
    fixed_note = f"Fixed in {counted(rounds, 'round')}." if rounds and not best.findings else ""
    open_note = f"Still open after {counted(rounds, 'repair')}: {best.findings[0]}" if best.findings and rounds else ""
    open_note = f"{REPEATS} {open_note} {REPEATED_REMEDY}" if conversation.repeated else open_note
    # a repair's rationale is about the repair; the design's is in the first reply with the same launches
    sentences = dict.fromkeys(
        filter(None, (original.rationale if original else "", answer.rationale, fixed_note, open_note))
    )
    return DesignReply(answer.sketch, answer.constexpr or {}, " ".join(sentences), answer.claims)


def _launches(answer: SketchAnswer) -> int:
    """The number of sketches in an answer."""
    return len(SKETCH_HEAD.findall(answer.sketch))


def judge_sketch(text: str, brief: DesignBrief, gated: bool = True, shown: str | None = None) -> Judged:
    """Return a reply's faults as findings for its author; ``shown`` is the sketch that it may edit."""
    if parse_done(text) is not None:
        return Judged(None, None, "No kernel has passed yet, so the work is not done.", ("Write a sketch.",))
    try:
        answer = parse_sketch(text, shown)
    except AnswerError as error:
        prose = text if isinstance(error, NoAnswer) and not fences(text) else ""
        return Judged(None, None, "The reply could not be used.", error.findings, words=prose)
    answer = _only_known(answer)
    breaches = _breaches(brief, answer.sketch)
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
    errors = tuple(f"{_at(d.line, lines)}: {d.code} {d.message} {d.remedy}".strip() for d in result.diagnostics
                  if d.severity == "error")  # fmt: skip
    if result.state is GateState.RIGHT or (result.state is GateState.NOT_RUNNABLE and not errors):
        return Judged(answer, result)
    if errors:
        return Judged(answer, result, "The sketch has faults.", errors)
    warnings = tuple(f"{_at(d.line, lines)}: {d.message} {d.remedy}".strip() for d in result.diagnostics)
    # a sketch whose sizes or outputs differ from the task's was not run
    problem = "but it does not compute the reference" if result.cases else "but not run on this task"
    problem = f"The sketch can be read, {problem}."
    return Judged(answer, result, problem, (result.reason, *warnings))


def _at(number: int, lines: Sequence[str]) -> str:
    """A line by its number and text, ``line 7 (`load(...)`)``, so that no copy of the sketch is needed."""
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number} (`{text}`)" if text else f"line {number}"


def gate_sketch(sketch: str, task: Task, target: Target, constexpr: dict[str, int | float]) -> GateResult:
    """The sketch gate's result, with a longer time limit."""
    from kernellab.sketch.gate import gate

    return gate(sketch, task, chip=target.chip, constexpr=constexpr, seconds=_GATE_SECONDS)


def _only_known(answer: SketchAnswer) -> SketchAnswer:
    """Return the answer without values for constexprs that its sketch does not declare."""
    from kernellab.sketch.check import check

    program = check(answer.sketch).program
    if program is None or not answer.constexpr:
        return answer
    names = {c.name for c in program.constexprs}
    declared = {k: v for k, v in answer.constexpr.items() if k in names}
    return SketchAnswer(answer.sketch, answer.rationale, declared, answer.claims)


def _breaches(brief: DesignBrief, sketch: str) -> tuple[str, ...]:
    from kernellab.sketch.syntax.pins import check_pins

    if not brief.previous:
        return ()
    found = check_pins(brief.previous, sketch, Author.MODEL, brief.held)
    return tuple(f"line {d.line}: {d.message} {d.remedy}" for d in found)


def _unchanged(text: str, brief: DesignBrief) -> bool:
    """Whether the reply is the design that was sent back."""
    try:
        return _same_design(parse_sketch(text, brief.previous), brief)
    except AnswerError:
        return False


def _same_design(answer: SketchAnswer, brief: DesignBrief) -> bool:
    """Whether it is the same sketch with the same values of its tunables."""
    if brief.previous is None:
        return False
    earlier, changed = brief.previous_constexpr, changed_defaults(brief.previous, answer.sketch)
    return design_of(answer.sketch, {**earlier, **changed, **(answer.constexpr or {})}) == design_of(
        brief.previous, earlier
    )
