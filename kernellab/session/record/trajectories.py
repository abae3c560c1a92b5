"""What models were asked and answered, and what came of it: one row an exchange, in the chat form of fine-tuning tools.

Such tools learn from the assistant's words: an exchange that failed, was cut off or filtered has none and no row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernellab.errors import SessionError
from kernellab.models import scrub
from kernellab.records import Exchange, Finish, Role, Verdict
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.session.turn.claims import came_of

#: written where no one said under which licence the prompts and replies may be used
UNSPECIFIED = "unspecified"


def rows(state: State, licence: str = UNSPECIFIED) -> Iterator[dict[str, Any]]:
    """One row for each exchange of a session that was answered, oldest first.

    ``messages`` end with the reply as the assistant's. ``sketch``, ``source`` and ``verdict`` are those that the turn
    led to (the first below it). Times are in ms, ``seconds`` is the exchange's wall time.
    """
    best = state.best()
    for turn_id, exchanges in state.said.items():
        turn = state.turns.get(turn_id)
        answered = [e for e in exchanges if _is_answer(e)]
        for number, exchange in enumerate(answered, 1):
            yield {
                "messages": _messages(exchange),
                "reasoning": exchange.reasoning,
                "schema": json.dumps(exchange.schema_, sort_keys=True) if exchange.schema_ else "",
                "sections": [s.model_dump(mode="json") for s in exchange.sections],
                "role": exchange.role.value,
                "purpose": exchange.purpose,
                "finish": exchange.finish.value,
                "error": exchange.error,
                "last_of_turn": number == len(answered),
                "usage": exchange.usage.model_dump(mode="json"),
                "seconds": exchange.usage.seconds,
                **_outcome(state, turn),
                "solved": best is not None,
                "best_speedup": best.verdict.speedup if best else None,
                "operator": state.created.name,
                "task": state.created.text,
                "dsl": state.target.dsl if state.target else state.created.dsl or "",
                "backend": state.target.backend if state.target else "",
                "chip": state.target.chip if state.target else "",
                "licence": licence,
                "provenance": _provenance(state, turn, exchange),
            }


def unanswered(state: State) -> int:
    """How many of a session's exchanges have no row."""
    return sum(not _is_answer(e) for exchanges in state.said.values() for e in exchanges)


def _is_answer(exchange: Exchange) -> bool:
    return exchange.finish is Finish.STOP and bool(exchange.reply) and not exchange.error


def write_trajectories(path: Path, found: Iterable[dict[str, Any]]) -> int:
    """Write rows as JSON lines or, where the name ends in .parquet, as Parquet; how many there were.

    Raises:
        SessionError: another ending, or the file cannot be written.
    """
    table = list(found)
    if path.suffix not in (".jsonl", ".parquet"):
        raise SessionError(
            f"Trajectories are not written as {path.suffix or path.name}.", "Name it .jsonl or .parquet."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jsonl":
            lines = [json.dumps(row, ensure_ascii=False) for row in table]
            path.write_text(scrub("".join(f"{line}\n" for line in lines)), encoding="utf-8")
        else:
            _write_parquet(path, json.loads(scrub(json.dumps(table))))
    except OSError as error:
        raise SessionError(f"{path} cannot be written: {error.strerror or error}.", "Give another path.") from None
    return len(table)


def _messages(exchange: Exchange) -> list[dict[str, Any]]:
    """With calls of tools in the form of chat completions, as trainers read them."""
    said: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in exchange.messages]
    for number, step in enumerate(s for s in exchange.steps if s.kind == "tool"):
        id = f"call_{number}"
        function = {"name": step.title, "arguments": step.text}
        said.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]}
        )
        said.append({"role": "tool", "content": step.result, "tool_call_id": id})
    return [*said, {"role": "assistant", "content": exchange.reply}]


def _outcome(state: State, turn: Turn | None) -> dict[str, Any]:
    """What the turn led to; empty fields where it led to nothing."""
    candidate = turn.candidate if turn else None
    if turn is not None and candidate is None and turn.role is Role.CONDUCTOR:
        candidate = state.candidate(turn.id)
    designed = state.sketch_turn(turn.id) if turn else None
    gate = turn.gate if turn else None
    verdict = came_of(state, turn) if turn else None
    return {
        "turn": turn.number if turn else 0,
        "turn_state": turn.state.value if turn else "",
        "turn_seconds": turn.seconds if turn else 0.0,
        "sketch": (designed.sketch or "") if designed else "",
        "gate": gate.state.value if gate else "",
        "source": _files(candidate.source.files) if candidate else [],
        "route": turn.route.to.value if turn and turn.route else "",
        "verdict": _verdict(verdict),
    }


def _files(files: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "text": text} for name, text in files.items()]


def _verdict(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    eager, compiled = verdict.against("eager"), verdict.against("compile")
    return {
        "passed": verdict.passed,
        "stage": verdict.stage.value,
        "reason": verdict.reason,
        "trust": verdict.trust.value,
        "time_ms": verdict.time.median_ms if verdict.time else None,
        "baseline_ms": eager.baseline_time.median_ms if eager else None,
        "speedup": verdict.speedup,
        "speedup_low": eager.low if eager else None,
        "speedup_high": eager.high if eager else None,
        "speedup_compile": compiled.speedup if compiled else None,
        "sol_ms": verdict.sol_ms,
    }


def _provenance(state: State, turn: Turn | None, exchange: Exchange) -> dict[str, Any]:
    """Where the row is from: a reply that was itself replayed says so."""
    return {
        "tool": "kernellab",
        "version": state.created.version,
        "session": state.id,
        "exchange": exchange.id,
        "model": exchange.answered_by,
        "author": turn.author.value if turn else "model",
        "asked_at": datetime.fromtimestamp(exchange.started, timezone.utc).isoformat(),
        "replayed": bool(exchange.recorded_at),
    }


def _write_parquet(path: Path, table: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    text, number, truth = pa.string(), pa.float64(), pa.bool_()
    counts = ("input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")
    figures = (
        "time_ms", "baseline_ms", "speedup", "speedup_low", "speedup_high", "speedup_compile", "sol_ms"
    )  # fmt: skip
    schema = pa.schema(
        {
            "messages": pa.list_(pa.struct({
                "role": text, "content": text, "tool_call_id": text,
                "tool_calls": pa.list_(pa.struct({
                    "id": text, "type": text, "function": pa.struct({"name": text, "arguments": text})
                })),
            })),
            "reasoning": text, "schema": text,
            "sections": pa.list_(pa.struct({"name": text, "source": text, "tokens": pa.int64(), "note": text})),
            "role": text, "purpose": text, "finish": text, "error": text, "last_of_turn": truth,
            "usage": pa.struct({**dict.fromkeys(counts, pa.int64()), "usd": number, "seconds": number,
                                "estimated": truth}),
            "seconds": number, "turn": pa.int64(), "turn_state": text, "turn_seconds": number, "sketch": text,
            "gate": text, "source": pa.list_(pa.struct({"name": text, "text": text})), "route": text,
            "verdict": pa.struct({"passed": truth, "stage": text, "reason": text, "trust": text,
                                  **dict.fromkeys(figures, number)}),
            "solved": truth, "best_speedup": number, "operator": text, "task": text, "dsl": text, "backend": text,
            "chip": text, "licence": text,
            "provenance": pa.struct({"tool": text, "version": text, "session": text, "exchange": text, "model": text,
                                     "author": text, "asked_at": text, "replayed": truth}),
        }
    )  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(table, schema=schema), path)
