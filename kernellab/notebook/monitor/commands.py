"""What a person decides in the monitor, in the run's words. One function a decision; the protocol's ``Act``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernellab.errors import EvolveError, counted
from kernellab.evolve.run import Run
from kernellab.notebook.board.body import Body, named, number, words


@dataclass(frozen=True)
class Desk:
    """What a decision is about: the run, and what opens a candidate in a workbench and says where it is."""

    run: Run
    open: Callable[[int], str]


def carry_out(desk: Desk, body: Body) -> str:
    """Do it, and return a note for the person.

    Raises:
        KernellabError: it is not understood, or the run's state does not allow it; nothing was done then.
    """
    note = named(ACTS, body, "action", "command")(desk, body)
    return note if isinstance(note, str) else ""


def _inject(desk: Desk, body: Body) -> str:
    text = words(body, "text")
    if not text.strip():
        raise EvolveError("The sketch is empty.", "Write one, or begin with that of a candidate.")
    island = number(body, "island")
    desk.run.inject(text, island=island, why=words(body, "why"))
    return f"The sketch goes to island {island}; it appears in the table when it is looked at."


def _scratchpad(desk: Desk, body: Body) -> str:
    desk.run.write_scratchpad(words(body, "text"))
    return "Models receive it from their next proposal on."


def _direction(desk: Desk, body: Body) -> str:
    desk.run.direct(words(body, "text"))
    return "Models receive it from their next proposal on."


def _accept(desk: Desk, body: Body) -> str:
    desk.run.accept(words(body, "text"))
    return "The next rounds go that way."


def _remember(desk: Desk, body: Body) -> str:
    count = desk.run.remember()
    return (
        f"{counted(count, 'kernel')} remembered." if count else "Nothing new: all of it was remembered, or forgotten."
    )


ACTS: Mapping[str, Callable[[Desk, Body], object]] = {
    "pause": lambda desk, body: desk.run.pause(),
    "resume": lambda desk, body: desk.run.resume(),
    "stop": lambda desk, body: desk.run.stop(),
    "work": lambda desk, body: desk.run.work(),
    "inject": _inject,
    "protect": lambda desk, body: desk.run.protect(number(body, "number")),
    "drop": lambda desk, body: desk.run.drop(number(body, "number")),
    "freeze": lambda desk, body: desk.run.freeze(number(body, "island")),
    "thaw": lambda desk, body: desk.run.thaw(number(body, "island")),
    "knob": lambda desk, body: desk.run.set(**{words(body, "name"): words(body, "value")}),
    "scratchpad": _scratchpad,
    "direction": _direction,
    "accept": _accept,
    "refuse": lambda desk, body: desk.run.refuse(),
    "open": lambda desk, body: desk.open(number(body, "number")),
    "remember": _remember,
}
