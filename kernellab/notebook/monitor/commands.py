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
    return named(ACTS, body, "action", "command")(desk, body) or ""


def _pause(desk: Desk, body: Body) -> None:
    desk.run.pause()


def _resume(desk: Desk, body: Body) -> None:
    desk.run.resume()


def _stop(desk: Desk, body: Body) -> None:
    desk.run.stop()


def _work(desk: Desk, body: Body) -> None:
    desk.run.work()


def _inject(desk: Desk, body: Body) -> str:
    text = words(body, "text")
    if not text.strip():
        raise EvolveError("The sketch is empty.", "Write one, or begin with that of a candidate.")
    island = number(body, "island")
    desk.run.inject(text, island=island, why=words(body, "why"))
    return f"The sketch goes to island {island}; it appears in the table when it is looked at."


def _protect(desk: Desk, body: Body) -> None:
    desk.run.protect(number(body, "number"))


def _drop(desk: Desk, body: Body) -> None:
    desk.run.drop(number(body, "number"))


def _freeze(desk: Desk, body: Body) -> None:
    desk.run.freeze(number(body, "island"))


def _thaw(desk: Desk, body: Body) -> None:
    desk.run.thaw(number(body, "island"))


def _knob(desk: Desk, body: Body) -> None:
    desk.run.set(**{words(body, "name"): words(body, "value")})


def _scratchpad(desk: Desk, body: Body) -> str:
    desk.run.write_scratchpad(words(body, "text"))
    return "Models receive it from their next proposal on."


def _direction(desk: Desk, body: Body) -> str:
    desk.run.direct(words(body, "text"))
    return "Models receive it from their next proposal on."


def _accept(desk: Desk, body: Body) -> str:
    desk.run.accept(words(body, "text"))
    return "The next rounds go that way."


def _refuse(desk: Desk, body: Body) -> None:
    desk.run.refuse()


def _remember(desk: Desk, body: Body) -> str:
    kept = desk.run.remember()
    return f"{counted(kept, 'kernel')} remembered." if kept else "Nothing new: all of it was remembered, or forgotten."


def _open(desk: Desk, body: Body) -> str:
    return desk.open(number(body, "number"))


ACTS: Mapping[str, Callable[[Desk, Body], str | None]] = {
    "pause": _pause,
    "resume": _resume,
    "stop": _stop,
    "work": _work,
    "inject": _inject,
    "protect": _protect,
    "drop": _drop,
    "freeze": _freeze,
    "thaw": _thaw,
    "knob": _knob,
    "scratchpad": _scratchpad,
    "direction": _direction,
    "accept": _accept,
    "refuse": _refuse,
    "open": _open,
    "remember": _remember,
}
