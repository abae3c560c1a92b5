"""The timeline: one row for each turn, and which rows have changed since a view received them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernellab.models.exchanges import Exchange
from kernellab.notebook.protocol import TurnRow, TurnWord
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State
from kernellab.session.record.view import outcome

#: rows that may differ from the whole list before the whole list is sent again
CHANGED_LIMIT = 40
#: a fork is indented by one step, to this many steps
_DEEPEST = 6
#: most characters of a turn's note
_NOTE = 300
#: words of the states that are shown as they are; those of ended turns depend on their result
_WORD_OF_STATE: Mapping[TurnState, TurnWord] = {
    TurnState.SUPERSEDED: "superseded",
    TurnState.STOPPED: "stopped",
    TurnState.RUNNING: "running",
}


def turn_rows(state: State) -> list[TurnRow]:
    """A ``TurnRow`` of the protocol a turn, in order of number."""
    path = {turn.id for turn in state.path()}
    question = state.question if state.status is SessionStatus.WAITING else None
    depth: dict[str | None, int] = {None: 0}
    begun = set[str | None]()
    rows: list[TurnRow] = []
    for turn in state.turns.values():
        # a turn that is not its parent's first child begins a fork
        depth[turn.id] = depth.get(turn.parent, 0) + (turn.parent in begun)
        begun.add(turn.parent)
        running = turn.state is TurnState.RUNNING
        cut = running and state.cut_off
        undone = "Undone. " if turn.id in state.undone and turn.id not in path else ""
        rows.append(
            {
                "id": turn.id,
                "number": turn.number,
                "parent": turn.parent,
                "role": turn.role.value,
                "author": turn.author.value,
                "state": "stopped" if cut else turn_state(turn, question),
                "on_path": turn.id in path,
                "depth": min(depth[turn.id], _DEEPEST),
                "seconds": 0 if running else round(turn.seconds, 3),
                "started": round(turn.started, 3),
                "note": state.reason if cut else "" if running else f"{undone}{outcome(turn)}"[:_NOTE],
                "tokens": tokens(state.exchanges(turn.id)),
            }
        )
    return sorted(rows, key=lambda row: row["number"])


def turn_state(turn: Turn, question: Question | None) -> TurnWord:
    """A turn's word: its state, or its result once it is done; "waiting" where the open ``question`` is about it."""
    if turn.state in _WORD_OF_STATE:
        return _WORD_OF_STATE[turn.state]
    if turn.verdict is not None:
        return "passed" if turn.verdict.passed else "failed"
    if turn.state is TurnState.FAILED or (turn.gate is not None and turn.gate.state.value == "wrong"):
        return "failed"
    asked = question is not None and question.turn == turn.id and question.kind is not QuestionKind.BRIEF
    return "waiting" if asked else "done"


def tokens(exchanges: Sequence[Exchange]) -> int:
    """The tokens of prompts and replies together."""
    return sum(e.usage.input_tokens + e.usage.output_tokens for e in exchanges)


def difference(sent: Sequence[TurnRow], current: Sequence[TurnRow]) -> list[TurnRow] | None:
    """The rows of ``current`` that are missing in ``sent`` or differ there; None when the whole list costs less."""
    sent_by_id: Mapping[str, TurnRow] = {row["id"]: row for row in sent}
    changed = [row for row in current if sent_by_id.get(row["id"]) != row]
    return changed if len(changed) <= CHANGED_LIMIT else None
