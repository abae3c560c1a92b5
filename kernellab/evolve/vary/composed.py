"""Designs that several algorithmic moves make from the rules' first one, with which a search begins.

A gain from two moves is two rounds away from a design that is varied by one, and neither may gain alone: a top-k by
maxima pays only after its consumer's launch is fused. These moves have few variants and no numbers to choose, so they
are applied one after another unless the cost model speaks against one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kernellab.evolve.vary.rules import KIND, modelled, rewritten
from kernellab.sketch.rewrite import keeps
from kernellab.tuning.space import Space

#: Stores between launches first, because a launch that reads a changed one may no longer be fused.
MOVES = ("join", "fuse", "recompute", "select", "segment", "factor", "apart")
#: Maximum number of successive moves, and the maximum ratio of modelled times after and before a move.
_LONGEST, _WORSE = 6, 1.25


@dataclass(frozen=True)
class Composed:
    """A design, its moves in order, and what each did."""

    sketch: str
    moves: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def operator(self) -> str:
        return f"{KIND}:{'+'.join(self.moves)}"


def composed(sketch: str, space: Space, operators: Collection[str]) -> list[Composed]:
    """Return the designs that the moves among ``operators`` make from ``sketch``: all moves, then without the last;
    empty if none applies. Every step keeps the meaning, as :func:`kernellab.sketch.rewrite.keeps` checks."""
    names = [name for name in MOVES if f"{KIND}:{name}" in operators]
    steps = [Composed(sketch, (), ())]
    while len(steps) <= _LONGEST and (following := _next(steps[-1], names, space)) is not None:
        steps.append(following)
    return steps[:0:-1][:2]


def _next(before: Composed, names: Collection[str], space: Space) -> Composed | None:
    limit = _WORSE * modelled(space, before.sketch)
    for name in names:
        for variant in rewritten(before.sketch, f"{KIND}:{name}", space.target):
            if keeps(before.sketch, variant, space.target) and modelled(space, variant.text) <= limit:
                return Composed(variant.text, (*before.moves, name), (*before.why, variant.why))
    return None
