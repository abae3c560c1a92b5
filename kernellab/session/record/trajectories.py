"""Model exchanges and their outcomes: one row per exchange, in the chat format of fine-tuning tools.

These tools learn from the assistant's replies: an exchange that failed, was cut off or filtered has no row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from kernellab.agents.model.prompts.helpers import is_helper
from kernellab.agents.model.reply.answers import AnswerError
from kernellab.agents.model.reply.sketches import parse_sketch
from kernellab.errors import SessionError
from kernellab.models import scrub
from kernellab.models.exchanges import Exchange, Finish
from kernellab.records import Author, Role, Verdict
from kernellab.session.record.records import Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.turn.claims import verdict_after
from kernellab.session.turn.recalling import reward

#: Written if no licence of the prompts and replies is specified.
UNSPECIFIED = "unspecified"
#: The reward of a usable reply whose kernel failed or was not judged; chosen, not measured.
_USABLE = 0.1


def rows(state: State, licence: str = UNSPECIFIED) -> Iterator[dict[str, Any]]:
    """Yield one row for each answered exchange of a session, oldest first.

    ``messages`` end with the reply as the assistant's. ``sketch``, ``gate``, ``source`` and ``verdict`` belong to this
    reply: they are empty if it was rejected and another one became the turn's. Times are in ms; ``seconds`` is the
    exchange's wall time. ``reward`` is 0 for a rejected reply, 0.1 for one whose kernel failed or was not judged, and
    otherwise :func:`kernellab.session.turn.recalling.reward` of its verdict.
    """
    of_session = _of_session(state, licence)
    for turn_id, exchanges in state.exchanges_by_turn.items():
        turn = state.turns.get(turn_id)
        answered = [e for e in exchanges if _is_answer(e)]
        accepted = _accepted(state, turn, answered)
        for exchange in answered:
            is_accepted = exchange is accepted
            verdict = verdict_after(state, turn) if turn and is_accepted else None
            yield {
                **_of_exchange(exchange, is_last=exchange is answered[-1]),
                "accepted": is_accepted,
                "reward": _reward(verdict) if is_accepted else 0.0,
                **_outcome(state, turn if is_accepted else None),
                "turn": turn.number if turn else 0,
                "turn_state": turn.state.value if turn else "",
                "turn_seconds": turn.seconds if turn else 0.0,
                **of_session,
                "provenance": _provenance(state, turn, exchange),
            }


def _of_exchange(exchange: Exchange, is_last: bool) -> dict[str, Any]:
    return {
        "messages": _messages(exchange),
        "reasoning": exchange.reasoning,
        "schema": json.dumps(exchange.schema_, sort_keys=True) if exchange.schema_ else "",
        "sections": [s.model_dump(mode="json") for s in exchange.sections],
        "role": exchange.role.value,
        "purpose": exchange.purpose,
        "finish": exchange.finish.value,
        "error": exchange.error,
        "last_of_turn": is_last,
        "usage": exchange.usage.model_dump(mode="json"),
        "seconds": exchange.usage.seconds,
    }


def _of_session(state: State, licence: str) -> dict[str, Any]:
    best, target = state.best(), state.target
    return {
        "solved": best is not None,
        "best_speedup": best.verdict.speedup if best else None,
        "operator": state.created.name,
        "task": state.created.text,
        "dsl": target.dsl if target else state.created.dsl or "",
        "backend": target.backend if target else "",
        "chip": target.chip if target else "",
        "licence": licence,
    }


def _accepted(state: State, turn: Turn | None, answered: list[Exchange]) -> Exchange | None:
    """Return the exchange whose reply became the turn's result; None if none did, or another player's was used."""
    if turn is None or turn.state is not TurnState.DONE or turn.author is not Author.MODEL or not answered:
        return None
    if turn.role is not Role.DESIGNER or turn.sketch is None:
        # every other role ends its turn with the first usable reply
        return answered[-1]
    design_turn = state.sketch_turn(turn.parent) if turn.parent else None
    shown_sketch, result = (design_turn.sketch if design_turn else None), None
    for exchange in answered:
        try:
            shown_sketch = parse_sketch(exchange.reply, shown_sketch).sketch
        except AnswerError:
            continue
        result = exchange if shown_sketch == turn.sketch else result
    return result


def _reward(verdict: Verdict | None) -> float:
    return max(_USABLE, reward(verdict, None)) if verdict is not None else _USABLE


# -- forms of training ------------------------------------------------------------------------------------------------

FORMS = ("rows", "sft", "dpo", "rl")


class Reply(NamedTuple):
    """A prompt, the reply to it with its tool calls (both as chat messages), and the reply's reward."""

    prompt: list[dict[str, Any]]
    completion: list[dict[str, Any]]
    reward: float


def in_form(table: Iterable[dict[str, Any]], form: str) -> list[dict[str, Any]]:
    """Return rows in a format for trainers: ``sft`` (chats of accepted replies whose kernel passed), ``dpo`` (two
    replies to one prompt, the better one first), ``rl`` (a prompt, a reply and its reward); ``rows`` are complete.

    A repair answers the same prompt as the first reply, so both are replies to that prompt. A reply made of edits is
    not, since it has no meaning without the reply that it edits.
    """
    rows_ = list(table)
    if form == "rows":
        return rows_
    if form == "sft":
        return [{"messages": r["messages"]} for r in rows_ if (r["verdict"] or {}).get("passed")]
    complete = [r for r in rows_ if not r["messages"][-1]["content"].lstrip().startswith("EDIT:")]
    replies = [Reply(*_parts(r["messages"]), r["reward"]) for r in complete]
    return [reply._asdict() for reply in replies] if form == "rl" else _preferences(replies)


def _preferences(replies: Iterable[Reply]) -> list[dict[str, Any]]:
    """The best reply to each prompt, paired with each of the others that is worse."""
    replies_by_prompt: dict[str, list[Reply]] = {}
    for reply in replies:
        replies_by_prompt.setdefault(json.dumps(reply.prompt), []).append(reply)
    pairs = []
    for group in replies_by_prompt.values():
        best = max(group, key=lambda reply: reply.reward)
        pairs += [
            {"prompt": best.prompt, "chosen": best.completion, "rejected": reply.completion}
            for reply in group
            if reply.reward < best.reward
        ]
    return pairs


def _parts(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split messages into the prompt and its answer, which includes tool calls and their results. For a repair, the
    prompt is the first one, without the rejected reply."""
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=len(messages) - 2)
    prompt, answer = messages[: last + 1], messages[last + 1 :]
    return (prompt[:-2] if len(prompt) > 2 and prompt[-2]["role"] == "assistant" else prompt), answer


def unanswered(state: State) -> int:
    """The number of a session's exchanges that have no row."""
    return sum(not _is_answer(e) for exchanges in state.exchanges_by_turn.values() for e in exchanges)


def _is_answer(exchange: Exchange) -> bool:
    return exchange.finish is Finish.STOP and bool(exchange.reply) and not exchange.error


def write_trajectories(path: Path, rows_: Iterable[dict[str, Any]]) -> int:
    """Write rows as JSON lines or, if the name ends in .parquet, as Parquet. Return the number of rows.

    Raises:
        SessionError: another suffix, or the file cannot be written.
    """
    digests: set[str] = set()
    table = [_without_repeats(row, digests) for row in rows_]
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


def _without_repeats(row: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    """Return the row with a helper's text only at its first occurrence: every lowered source includes it."""
    files = []
    for file in row.get("source", ()):
        digest = hashlib.sha256(file["text"].encode()).hexdigest()
        is_repeated = digest in seen and is_helper(file["name"])
        seen.add(digest)
        files.append({**file, "text": "" if is_repeated else file["text"], "sha256": digest})
    return {**row, "source": files} if "source" in row else row


def _messages(exchange: Exchange) -> list[dict[str, Any]]:
    """Return the messages with tool calls in the chat completions format that trainers read."""
    messages: list[dict[str, Any]] = [{"role": m.role, "content": m.content} for m in exchange.messages]
    for number, step in enumerate(s for s in exchange.steps if s.kind == "tool"):
        id = f"call_{number}"
        function = {"name": step.title, "arguments": step.text}
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": id, "type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "content": step.result, "tool_call_id": id})
    return [*messages, {"role": "assistant", "content": exchange.reply}]


def _outcome(state: State, turn: Turn | None) -> dict[str, Any]:
    """The turn's outcome; fields without one are empty."""
    candidate = turn.candidate if turn else None
    if turn is not None and candidate is None and turn.role is Role.CONDUCTOR:
        candidate = state.candidate(turn.id)
    design_turn = state.sketch_turn(turn.id) if turn else None
    gate = turn.gate if turn else None
    verdict = verdict_after(state, turn) if turn else None
    return {
        "sketch": (design_turn.sketch or "") if design_turn else "",
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
    """The row's origin, including whether the reply was replayed."""
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
    has_all = bool(table) and "provenance" in table[0]
    parquet.write_table(pa.Table.from_pylist(table, schema=schema if has_all else None), path)
