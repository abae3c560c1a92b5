"""What a person does at the bench beside deciding: plays a role, pins lines, compares candidates, reads the record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kernellab.agents.roles import parse_role
from kernellab.errors import SessionError
from kernellab.models import Ledger
from kernellab.records import Exchange, Role
from kernellab.session.bench import Bench
from kernellab.session.briefing import analyse_brief, asked_role, brief_of
from kernellab.session.claims import checked
from kernellab.session.comparing import compare_candidates
from kernellab.session.driver import Driver
from kernellab.session.records import ClaimCheck, Turn, TurnState
from kernellab.session.state import State


class ByHand:
    """The part of a Session that these calls make."""

    _driver: Driver
    _bench: Bench
    _ledger: Ledger
    _counted: dict[str, int]
    _counting: threading.Lock

    @property
    def state(self) -> State:
        raise NotImplementedError

    def _decide(self, decision: Callable[[], None]) -> None:
        raise NotImplementedError

    # -- playing a role ------------------------------------------------------------------------------------------------

    def brief(self, role: str | Role | None = None) -> str:
        """What a model would be told now in ``role`` (default: the one that a person is asked to play), as text.

        Raises:
            SessionError: nothing is asked and no role is given, or there is nothing yet that the role could work on.
            TaskError, TargetError: the session cannot run.
        """
        from kernellab.agents.model import brief_text, prompt

        which = self._role_now(role)
        if which is Role.ANALYST:
            return brief_text(prompt(analyse_brief(self._bench, self.state, self._stands_on(), ""), self._knowledge()))
        return brief_text(prompt(brief_of(self._bench, self.state, which, self._stands_on()), self._knowledge()))

    def answer(self, text: str, role: str | Role | None = None, card: str | None = None) -> None:
        """Take a reply as a model would give it (pasted from another chat, or typed) as a turn of yours.

        ``card`` is the question's id that it answers; an answer to one that is no longer open changes nothing.

        Raises:
            SessionError: nothing is asked, or another question is.
            AnswerError: the reply does not hold what the role is asked for.
        """
        from kernellab.agents.briefs import CodeReply, DesignReply
        from kernellab.agents.model import parse_answer
        from kernellab.records import Route

        question = self.state.question
        if card is not None and (question is None or question.id != card):
            raise SessionError("That question is no longer open.", question.text if question else "Nothing is asked.")
        brief = brief_of(self._bench, self.state, self._role_now(role), self._stands_on())
        reply = parse_answer(text, brief)
        driver = self._driver
        if isinstance(reply, DesignReply):
            designed = {"constexpr": dict(reply.constexpr), "rationale": reply.rationale, "claims": tuple(reply.claims)}
            sketch = reply.sketch
            self._decide(lambda: driver.place_sketch(sketch, **designed))
        elif isinstance(reply, CodeReply):
            source, words = reply.source, reply.rationale
            self._decide(lambda: driver.place_source(source, rationale=words))
        elif isinstance(reply, Route):
            route = reply
            self._decide(lambda: driver.place_route(route))

    def analyse(self, question: str = "", wait: float | None = None) -> Turn | None:
        """Have the Analyst explain the session, or answer ``question``: a turn beside the line, which moves nothing.

        Returns at once; with ``wait`` (seconds) the finished turn.

        Raises:
            SessionError: it took longer than ``wait``.
        """
        done = threading.Event()
        made: list[str] = []
        self._decide(lambda: made.append(self._driver.analyse(question, done.set)))
        if wait is None:
            return None
        if not done.wait(wait):
            raise SessionError(f"The Analyst is still busy after {wait:g} s.", "Wait longer.")
        return self.state.turns[made[0]]

    # -- pins ----------------------------------------------------------------------------------------------------------

    def pin(self, line: int, reason: str = "") -> None:
        """Pin a line of the sketch (from 1): agents' revisions must keep it. What comes next is not changed."""
        self._decide(lambda: self._driver.pin(line, True, reason))

    def unpin(self, line: int) -> None:
        self._decide(lambda: self._driver.pin(line, False, ""))

    # -- the record ----------------------------------------------------------------------------------------------------

    def exchanges(self, turn: int | str | Turn | None = None) -> list[Exchange]:
        """What a turn's role asked its model and was answered; of the whole session without ``turn``."""
        if turn is None:
            return list(self.state.exchanges())
        which = turn.id if isinstance(turn, Turn) else self.state.turn(turn).id
        return list(self.state.exchanges(which))

    def ledger(self) -> dict[str, Any]:
        """Tokens, dollars and seconds in ``total`` and by ``turns``, ``roles``, ``models``; ``budget`` and ``spent``.

        ``text`` is one line for people. The numbers are those of :class:`kernellab.models.Ledger`.
        """
        state = self.state
        with self._counting:
            for turn, exchanges in state.said.items():
                for exchange in exchanges[self._counted.get(turn, 0) :]:
                    self._ledger.add(turn, exchange)
                self._counted[turn] = len(exchanges)
            found = self._ledger.as_dict()
        return {**found, "budget": state.budget, "spent": self._bench.budget.spent(), "text": ledger_line(found)}

    @property
    def partial(self) -> str:
        """What the model of the running turn has written so far; empty when none runs."""
        head = self.state.head
        return self._driver.partial.get(head, "") if head else ""

    def claims(self, turn: int | str | Turn) -> tuple[ClaimCheck, ...]:
        """A turn's claims against what the record holds by now."""
        which = turn.id if isinstance(turn, Turn) else self.state.turn(turn).id
        return checked(self._bench, self.state, self.state.turns[which])

    def compare_candidates(self, a: int | str | Turn, b: int | str | Turn) -> dict[str, Any]:
        """Two turns' candidates side by side: diffs of sketch and source, numbers with intervals, and which is faster.

        Raises:
            SessionError: there is no such turn, or none has a candidate.
        """
        first, second = (w.id if isinstance(w, Turn) else self.state.turn(w).id for w in (a, b))
        return compare_candidates(self.state, first, second)

    # -- what they share -----------------------------------------------------------------------------------------------

    def _role_now(self, role: str | Role | None) -> Role:
        if role is not None:
            return parse_role(role)
        asked = asked_role(self.state)
        if asked is None:
            raise SessionError("Nothing is asked of you now.", "Say which role: designer, coder or conductor.")
        return asked

    def _stands_on(self) -> str | None:
        """The turn that the next one is put on."""
        head = self.state.head_turn
        return head.parent if head is not None and head.state is TurnState.RUNNING else self.state.head

    def _knowledge(self) -> Any:
        return self._bench.knowledge()


def ledger_line(ledger: Mapping[str, Any]) -> str:
    """One line for people: "12,400 tokens (3,100 cached), $0.021, 3 requests"; empty before the first."""
    total = ledger["total"]
    if not total["requests"]:
        return ""
    words = [f"{total['input_tokens'] + total['output_tokens']:,} tokens"]
    if total["cached_tokens"]:
        words[0] += f" ({total['cached_tokens']:,} cached)"
    if total["usd"] is not None:
        words.append(f"${total['usd']:.4f}" + (" and unpriced ones" if total["unpriced"] else ""))
    count = total["requests"]
    words.append(
        f"{count} request{'s' if count != 1 else ''}" + (f", {total['failed']} failed" if total["failed"] else "")
    )
    return ", ".join(words)
