"""Designs that several moves of the algorithm make of the rules' first one, for a search to begin with.

A win of two moves lies two rounds away from a design that is varied by one, and either alone may gain nothing: a top-k
by maxima pays once the launch that reads it has been taken in. These moves have few variants and no numbers to choose,
so they are taken one after another wherever the cost model does not speak against one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernellab.errors import KernellabError
from kernellab.evolve.vary.rules import KIND, modelled
from kernellab.sketch.rewrite import Rewritten, keeps, variants
from kernellab.tuning.space import Space

#: what is stored between launches goes first, as a launch that reads a changed one may not be taken in any more
MOVES = ("join", "fuse", "recompute", "select", "segment", "factor", "apart")
#: moves that follow one another at most, and times the modelled time before a move that it may come to
_LONGEST, _WORSE = 6, 1.25


@dataclass(frozen=True)
class Composed:
    """A design, the moves that made it in order, and what each did."""

    sketch: str
    moves: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def operator(self) -> str:
        return f"{KIND}:{'+'.join(self.moves)}"


def composed(sketch: str, space: Space, operators: Collection[str]) -> list[Composed]:
    """What the moves among ``operators`` make of ``sketch``, all of them first, then without the last; none where none
    applies. Every step keeps the meaning, as :func:`kernellab.sketch.rewrite.keeps` checks it."""
    names = [name for name in MOVES if f"{KIND}:{name}" in operators]
    line = [Composed(sketch, (), ())]
    while len(line) <= _LONGEST and (found := _next(line[-1], names, space)) is not None:
        line.append(found)
    return line[:0:-1][:2]


def _next(before: Composed, names: Collection[str], space: Space) -> Composed | None:
    limit = _WORSE * modelled(space, before.sketch)
    for name in names:
        for made in _variants(before.sketch, name, space):
            if keeps(before.sketch, made, space.target) and modelled(space, made.text) <= limit:
                return Composed(made.text, (*before.moves, name), (*before.why, made.why))
    return None


def _variants(sketch: str, name: str, space: Space) -> list[Rewritten]:
    try:
        return variants(sketch, space.target, {name})
    except KernellabError:
        # a kernel that a person gave may carry a sketch that no rewrite can read
        return []
