"""What models were asked and answered, and what came of it: one row an exchange, in the chat form of fine-tuning tools.

Such tools learn from the assistant's words: an exchange that failed, was cut off or filtered has none and no row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.reply.reading import AnswerError, parse_sketch
from kernellab.errors import SessionError
from kernellab.models import scrub
from kernellab.models.exchanges import Exchange, Finish
from kernellab.records import Author, Role, Verdict
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.claims import came_of
from kernellab.session.turn.recalling import reward

#: written where no one said under which licence the prompts and replies may be used
UNSPECIFIED = "unspecified"
#: the reward of a reply that could be used and whose kernel failed or was not judged
_ACCEPTED = 0.1


def rows(state: State, licence: str = UNSPECIFIED) -> Iterator[dict[str, Any]]:
    """One row for each exchange of a session that was answered, oldest first.

    ``messages`` end with the reply as the assistant's. ``sketch``, ``gate``, ``source`` and ``verdict`` are those of
    this very reply: empty where it was sent back and another one became the turn's. Times are in ms, ``seconds`` is the
    exchange's wall time, ``reward`` is 0 for a reply that was sent back, 0.1 for one whose kernel failed or was never
    judged, and :func:`kernellab.session.turn.recalling.reward` of its verdict.
    """
    best = state.best()
    for turn_id, exchanges in state.said.items():
        turn = state.turns.get(turn_id)
        answered = [e for e in exchanges if _is_answer(e)]
        taken = _taken(state, turn, answered)
        for number, exchange in enumerate(answered, 1):
            outcome = _outcome(state, turn if exchange is taken else None)
            verdict = came_of(state, turn) if turn and exchange is taken else None
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
                "accepted": exchange is taken,
                "reward": (_reward(verdict) if exchange is taken else 0.0),
                **outcome,
                "turn": turn.number if turn else 0,
                "turn_state": turn.state.value if turn else "",
                "turn_seconds": turn.seconds if turn else 0.0,
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


def _taken(state: State, turn: Turn | None, answered: list[Exchange]) -> Exchange | None:
    """The exchange whose reply became the turn's result; None where none did, or where another player's was taken."""
    if turn is None or turn.state is not TurnState.DONE or turn.author is not Author.MODEL or not answered:
        return None
    if turn.role is not Role.DESIGNER or turn.sketch is None:
        # each other role ends its turn with the first reply that can be used
        return answered[-1]
    before = state.sketch_turn(turn.parent) if turn.parent else None
    shown, found = (before.sketch if before else None), None
    for exchange in answered:
        try:
            shown = parse_sketch(exchange.reply, shown).sketch
        except AnswerError:
            continue
        found = exchange if shown == turn.sketch else found
    return found


def _reward(verdict: Verdict | None) -> float:
    return max(_ACCEPTED, reward(verdict, None)) if verdict is not None else _ACCEPTED


# -- forms of training ------------------------------------------------------------------------------------------------

FORMS = ("rows", "sft", "dpo", "rl")


def in_form(found: Iterable[dict[str, Any]], form: str) -> list[dict[str, Any]]:
    """Rows as trainers take them: ``sft`` (chats of accepted replies whose kernel passed), ``dpo`` (two replies to one
    prompt, the better one first), ``rl`` (a prompt, a reply and its reward); ``rows`` are all that is known.

    A repair answers its prompt as the first reply does, so that both are replies to that prompt; one that is made of
    edits is not, since it has no meaning without the reply that it edits.
    """
    rows_ = list(found)
    if form == "rows":
        return rows_
    if form == "sft":
        return [{"messages": r["messages"]} for r in rows_ if (r["verdict"] or {}).get("passed")]
    whole = [r for r in rows_ if not r["messages"][-1]["content"].lstrip().startswith("EDIT:")]
    replies = [(*_parts(r["messages"]), r["reward"]) for r in whole]
    if form == "rl":
        return [{"prompt": p, "completion": said, "reward": worth} for p, said, worth in replies]
    groups: dict[str, list[tuple[Any, Any, float]]] = {}
    for one in replies:
        groups.setdefault(json.dumps(one[0]), []).append(one)
    pairs = []
    for group in groups.values():
        best = max(group, key=lambda one: one[2])
        pairs += [{"prompt": best[0], "chosen": best[1], "rejected": other[1]} for other in group if other[2] < best[2]]
    return pairs


def _parts(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The prompt and what answers it, calls of tools and their results included; of a repair the first prompt, without
    the reply that was sent back."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=len(messages) - 2)
    asked, answer = messages[: last + 1], messages[last + 1 :]
    return (asked[:-2] if len(asked) > 2 and asked[-2]["role"] == "assistant" else asked), answer


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
    seen: set[str] = set()
    table = [_once(row, seen) for row in found]
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


def _once(row: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    """The row with a helper's text, which comes with every lowered source, at its first place in the file alone."""
    files = []
    for file in row.get("source", ()):
        digest = hashlib.sha256(file["text"].encode()).hexdigest()
        known = digest in seen and is_helper(file["name"])
        seen.add(digest)
        files.append({**file, "text": "" if known else file["text"], "sha256": digest})
    return {**row, "source": files} if "source" in row else row


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
            "seconds": number, "accepted": truth, "reward": number,
            "turn": pa.int64(), "turn_state": text, "turn_seconds": number, "sketch": text,
            "gate": text, "source": pa.list_(pa.struct({"name": text, "text": text, "sha256": text})), "route": text,
            "verdict": pa.struct({"passed": truth, "stage": text, "reason": text, "trust": text,
                                  **dict.fromkeys(figures, number)}),
            "solved": truth, "best_speedup": number, "operator": text, "task": text, "dsl": text, "backend": text,
            "chip": text, "licence": text,
            "provenance": pa.struct({"tool": text, "version": text, "session": text, "exchange": text, "model": text,
                                     "author": text, "asked_at": text, "replayed": truth}),
        }
    )  # fmt: skip
    whole = bool(table) and "provenance" in table[0]
    parquet.write_table(pa.Table.from_pylist(table, schema=schema if whole else None), path)
