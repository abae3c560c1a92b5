"""All about the turn that is looked at: a ``Detail`` of the protocol."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from kernellab.errors import counted
from kernellab.models.exchanges import Exchange
from kernellab.models.ledger import reported
from kernellab.notebook import protocol
from kernellab.notebook.answers import ExchangeText, StepView
from kernellab.notebook.language.pins import pinned_lines
from kernellab.notebook.views.at_turn import looked_at, verdict_turn
from kernellab.notebook.views.rows import tokens
from kernellab.notebook.views.verdict import stage_rows, verdict_view
from kernellab.records import Diagnostic, GateResult, Role, StageResult
from kernellab.session.record.records import ClaimCheck, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.record.view import stopped
from kernellab.target import Backend

#: sources of a prompt's sections that are documents or the memory
_REMEMBERED = ("language/", "dsl/", "patterns/", "hardware/", "memory")


def detail(
    state: State,
    shown: str,
    running: Mapping[str, Sequence[StageResult]] | None = None,
    claims: Callable[[str], Sequence[ClaimCheck]] | None = None,
) -> protocol.Detail:
    """``running`` are the stages that a running verification has behind it, by turn; ``claims`` checks a turn's."""
    at = looked_at(state, shown)
    turn = state.turns.get(at or "")
    designed = state.sketch_turn(at) if at else None
    gate = designed.gate if designed else None
    verified = verdict_turn(state, at) if at else None
    verdict = verified.verdict if verified else None
    talked = state.exchanges(at) if at else ()
    return {
        "turn": at,
        "stages": _stages(turn, verified, running or {}),
        "judged": verified.number if verdict and verified else None,
        "verdict": verdict_view(verdict, uncounted(state, verified)) if verdict and verified else None,
        "gate": gate_view(gate) if gate else None,
        "diagnostics": [diagnostic_view(d, (designed.sketch or "") if designed else "") for d in gate.diagnostics]
        if gate
        else [],
        "rationale": turn.rationale if turn else "",
        "claims": _claims(turn, claims) if turn else [],
        "stopped": stopped(turn) if turn and turn.error else "",
        "error": turn.error if turn else "",
        "remedy": turn.remedy if turn else "",
        "exchanges": [exchange_head(e) for e in talked],
        "memory": [*reminders(turn), *memory(talked)],
        "pins": pinned_lines(designed.sketch) if designed and designed.sketch else [],
    }


def uncounted(state: State, verified: Turn) -> str:
    """Why a GPU's counters of a kernel that passed were not read, with the remedy; "" where none were to be read."""
    verdict = verified.verdict
    if verdict is None or not verdict.passed or verdict.environment.backend != Backend.CUDA.value:
        return ""
    if state.created.counters:
        return verified.rationale
    if state.created.target:
        return "A GPU's counters are read on this machine only, and another one judged this kernel."
    return (
        "The GPU's counters were not read. Begin the session with --counters, which lets ncu run its kernels with your "
        "rights."
    )


def _stages(turn: Turn | None, verified: Turn | None, running: Mapping[str, Sequence[StageResult]]) -> list[Any]:
    if turn is not None and turn.role is Role.VERIFIER and turn.state is TurnState.RUNNING:
        return stage_rows(running.get(turn.id, ()), running=True)
    return stage_rows(verified.verdict.stages) if verified and verified.verdict else []


def _claims(turn: Turn, check: Callable[[str], Sequence[ClaimCheck]] | None) -> list[protocol.Claim]:
    if check is None:
        return [{"text": text, "holds": None, "why": ""} for text in turn.claims]
    return [{"text": f.text, "holds": f.holds, "why": f.why} for f in check(turn.id)] if turn.claims else []


def gate_view(gate: GateResult) -> protocol.GateView:
    return {"state": gate.state.value, "reason": gate.reason, "cases": gate.cases, "max_error": gate.max_error}


def diagnostic_view(diagnostic: Diagnostic, text: str = "") -> protocol.Diagnostic:
    """With a quick fix where the checker proposes one and ``text`` shows what it replaces: that alone is marked."""
    place, fix = _fix(diagnostic, text.split("\n"))
    return cast("protocol.Diagnostic", {**diagnostic.model_dump(mode="json"), **place, "fix": fix})


def _fix(diagnostic: Diagnostic, lines: Sequence[str]) -> tuple[dict[str, int], str | None]:
    """Where the quick fix goes, in columns from 1, and its text; no place and None where there is none."""
    line = lines[diagnostic.line - 1] if diagnostic.line <= len(lines) else ""
    fix = diagnostic.fix
    if fix is None:
        return {}, None
    pattern = rf"(?<![\w.]){re.escape(fix.replaces)}" + (r"\[[^\]]*\]" if fix.subscript else r"(?![\w.])")
    end = diagnostic.end_col if diagnostic.end_col and diagnostic.end_line == diagnostic.line else len(line) + 1
    match = re.compile(pattern).search(line, diagnostic.col - 1, end - 1)
    if match is None:
        return {}, None
    return {"col": match.start() + 1, "end_line": diagnostic.line, "end_col": match.end() + 1}, fix.text


def exchange_head(exchange: Exchange) -> protocol.ExchangeHead:
    usage, token_count = exchange.usage, tokens([exchange])
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    # what was cut off or refused before the answer: its tokens are among these
    tries = f", {counted(exchange.attempts, 'try', 'tries')}" if exchange.attempts > 1 else ""
    figures = f"{usage.input_tokens:,}{cached} in, {usage.output_tokens:,} out" if token_count else ""
    return {
        "id": exchange.id,
        "role": exchange.role.value,
        "purpose": exchange.purpose,
        "model": exchange.model,
        "finish": exchange.finish.value,
        "error": exchange.error,
        "tokens": f"{reported(figures, token_count, usage.untold)}{tries}".removeprefix(", "),
        "seconds": round(usage.seconds, 2),
        "recorded": f"recorded on {exchange.recorded_at}" if exchange.recorded_at else "",
    }


def exchange_text(exchange: Exchange) -> ExchangeText:
    """``ExchangeText``: what was said, word for word."""
    return {
        "head": exchange_head(exchange),
        "messages": [{"role": m.role, "content": m.content} for m in exchange.messages],
        "reply": exchange.reply,
        "reasoning": exchange.reasoning,
        "steps": [
            cast(StepView, {**s.model_dump(exclude={"started"}), "seconds": round(s.seconds, 2)})
            for s in exchange.steps
        ],
        "sections": [
            {"name": s.name, "source": s.source, "tokens": s.tokens, "note": s.note} for s in exchange.sections
        ],
    }


def reminders(turn: Turn | None) -> list[protocol.Remembered]:
    """The kernels that the turn was told of, or began from, with their scores."""
    return [
        {
            "title": f"{r.name}{' (begun from it)' if r.taken else ''}",
            "text": f"{r.why}\nscore {r.score:.2f}: computation {r.logic:.2f}, shape {r.shape:.2f}, use {r.value:.2f}",
            "why": f"memory: {r.id}",
        }
        for r in (turn.remembered if turn else ())
    ]


def memory(exchanges: Sequence[Exchange]) -> list[protocol.Remembered]:
    """What the prompts took from documents and from memory, each once."""
    entries: dict[str, protocol.Remembered] = {}
    for exchange in exchanges:
        for section in exchange.sections:
            if section.source.startswith(_REMEMBERED):
                why = f"{section.tokens:,} tokens of the prompt{'; ' if section.note else ''}{section.note}"
                entries.setdefault(section.name, {"title": section.name, "text": section.source, "why": why})
    return list(entries.values())
