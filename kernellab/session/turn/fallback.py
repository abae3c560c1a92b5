"""Who answers in a turn: the first of a role's players that can; before any model, the free lowering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kernellab.agents.briefs import CodeBrief, CodeReply
from kernellab.agents.model import AnswerError
from kernellab.agents.model.prompts.assembly import PromptError
from kernellab.agents.model.prompts.cost import wasteful_ms
from kernellab.agents.roles import is_model, players_of
from kernellab.agents.rules.coder import RulesCoder
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

#: Faults that another player cannot avoid: a person stopped the turn, or settings or recordings must be fixed.
_NOT_ANOTHERS = frozenset((ModelFault.CANCELLED, ModelFault.CONFIG, ModelFault.AUTH, ModelFault.NO_ANSWER))


@dataclass(frozen=True)
class Played(Generic[Answer]):
    """An answer; ``author`` is the player that gave it if the role has several players.

    ``note`` gives the reasons why the players ``passed_over`` did not answer.
    """

    answer: Answer
    author: Author | None = None
    note: str = ""
    passed_over: tuple[str, ...] = ()


def first_answer(spec: str, ask: Callable[[str], Answer]) -> Played[Answer]:
    """Return the answer of the first player of ``spec`` that gives one.

    Raises:
        Exception: the error of the last player, or one that no other player can avoid.
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
            is_only = len(players) == 1
            author = None if is_only else Author.MODEL if is_model(player) else Author(player)
            return Played(answer, author, "".join(f"{failure} " for failure in failures), tuple(players[:number]))
    raise AssertionError("a role without a player")


def _anothers(error: Exception) -> bool:
    """Whether another player may answer after this error. A fault in a player's program does not affect the next."""
    if isinstance(error, ModelError):
        return error.kind not in _NOT_ANOTHERS
    return not isinstance(error, KernellabError) or isinstance(
        error, (AnswerError, CaptureError, DesignError, LoweringError, PromptError, SketchError)
    )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, KernellabError) else f"It failed: {type(error).__name__}: {error}."


def unverified_lowering(state: State, brief: CodeBrief) -> CodeReply | None:
    """Return the lowering of a sketch without code, if it is not verified yet; it costs no request.

    None if the sketch has code already or cannot be lowered, or if the session works without sketches. Also None if
    the sketch does much more work than the bound: a mask over a whole extent or an atomic addition of each element
    stands for a loop that only a Coder can write.
    """
    if not brief.sketch or "sketch" in brief.ablation or not (brief.previous is None or brief.redesigned):
        return None
    if wasteful_ms(brief) is not None:
        return None
    try:
        reply = RulesCoder().code(brief)
    except (SketchError, LoweringError):
        return None
    if state.verdict_of(reply.source.hash, answered=True) is not None:
        return None
    rationale = f"{reply.rationale} It is verified before a model is asked to improve it."
    return CodeReply(reply.source, reply.constexpr, rationale)
