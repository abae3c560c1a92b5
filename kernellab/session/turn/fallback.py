"""Who answers in a turn: the first of a role's players that can, and before any model the free lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernellab.agents.briefs import CodeBrief, CodeReply
from kernellab.agents.model import AnswerError
from kernellab.agents.model.prompts.assembly import PromptError
from kernellab.agents.model.prompts.facts import roofline_of
from kernellab.agents.roles import is_model, players_of
from kernellab.agents.rules.coder import RulesCoder
from kernellab.agents.rules.performance import cost_at
from kernellab.agents.rules.slow import MOSTLY_CALL_MS
from kernellab.errors import (
    CaptureError,
    DesignError,
    KernellabError,
    LoweringError,
    ModelError,
    ModelFault,
    SketchError,
)
from kernellab.records import Author
from kernellab.session.record.state import State

Answer = TypeVar("Answer")

#: another player does not help against these: a person broke it off, or settings and recordings must be put right
_NOT_ANOTHERS = frozenset((ModelFault.CANCELLED, ModelFault.CONFIG, ModelFault.AUTH, ModelFault.NO_ANSWER))


@dataclass(frozen=True)
class Played(Generic[Answer]):
    """An answer; ``author`` where the role has several players: who of them gave it.

    ``note`` says why the players ``passed_over`` gave none.
    """

    answer: Answer
    author: Author | None = None
    note: str = ""
    passed_over: tuple[str, ...] = ()


def first_answer(spec: str, ask: Callable[[str], Answer]) -> Played[Answer]:
    """The answer of the first player of ``spec`` that gives one.

    Raises:
        Exception: what kept the last player from answering, or what no other player can do better.
    """
    players, failures = players_of(spec), []
    for number, player in enumerate(players):
        try:
            answer = ask(player)
        except Exception as error:
            if number + 1 == len(players) or not _anothers(error):
                raise
            failures.append(f"{player} gave no answer: {_reason(error)}")
        else:
            one = len(players) == 1
            author = None if one else Author.MODEL if is_model(player) else Author(player)
            return Played(answer, author, "".join(f"{failure} " for failure in failures), tuple(players[:number]))
    raise AssertionError("a role without a player")


def _anothers(error: Exception) -> bool:
    """May another player answer where this one could not? A fault of a player's own program is none of the next's."""
    if isinstance(error, ModelError):
        return error.kind not in _NOT_ANOTHERS
    return not isinstance(error, KernellabError) or isinstance(
        error, (AnswerError, CaptureError, DesignError, LoweringError, PromptError, SketchError)
    )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KernellabError) else f"It failed: {type(error).__name__}: {error}."


#: a sketch of so many times the machine's least time is not worth the judging of its lowering
_WASTEFUL = 16.0


def _is_wasteful(brief: CodeBrief) -> bool:
    """Does the sketch's own cost exceed the bound so far that its lowering says little of what a Coder can do?"""
    try:
        allowed = cost_at(brief.sketch, brief.task, brief.target, brief.constexpr).time_ms
    except KernellabError:
        return False
    limit = roofline_of(brief.task, brief.target.chip)
    bound = brief.bound_ms or (limit.ms if limit is not None else 0.0)
    return allowed is not None and bound > 0 and allowed > max(_WASTEFUL * bound, MOSTLY_CALL_MS)


def unverified_lowering(state: State, brief: CodeBrief) -> CodeReply | None:
    """The lowering of a sketch that has no code yet, while no one has verified it; it costs nothing to look at.

    None where the sketch has code already, cannot be lowered, or where the session works without sketches; and where it
    does so much more than the machine needs that its lowering would be slow: a mask over a whole extent or an atomic
    addition of each element stands for a loop that only a Coder can write.
    """
    if not brief.sketch or "sketch" in brief.ablation or not (brief.previous is None or brief.redesigned):
        return None
    if _is_wasteful(brief):
        return None
    try:
        reply = RulesCoder().code(brief)
    except (SketchError, LoweringError):
        return None
    if state.verdict_of(reply.source.hash) is not None:
        return None
    said = f"{reply.rationale} It is verified before a model is asked to improve it."
    return CodeReply(reply.source, reply.constexpr, said)
