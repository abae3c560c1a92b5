"""What a line of turns holds agents to: the lines that a person pinned, and the constraints that a person wrote."""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.records import Author
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.sketch.syntax.pins import Kept


@dataclass(frozen=True)
class Held:
    """``turn`` is the sketch with which an agent's is compared, None before the first one; ``kept`` is a person's."""

    turn: Turn | None = None
    kept: Kept = Kept()

    @property
    def sketch(self) -> str:
        return (self.turn.sketch if self.turn is not None else None) or ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that agents keep, each in a sentence."""
        pins = (f"A person pinned line {number}, `{text}`." for number, text in self.kept.lines(self.sketch))
        written = (f"A person wrote `require: {one.text};` in sketch {one.sketch}." for one in self.kept.constraints)
        return (*pins, *written)


def held(state: State, to: str | None) -> Held:
    """What the turns up to ``to`` hold agents to.

    An agent's own pins and constraints bind no one: it could not drop them again, and no person asked for them. Nor is
    anything compared with a sketch that was refused for a pin or a constraint: the next one would be free of what it
    broke.
    """
    standing: Turn | None = None
    seen = kept = Kept()  # seen: all of the sketch before, a refused one too, that a person edits or pins next
    for turn in state.path(to) if to else ():
        if turn.sketch is None:
            continue
        now = Kept.of(turn.sketch)
        if _is_refused(turn):
            seen = now or seen
            continue
        if turn.only_pins and now is not None:
            kept, seen = kept.marked(seen, now).taking(turn.sketch, turn.taken), now
            # pins in a sketch that was refused make it no other sketch
            standing = standing if turn.breaches else turn
            continue
        standing = turn
        if now is None:
            continue  # with a layout that is broken, a person drops nothing
        if turn.author is Author.HUMAN:
            kept = kept.by_person(seen, now)
        seen = now
    return Held(standing, kept)


def _is_refused(turn: Turn) -> bool:
    return turn.author is not Author.HUMAN and bool(turn.breaches)
