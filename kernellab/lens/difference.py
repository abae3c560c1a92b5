"""The differences of two candidates: at a level of the compiler, and in facts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.errors import SessionError
from kernellab.lens.records import Lens

SOURCE = "source"
#: numbers that a compiler assigns: of virtual registers and values, and labels
_NUMBERED = re.compile(r"(?<![\w.])(?:%(?:r|rd|f|p|fd|rs|h|b)?\d+|\$L__BB\d+_\d+|\.L\w*?\d+|_\d+(?=\b)|%[a-z]\w*?_\d+)")


@dataclass(frozen=True)
class ChangedFact:
    """A fact of both; "" if one does not have it."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Difference:
    """``text`` is a unified diff, empty if the level is equal; ``same``: only the compiler's numbering differs (of
    registers, values and labels)."""

    level: str
    text: str
    same: bool
    added: int
    removed: int
    facts: tuple[ChangedFact, ...]


def difference(a: Lens, b: Lens, level: str, names: tuple[str, str] = ("a", "b")) -> Difference:
    """Return how ``b`` differs from ``a`` at ``level``, which may be "source".

    Raises:
        SessionError: one of them has no such level.
    """
    left, right = _text(a, level), _text(b, level)
    lines = list(difflib.unified_diff(left.splitlines(), right.splitlines(), *names, lineterm="", n=3))
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return Difference(
        level, "\n".join(lines), _unnumbered(left) == _unnumbered(right), added, removed, tuple(_facts(a, b))
    )


def _text(lens: Lens, level: str) -> str:
    if level == SOURCE:
        return lens.text
    shown = lens.level(level)
    if shown is None:
        raise SessionError(
            f"The lens shows no level {level!r} of this source.", f"Choose one of {', '.join([SOURCE, *lens.names])}."
        )
    return shown.text


def _unnumbered(text: str) -> str:
    """Return the text with the compiler's numbers replaced by their order."""
    numbers: dict[str, str] = {}
    return _NUMBERED.sub(lambda match: numbers.setdefault(match[0], f"#{len(numbers)}"), text)


def _facts(a: Lens, b: Lens) -> Iterator[ChangedFact]:
    left = {(fact.kernel, fact.name): fact.value for fact in a.facts}
    right = {(fact.kernel, fact.name): fact.value for fact in b.facts}
    for key in dict.fromkeys([*left, *right]):
        one, other = left.get(key, ""), right.get(key, "")
        if one != other:
            yield ChangedFact(f"{key[0]}: {key[1]}" if key[0] else key[1], one, other)
