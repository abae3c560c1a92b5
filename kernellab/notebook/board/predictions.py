"""What a person expected before the measurement, and how that compares: the calibration of teaching mode.

Predictions are lines of ``.kernellab/predictions.jsonl`` next to the journal: a note of the reader's own, which the
session does not depend on.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from kernellab.errors import SessionError
from kernellab.notebook import protocol
from kernellab.records import Author, Role, Verdict
from kernellab.session.engine.approval import stops_for
from kernellab.session.record.journal import FOLDER
from kernellab.session.record.records import QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.record.state import State

log = logging.getLogger("kernellab.notebook")
FILE = "predictions.jsonl"


@dataclass(frozen=True)
class Prediction:
    """``turn`` is the Coder's; ``expected`` the speedup against eager, None when the person skipped it."""

    session: str
    turn: str
    expected: float | None
    reason: str
    time: float


class Calibration(NamedTuple):
    """A prediction and what was measured: speedups over eager."""

    prediction: Prediction
    expected: float
    measured: float


class Predictions:
    """One session's predictions."""

    def __init__(self, workspace: Path, session: str) -> None:
        self._path = workspace / FOLDER / FILE
        self._session = session
        self._lock = threading.Lock()
        self._made: dict[str, Prediction] = {p.turn: p for p in self._read()}

    def open_turn(self, state: State) -> Turn | None:
        """The Coder's turn whose measurement waits for a prediction."""
        question = state.question
        turn = state.turns.get(question.turn or "") if question and question.kind is QuestionKind.TURN else None
        waits = state.status is SessionStatus.WAITING and turn is not None and turn.role is Role.CODER
        return turn if waits and turn is not None and turn.id not in self._made else None

    def record(self, state: State, expected: float | None, reason: str) -> Prediction:
        """Keep a prediction for the open turn.

        Raises:
            SessionError: nothing waits for one, or the number is not a speedup.
        """
        turn = self.open_turn(state)
        if turn is None:
            raise SessionError("No measurement waits for a prediction.", "The next one asks before it is made.")
        if expected is not None and not 0 < expected < 1e6:
            raise SessionError(
                f"{expected:g} is not a speedup.", "Give a positive number: 2 is twice as fast as eager."
            )
        prediction = Prediction(self._session, turn.id, expected, reason.strip()[:2000], time.time())
        with self._lock:
            self._made[turn.id] = prediction
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(prediction)) + "\n")
            except OSError as error:
                raise SessionError(f"{self._path} cannot be written: {error.strerror}.", "Check the folder.") from None
        return prediction

    def view(self, state: State) -> protocol.Prediction:
        """``Prediction`` of the protocol: the open question, or the newest prediction on the head's line."""
        open_turn = self.open_turn(state)
        newest = next((self._made[t.id] for t in reversed(state.path()) if t.id in self._made), None)
        shown = None if open_turn is not None else newest
        measured = measured_of(state, shown.turn) if shown else None
        return {
            "asked": open_turn is not None,
            "turn": open_turn.id if open_turn else shown.turn if shown else None,
            "expected": shown.expected if shown else None,
            "reason": shown.reason if shown else "",
            "measured": measured.speedup if measured else None,
            "history": [
                {"turn": row.prediction.turn, "expected": row.expected, "measured": row.measured}
                for row in self.measured(state)
            ],
        }

    def measured(self, state: State) -> list[Calibration]:
        """Each stated prediction whose kernel was timed, in order of turn."""
        stated = [p for p in self._made.values() if p.expected is not None and p.turn in state.turns]
        rows = []
        for prediction in sorted(stated, key=lambda p: state.turns[p.turn].number):
            verdict = measured_of(state, prediction.turn)
            if prediction.expected is not None and verdict is not None and verdict.speedup is not None:
                rows.append(Calibration(prediction, prediction.expected, verdict.speedup))
        return rows

    def _read(self) -> list[Prediction]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        predictions = []
        for line in lines:
            try:
                prediction = Prediction(**json.loads(line))
            except (ValueError, TypeError):
                log.warning("%s holds a line that is not a prediction", self._path)
                continue
            if prediction.session == self._session:
                predictions.append(prediction)
        return predictions


def measured_of(state: State, coder: str) -> Verdict | None:
    """The verdict on the Coder's turn's own source."""
    for turn in state.turns.values():
        if turn.parent == coder and turn.verdict is not None:
            return turn.verdict
    return None


def teaching_stops(approval: str) -> Callable[[Turn], bool]:
    """``approval`` and a stop after each Coder's turn, so that the measurement waits for the prediction."""
    base = stops_for(approval)

    def stops(turn: Turn) -> bool:
        coded = turn.role is Role.CODER and turn.author is not Author.HUMAN and turn.state is TurnState.DONE
        return coded or base(turn)

    return stops
