"""One design session: a tree of turns, who approves, the journal that keeps it."""

from kernellab.session.kernel import BestKernel
from kernellab.session.records import Question, QuestionKind, SessionStatus, Turn, TurnState
from kernellab.session.session import Session
from kernellab.session.start import design, open_session, sessions

__all__ = [
    "BestKernel",
    "Question",
    "QuestionKind",
    "Session",
    "SessionStatus",
    "Turn",
    "TurnState",
    "design",
    "open_session",
    "sessions",
]
