"""The attack lesson in a notebook: the toy judge, one attempt, and what a repaired judge refuses."""

from __future__ import annotations

import time
from dataclasses import replace
from html import escape
from typing import NamedTuple

from kernellab.errors import counted
from kernellab.notebook.learn.card import framed
from kernellab.notebook.saved.coloured import coloured
from kernellab.notebook.saved.receipt import Shown
from kernellab.notebook.saved.snapshot import PRE
from kernellab.teach import attack, progress
from kernellab.teach.exercise import Exercise, course
from kernellab.teach.hints import hint_for
from kernellab.teach.judge import Outcome, Reached

#: holes that the cells of this process went through
_through: set[str] = set()


def shown() -> Shown:
    """The judge's text, and the holes that were gone through so far."""
    used = progress.read().holes(course().attack("break").id)
    head = (
        f"The judge. You went through {len(used)} of its {counted(len(attack.holes()), 'hole')}{_listed(sorted(used))}."
    )
    text = attack.judge_text().strip()
    return Shown(f"{head}\n{text}", f"<b>{escape(head)}</b><pre {PRE}>{coloured(text, 'judge.py')}</pre>")


class Scored(NamedTuple):
    """The card of an answer, the exercise that it answers, and the points of this process's answers to it."""

    card: Shown
    exercise: str
    points: int


def broken(source: str) -> Scored:
    """One attempt to get past the judge."""
    exercise, attempt = course().attack("break"), attack.attempted(source)
    new_holes = set(attempt.holes) - _through
    is_first = not _through
    _through.update(attempt.holes)
    head, outcome = _described(attempt)
    if attempt.holes:
        outcome = "" if is_first else f"{len(new_holes)} of them new here. "
        outcome += f"{len(_through)} of {len(attack.holes())} so far."
    left = [name for name in attack.holes() if name not in progress.read().holes(exercise.id) | _through]
    # an honest kernel is no failed attack: it takes no step of a hint
    keys = ("honest",) if attempt.honest else attempt.holes or tuple(f"hole-{name}" for name in left[:1])
    card = _card(exercise, source, bool(attempt.holes), keys, head, outcome)
    return Scored(card, exercise.id, min(exercise.points, len(_through)))


def _described(attempt: attack.Attempt) -> tuple[str, str]:
    """What came of an attempt: a head, and a sentence where it went through no hole."""
    if attempt.holes:
        return f"accepted, through {counted(len(attempt.holes), 'hole')}{_listed(attempt.holes)}", ""
    if attempt.honest:
        return (
            "accepted, and no hole was needed",
            "With all holes closed it is accepted too: an honest kernel, or a hole that is not on the list.",
        )
    if attempt.unsteady:
        return (
            "accepted or refused, as it happens",
            "Equal runs end differently, so no hole is sure. Make it do the same in each run.",
        )
    if attempt.together:
        return (
            f"accepted, through two holes at once{_listed(attempt.together)}",
            "Neither of them is enough by itself, so there is no point yet: make it need one hole alone.",
        )
    head = "accepted, through more than two holes at once" if attempt.ruling.accepted else "refused"
    return head, f"The judge: {attempt.ruling.why}."


def closed(repairs: str) -> Scored:
    """The judge with the cell's functions in place of the judge's, against cheats and honest kernels."""
    exercise, result = course().attack("close"), attack.repaired(repairs)
    left = [name for name in attack.holes() if name not in result.closed]
    if result.refused:
        name, why = result.refused[0]
        head = "an honest kernel is refused, so nothing counts"
        sentence = f"{name}: {why}." if why else f"It is the one that is called {name}."
        fault = "honest-refused"
    else:
        head = f"{len(result.closed)} of {counted(len(attack.holes()), 'hole')} closed"
        sentence = f"Accepted all the same: {', '.join(result.passed)}." if result.passed else "No cheat gets through."
        fault = f"close-{left[0]}" if left and result.closed else "close-nothing"
    keys = result.closed or (fault,)
    card = _card(exercise, repairs, bool(result.closed), keys, head, sentence, fault if left else "")
    return Scored(card, exercise.id, min(exercise.points, len(result.closed)))


def _card(
    exercise: Exercise, text: str, good: bool, keys: tuple[str, ...], head: str, sentence: str, fault: str = ""
) -> Shown:
    """``fault`` is what a good answer has left to do."""
    lessons, history, name = course(), progress.read(), progress.text_hash(text)
    outcome = Outcome(Reached.RIGHT if good else Reached.WRONG, sentence, keys)
    asked = replace(outcome, reached=Reached.WRONG, keys=(fault,)) if fault else outcome
    hint = hint_for(exercise, asked, lessons, history, text)
    progress.record(
        progress.Attempt(exercise=exercise.id, text=name, reached=head, good=good, keys=keys, time=time.time())
    )
    return framed(f"{exercise.id}: {head}", sentence, outcome.reached, str(hint) if hint else "")


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return f" ({', '.join(names)})" if names else ""
