"""The cost of models: tokens, money and seconds, per turn, role and model. A fold over the recorded exchanges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.models.exchanges import Exchange, Finish, Usage


def added(a: Usage, b: Usage) -> Usage:
    """Return the sum. Dollars are added if known (None plus a price is the price): count unpriced usage separately."""
    costs = [usd for usd in (a.usd, b.usd) if usd is not None]
    return Usage(
        input_tokens=a.input_tokens + b.input_tokens,
        cached_tokens=a.cached_tokens + b.cached_tokens,
        output_tokens=a.output_tokens + b.output_tokens,
        reasoning_tokens=a.reasoning_tokens + b.reasoning_tokens,
        usd=sum(costs) if costs else None,
        seconds=a.seconds + b.seconds,
        estimated=a.estimated or b.estimated,
        tool_calls=a.tool_calls + b.tool_calls,
        requests=a.requests + b.requests,
        untold=a.untold + b.untold,
    )


@dataclass
class Totals:
    """A sum of exchanges: ``failed`` counts those without an answer, except stopped ones; ``unpriced`` those with
    tokens but without a known price."""

    requests: int = 0
    failed: int = 0
    unpriced: int = 0
    usage: Usage = field(default_factory=Usage)

    def add(self, exchange: Exchange) -> None:
        """Add an exchange: its requests (at least one), whether it failed, tokens and dollars."""
        self.requests += exchange.usage.requests or 1
        self.failed += exchange.finish not in (Finish.STOP, Finish.CANCELLED)
        self.unpriced += exchange.usage.usd is None and tokens(exchange.usage) > 0
        self.usage = added(self.usage, exchange.usage)

    def as_dict(self) -> dict[str, Any]:
        """Tokens and dollars of :class:`~.exchanges.Usage`, with ``requests``, ``failed`` and ``unpriced``."""
        counts = {"requests": self.requests, "failed": self.failed, "unpriced": self.unpriced}
        return {**self.usage.model_dump(mode="json"), **counts}


class Ledger:
    """Totals of a session: ``total``, and by turn, role and model."""

    def __init__(self, exchanges: Iterable[tuple[str, Exchange]] = ()) -> None:
        """``exchanges`` are pairs of a turn's id and an exchange, as in the journal's ``Exchanged`` events."""
        self.total = Totals()
        self.turns: dict[str, Totals] = {}
        self.roles: dict[str, Totals] = {}
        self.models: dict[str, Totals] = {}
        for turn, exchange in exchanges:
            self.add(turn, exchange)

    def add(self, turn: str, exchange: Exchange) -> None:
        """Add an exchange to the total, and to its turn, its role and the model that answered."""
        self.total.add(exchange)
        for part, name in ((self.turns, turn), (self.roles, exchange.role.value), (self.models, exchange.answered_by)):
            part.setdefault(name, Totals()).add(exchange)

    def as_dict(self) -> dict[str, Any]:
        """``{total, turns: {id: ...}, roles: {role: ...}, models: {name: ...}}``, JSON-like."""
        parts = {"turns": self.turns, "roles": self.roles, "models": self.models}
        split = {part: {name: totals.as_dict() for name, totals in of.items()} for part, of in parts.items()}
        return {"total": self.total.as_dict(), **split}


def usage_of(totals: Mapping[str, Any]) -> Usage:
    """The usage in what :meth:`Totals.as_dict` gives."""
    return Usage(**{name: totals[name] for name in Usage.model_fields})


def tokens(usage: Usage) -> int:
    """Tokens that count against a budget: all input and all output."""
    return usage.input_tokens + usage.output_tokens


def reported(figures: str, known: int, untold: int) -> str:
    """``figures``, which say the ``known`` tokens, with what is missing of them: where an agent reported none
    (``untold`` of its answers), 0 is no figure."""
    if not untold:
        return figures
    return f"{figures}, others not reported" if known else "tokens not reported"
