"""The Analyst that a model plays: a few sentences from the record, whose numbers are checked against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernellab.agents.briefs import AnalyseBrief, AnalyseReply
from kernellab.agents.model.conversation import Conversation
from kernellab.agents.model.options import Options
from kernellab.agents.model.prompts.assembly import Part, Prompt, assemble
from kernellab.agents.model.prompts.facts import verdict_figures
from kernellab.agents.model.prompts.history import history_text
from kernellab.agents.model.prompts.templates import render
from kernellab.agents.model.reply.claims import check_claims
from kernellab.agents.rules.analyst import RulesAnalyst
from kernellab.records import Author

if TYPE_CHECKING:
    from kernellab.knowledge import Knowledge
    from kernellab.models import Talk

_FILE = "prompts/analyst.j2"

ANALYSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"summary": {"type": "string"}, "claims": {"type": "array", "items": {"type": "string"}}},
    "required": ["summary", "claims"],
    "additionalProperties": False,
}


class ModelAnalyst:
    """Asks a model for an explanation. Sentences that contradict the record are returned once, then omitted."""

    author = Author.MODEL

    def __init__(self, talk: Talk, knowledge: Knowledge | None = None, options: Options | None = None) -> None:
        self._talk = talk
        self._options = options or Options.within(talk, 4_000)

    def prompt(self, brief: AnalyseBrief) -> Prompt:
        """The model's prompt. Raises PromptError if it does not fit."""
        return analyse_prompt(brief, self._options)

    def analyse(self, brief: AnalyseBrief) -> AnalyseReply:
        """Return sentences whose numbers are in the record; other sentences are omitted.

        Raises:
            ModelError: the request failed, or the answer was unusable.
            PromptError: the record does not fit into the budget.
        """
        conversation = Conversation(self._talk, self.prompt(brief), self._options)
        data = conversation.ask_json()
        wrong = wrong_sentences(data, brief)
        if wrong and self._options.repairs:
            findings = [f"{sentence} ({reason})" for sentence, reason in wrong]
            data = conversation.again_json(render("analyst", "repair", findings=findings))
            wrong = wrong_sentences(data, brief)
        refused = {sentence for sentence, _ in wrong}
        accepted = [s for s in sentences(str(data["summary"])) if s not in refused]
        if not accepted:
            # no sentence of the model is supported by the record; the rules' text is
            return RulesAnalyst().analyse(brief)
        return AnalyseReply(" ".join(accepted), tuple(str(c) for c in data["claims"] if str(c).strip() not in refused))


def analyse_prompt(brief: AnalyseBrief, options: Options) -> Prompt:
    """The record of a session, for a model or a person to explain."""
    question = render("analyst", "question", question=brief.question) if brief.question else ""
    parts = [
        Part("role", _FILE, render("analyst", "role"), stable=True),
        Part("answer", _FILE, render("analyst", "answer"), stable=True),
        Part("task", f"task {brief.task.hash[:8]}", render("analyst", "task", task=brief.task, target=brief.target)),
        Part("record", "the journal", render("analyst", "record", facts=record_facts(brief).items())),
        Part(
            "history", "the journal", render("analyst", "history", history=history_text(brief.history)),
            rank=2, shorter=(render("analyst", "history", history=history_text(brief.history, 4)),),
        ),
        Part("question", "a person", question),
        Part("notes", "people and agents", render("analyst", "notes", notes=brief.notes) if brief.notes else ""),
        Part("go", _FILE, render("analyst", "go")),
    ]  # fmt: skip
    return assemble(
        parts, options.token_budget, purpose="analyse", schema=ANALYSE_SCHEMA, schema_name="analysis"
    )  # fmt: skip


def record_facts(brief: AnalyseBrief) -> dict[str, object]:
    """The record's facts by name: counts, the best kernel's figures, and the remaining budget."""
    verdicts = [a.verdict for a in brief.history if a.verdict is not None]
    facts: dict[str, object] = {
        "rounds": len(brief.history),
        "sketches": len({a.sketch for a in brief.history if a.sketch}),
        "kernels verified": len(verdicts),
        "kernels passed": sum(v.passed for v in verdicts),
    }
    if brief.best is not None:
        for line in verdict_figures(brief.best):
            name, _, value = line.partition(": ")
            facts[f"best kernel, {name}"] = value
        if brief.best_turn is not None:
            facts["best kernel, turn"] = brief.best_turn
    if brief.headroom is not None:
        facts["best kernel, share of the bound reached"] = f"{100 * brief.headroom:.3g} %"
    if brief.budget_left:
        facts["budget left"] = brief.budget_left
    return facts


def wrong_sentences(data: dict[str, Any], brief: AnalyseBrief) -> list[tuple[str, str]]:
    """The sentences of an answer, including its claims, whose numbers are not in the record, with the reasons."""
    facts = {
        **record_facts(brief), "rounds in words": history_text(brief.history), "task": brief.task.signature,
        "chip": brief.target.chip.name, "question": brief.question,
    }  # fmt: skip
    statements = [*sentences(str(data["summary"])), *(str(c).strip() for c in data["claims"])]
    return [(s, reason) for s, holds, reason in check_claims(list(dict.fromkeys(statements)), facts) if holds is False]


def sentences(text: str) -> list[str]:
    """Split a text into sentences; a point inside a number does not end one."""
    import re

    return [s.strip() for s in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", text.strip()) if s.strip()]
