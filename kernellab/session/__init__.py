"""One design session: a tree of turns, who approves, the journal that keeps it."""

from kernellab.session.kernel import BestKernel
from kernellab.session.record.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.request import DesignRequest
from kernellab.session.session import Session
from kernellab.session.start import begin, design, open_session, sessions

__all__ = [
    "BestKernel",
    "DesignRequest",
    "Question",
    "QuestionKind",
    "Session",
    "SessionStatus",
    "Turn",
    "TurnState",
    "begin",
    "design",
    "open_session",
    "sessions",
]
