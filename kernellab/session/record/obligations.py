"""What a line of turns obliges agents to keep: the lines that a person pinned, and the constraints that a person wrote.

An agent's own pins and constraints bind no one: it could not drop them again, and no person asked for them. Nor is
anything compared with a sketch that was refused for a pin or a constraint: the next one would be free of what it broke.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernellab.records import Author
from kernellab.session.record.records import Turn
from kernellab.session.record.state import State
from kernellab.sketch.syntax.pins import Kept


@dataclass(frozen=True)
class Obligations:
    """``turn`` has the sketch with which an agent's is compared, None before the first one; ``kept`` is a person's."""

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


def obligations_at(state: State, to: str | None) -> Obligations:
    """What the turns up to ``to`` oblige agents to keep."""
    compared_turn: Turn | None = None
    kept = Kept()
    # everyone's, of the last sketch: of a refused one too, which a person edits or pins next
    last_written = Kept()
    for turn in state.path(to) if to else ():
        if turn.sketch is None:
            continue
        written = Kept.of(turn.sketch)  # None: its layout is broken, and by that a person drops nothing
        if turn.breaches and turn.author is not Author.HUMAN:
            last_written = written or last_written
        elif turn.only_pins and written is not None:
            kept = kept.marked(last_written, written).taking(turn.sketch, turn.taken)
            last_written = written
            # pins in a sketch that was refused make it no other sketch
            compared_turn = compared_turn if turn.breaches else turn
        else:
            compared_turn = turn
            if written is not None and turn.author is Author.HUMAN:
                kept = kept.by_person(last_written, written)
            last_written = written or last_written
    return Obligations(compared_turn, kept)
