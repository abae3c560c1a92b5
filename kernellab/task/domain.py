"""The words of DOMAIN, by which a task says what the values of an argument may be; read here alone."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: words without arguments
WORDS = ("prob", "unit", "positive", "nonnegative", "sorted", "fixed", "real")
_WITH_ARGUMENTS = re.compile(r"(index|range)\(([^()]*)\)")


@dataclass(frozen=True)
class Domain:
    """One word with its arguments: numbers, or expressions over Dims."""

    word: str
    arguments: tuple[str, ...] = ()

    @property
    def interval(self) -> tuple[float, float]:
        """The ends of a ``range(a, b)``, both included."""
        low, high = map(float, self.arguments)
        return low, high


def read_domain(text: str) -> Domain | None:
    """The domain that ``text`` states; None where it states none that is known."""
    if text in WORDS:
        return Domain(text)
    match = _WITH_ARGUMENTS.fullmatch(text)
    if match is None:
        return None
    domain = Domain(match[1], tuple(part.strip() for part in match[2].split(",")))
    try:
        return domain if domain.word == "index" or domain.interval else None
    except ValueError:
        return None
