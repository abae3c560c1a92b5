"""The steps and costs of a session's roles, read from its record."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import chain
from typing import Any

from kernellab.models import Ledger
from kernellab.models.exchanges import Exchange, Step
from kernellab.models.ledger import reported, tokens, usage_of
from kernellab.records import StageResult
from kernellab.session.engine.driver import Driver
from kernellab.session.record.records import ClaimCheck, Turn
from kernellab.session.turn.claims import checked
from kernellab.session.turn.context import Bench
from kernellab.session.turn.explaining import Explanation, explain


class Trace:
    """The trace of one session; no call waits. A turn is given as number, id or record."""

    def __init__(self, driver: Driver, bench: Bench) -> None:
        self._driver, self._bench = driver, bench
        self._ledger = Ledger()
        #: How many exchanges of each turn are in the ledger.
        self._counted: dict[str, int] = {}
        self._ledger_lock = threading.Lock()

    def exchanges(self, turn: int | str | Turn | None = None) -> list[Exchange]:
        """The model exchanges of a turn; of the whole session without ``turn``."""
        state = self._driver.state
        return list(state.exchanges() if turn is None else state.exchanges(state.id_of(turn)))

    def ledger(self) -> dict[str, Any]:
        """Tokens, dollars and seconds in ``total`` and by ``turns``, ``roles``, ``models``; ``budget`` and ``spent``.

        ``text`` is one line for people, ``warning`` an anomaly in the models' answers. The numbers are
        those of :class:`kernellab.models.Ledger`.
        """
        state = self._driver.state
        with self._ledger_lock:
            for turn, exchanges in state.exchanges_by_turn.items():
                for exchange in exchanges[self._counted.get(turn, 0) :]:
                    self._ledger.add(turn, exchange)
                self._counted[turn] = len(exchanges)
            totals = self._ledger.as_dict()
        warning = max((exchange.warning for exchange in state.exchanges()), key=len, default="")
        spent = self._bench.budget.spent()
        text = ". ".join(filter(None, (ledger_line(totals), warning)))
        return {**totals, "budget": state.budget, "spent": spent, "warning": warning, "text": text}

    @property
    def partial(self) -> str:
        """The partial reply of the running turn's model; empty if none runs."""
        return self._driver.running.partial(self._driver.state.head)

    @property
    def doing(self) -> str:
        """The running turn's reported activity; empty if it reports none."""
        return self._driver.running.doing(self._driver.state.head)

    @property
    def stages(self) -> Mapping[str, list[StageResult]]:
        """The stages that a running verification has finished, by turn."""
        return {turn: list(stages) for turn, stages in self._driver.running.stages.items()}

    def steps(self, turn: int | str | Turn) -> tuple[Step, ...]:
        """The steps of an agent, or a model with tools, in a turn here, excluding recordings."""
        state = self._driver.state
        id = state.id_of(turn)
        ended = (e.steps for e in state.exchanges(id) if not e.recorded_at)
        return (*chain.from_iterable(ended), *state.steps.get(id, ()))

    def claims(self, turn: int | str | Turn) -> tuple[ClaimCheck, ...]:
        """A turn's claims, checked against the current record."""
        state = self._driver.state
        return checked(self._bench, state, state.turns[state.id_of(turn)])

    def explain(self, what: str = "verdict", turn: int | str | Turn | None = None) -> Explanation:
        """Explain the newest verdict up to ``turn`` (the head), or (``"speed"``) why its kernel is slow; by rules.
        Raises SessionError if there is no verdict yet, or it was not timed."""
        state = self._driver.state
        return explain(self._bench, state, None if turn is None else state.id_of(turn), what)


def ledger_line(ledger: Mapping[str, Any]) -> str:
    """One line for people: "12,400 tokens (3,100 cached), $0.021, 3 requests"; empty before the first request."""
    total = ledger["total"]
    if not total["requests"]:
        return ""
    usage = usage_of(total)
    figures = f"{tokens(usage):,} tokens" + (f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else "")
    parts = [reported(figures, tokens(usage), usage.untold)]
    if total["usd"] is not None:
        parts.append(f"${total['usd']:.4f}" + (" and unpriced ones" if total["unpriced"] else ""))
    count = total["requests"]
    parts.append(
        f"{count} request{'s' if count != 1 else ''}" + (f", {total['failed']} failed" if total["failed"] else "")
    )
    return ", ".join(parts)
