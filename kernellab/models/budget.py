"""A session's spending limits. Checked before each request; one that exceeds the remainder is not sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import KernellabError, ModelError, ModelFault
from kernellab.models.exchanges import Usage
from kernellab.models.ledger import added, tokens
from kernellab.options.entry import amount

_LIMITS = ("tokens", "usd", "minutes", "gpu_s", "tool_calls")
#: Limits of work of any kind; the others limit only requests to models.
TIME_LIMITS = ("minutes", "gpu_s")
_RAISE = "Raise the budget and resume; nothing is lost."
_EXAMPLE = "Write for example tokens=200000,usd=1,minutes=30,gpu_s=600."


@dataclass(frozen=True)
class Limits:
    """``tokens`` in and out, ``usd``, ``minutes`` of wall time, ``gpu_s`` seconds of verification, ``tool_calls`` of
    agents and models; None is no limit."""

    tokens: int | None = None
    usd: float | None = None
    minutes: float | None = None
    gpu_s: float | None = None
    tool_calls: int | None = None

    def __str__(self) -> str:
        """The form that :meth:`Budget.parse` reads."""
        return ",".join(f"{name}={getattr(self, name)}" for name in _LIMITS if getattr(self, name) is not None)


class Budget:
    """Limits and the spending so far. Shared by all talks of a session; safe to use from several threads.

    The clock of ``minutes`` runs from creation; :meth:`pause` stops it while a person thinks. A reopened session
    charges its journal's spending with :meth:`spend`.
    """

    def __init__(
        self,
        tokens: int | None = None,
        usd: float | None = None,
        minutes: float | None = None,
        gpu_s: float | None = None,
        tool_calls: int | None = None,
    ) -> None:
        self.limits = Limits(tokens, usd, minutes, gpu_s, tool_calls)
        self._lock = threading.Lock()
        self._usage = Usage()
        self._unpriced = False
        self._gpu_s = 0.0
        self._seconds = 0.0
        self._since: float | None = time.monotonic()

    @classmethod
    def parse(cls, text: str) -> Budget:
        """Parse "tokens=200000,usd=1"; underscores and the suffixes k and M are accepted. "" sets no limits.

        Raises:
            KernellabError: a name is unknown or repeated, or a number is not positive.
        """
        values: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            if name not in _LIMITS or not equals:
                raise KernellabError(f"A budget limits {', '.join(_LIMITS)}, not {part!r}.", _EXAMPLE)
            if name in values:
                raise KernellabError(f"The budget names {name} twice.", _EXAMPLE)
            values[name] = _number(name, number)
        values |= {name: int(values[name]) for name in ("tokens", "tool_calls") if name in values}
        return cls(**values)

    def spend(self, usage: Usage | None = None, *, gpu_s: float = 0.0, seconds: float = 0.0) -> None:
        """Charge an exchange's usage, seconds of verification, or wall seconds of an earlier run."""
        with self._lock:
            if usage is not None:
                self._usage = added(self._usage, usage)
                self._unpriced |= usage.usd is None and tokens(usage) > 0
            self._gpu_s += gpu_s
            self._seconds += seconds

    def pause(self) -> None:
        """Stop the clock of ``minutes``."""
        with self._lock:
            self._seconds, self._since = self._elapsed(), None

    def go_on(self) -> None:
        """Continue the clock after a pause; does nothing if it runs."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()

    def spent(self) -> dict[str, float]:
        """The spending, by the limits' names."""
        with self._lock:
            return {
                "tokens": tokens(self._usage), "usd": self._usage.usd or 0.0,
                "minutes": self._elapsed() / 60, "gpu_s": self._gpu_s, "tool_calls": self._usage.tool_calls,
            }  # fmt: skip

    def reached(self, limits: Sequence[str] = _LIMITS) -> str:
        """The limit of ``limits`` that is reached, in a sentence; "" if none is."""
        spent = self.spent()
        for name in limits:
            limit = getattr(self.limits, name)
            if limit is not None and spent[name] >= limit:
                return f"The budget {name}={limit:g} is reached: {_figure(name, spent[name])} spent."
        return ""

    def left(self, name: str) -> float | None:
        """The remainder of a limit, by its name; None without one."""
        limit = getattr(self.limits, name)
        return None if limit is None else max(0.0, limit - self.spent()[name])

    def check(self, tokens: int = 0, usd: float = 0.0) -> None:
        """Check that a request of about ``tokens`` tokens and ``usd`` dollars may be sent.

        Raises:
            ModelError: a limit is reached, the request exceeds the remainder, or dollars are limited and a model's
            price is
                unknown.
        """
        if reached := self.reached():
            raise ModelError(ModelFault.BUDGET, reached, _RAISE)
        spent = self.spent()
        for name, needs in (("tokens", float(tokens)), ("usd", usd)):
            limit = getattr(self.limits, name)
            if limit is not None and spent[name] + needs > limit:
                remainder = f"{_figure(name, limit - spent[name])} of {name}={limit:g} are left"
                raise ModelError(
                    ModelFault.BUDGET,
                    f"The next request takes about {_figure(name, needs)} {name}, and {remainder}.",
                    _RAISE,
                )
        if self.limits.usd is not None and self._unpriced:
            raise no_price("the model in use")

    def _elapsed(self) -> float:
        return self._seconds + (time.monotonic() - self._since if self._since is not None else 0.0)


def no_price(model: str) -> ModelError:
    """The error of a dollar limit for a model without a price."""
    return ModelError(
        ModelFault.BUDGET, f"The budget limits dollars, and the price of {model} is not known.",
        "Write its price under [models.prices] in kernellab.toml, or limit tokens instead.",
    )  # fmt: skip


def _number(name: str, text: str) -> float:
    value = amount(text)
    if value is None:
        raise KernellabError(f"The budget's {name} should be a number above zero, not {text!r}.", _EXAMPLE)
    return value


def _figure(name: str, value: float) -> str:
    return f"{value:,.0f}" if name == "tokens" else f"{value:.4g}"
