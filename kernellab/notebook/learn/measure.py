"""A measurement next to its prediction."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import CourseError
from kernellab.notebook.saved.receipt import Shown
from kernellab.teach import progress
from kernellab.teach.judge import source_of
from kernellab.teach.measure import figures
from kernellab.teach.progress import Measured, Progress
from kernellab.teach.recorded import mark_of

if TYPE_CHECKING:
    from kernellab.records import Ranking, Source
    from kernellab.target import Target
    from kernellab.task import Task

#: a dashed frame: these figures are of another machine
_RECORDED = "border:2px dashed #cc79a7;padding:4px 10px;margin:4px 0"
Rank = Callable[["Task", "Source", "Target"], "Ranking"]


def measured(name: str, text: str, task: Task, rank: Rank, target: Target | None = None) -> Shown:
    """Times ``text``, keeps the figures under ``name``, and sets them next to the prediction. ``target`` is this
    machine's usual one by default.

    Raises:
        CourseError: it is not right, so that no time means anything.
    """
    from kernellab.dsls.machine import detect_target

    source = source_of(text, task, target.dsl if target else None)
    target = target or detect_target(source.dsl)
    measurement = figures(task, target, rank(task, source, target))
    before = progress.read()
    progress.record(Measured(name=name, ms=measurement.ms, speedup=measurement.speedup, time=time.time()))
    return _beside(f"{name}: {measurement.text}", name, measurement.speedup, before)


def replayed(name: str, text: str, chip: str) -> Shown:
    """What was measured of ``text`` on a chip that is not here, marked as recorded, next to the prediction.

    Raises:
        CourseError: the recording is of another text.
    """
    from kernellab.teach.recorded import chip_name, recording

    record = recording(name, text, chip_name(chip))
    if record is None:
        return unrecorded(name, chip)
    before = progress.read()
    progress.record(Measured(name=name, ms=record.ms, speedup=record.speedup, time=time.time()))
    return _beside(record.sentence, name, record.speedup, before, record.mark)


def unrecorded(name: str, chip: str) -> Shown:
    """Said of a measurement that has not been made on that chip yet."""
    from kernellab.teach.recorded import chip_name, recordings

    sentence = f"{name}: there is no recording of it on an {chip_name(chip)} yet. Without --on it is measured here."
    fast, over, slow = name.partition("/")
    if over:
        held = {row.name for row in recordings() if row.chip == chip_name(chip)}
        if held >= {fast, slow}:
            sentence = f"{name}: there is nothing to compare yet. Run the %%kernel_measure cells of both first."
    return Shown(sentence, f"<div style='{_RECORDED}'>{escape(sentence)}</div>")


def stated_value(name: str, value: object) -> Shown:
    """A ratio that the notebook computed, next to the prediction.

    Raises:
        CourseError: it is no positive number.
    """
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise CourseError(f"{value!r} is not a positive number.", "Give --value the name of a variable that holds one.")
    before = progress.read()
    progress.record(Measured(name=name, ms=0.0, speedup=number, time=time.time()))
    return _beside(f"{name}: {number:.3g}", name, number, before)


def compared(name: str, history: Progress, chip: str = "") -> Shown:
    """How many times as fast as B is A, next to the prediction; marked as recorded on ``chip`` where one is named.

    Raises:
        CourseError: one of them was not measured.
    """
    fast, over, slow = name.partition("/")
    ratio = history.ratio(name)
    if ratio is None and over and chip:
        return unrecorded(name, chip)
    if ratio is None or not over:
        missing = ", ".join(n for n in (fast, slow) if n and history.measurement(n) is None) or name
        raise CourseError(f"There is no measurement of {missing}.", "Run its %%kernel_measure cell first.")
    mark = mark_of(fast, chip) if chip else ""
    return _beside(f"{fast} is {ratio:.2f} times as fast as {slow}", name, ratio, history, mark)


def _beside(result: str, name: str, ratio: float | None, history: Progress, mark: str = "") -> Shown:
    stated = history.prediction(name)
    if stated is None and history.expects(name):
        sentence = ""
    elif stated is None:
        sentence = f"You did not predict it (%kernel_predict {name} 2x, before the measurement)."
    elif stated.expected is None or ratio is None:
        sentence = "You skipped this prediction."
    else:
        off = max(ratio / stated.expected, stated.expected / ratio)
        near = "near" if off <= progress.NEAR else f"off by {off:.1f}x: what did you not count?"
        sentence = f"You expected {stated.expected:g}x, measured {ratio:.2f}x: {near}"
    html = f"<b>{escape(result)}</b><br>{escape(sentence)}"
    if not mark:
        return Shown(f"{result}\n  {sentence}".rstrip(), html)
    return Shown(
        f"{result}\n  {mark}\n  {sentence}".rstrip(),
        f"<div style='{_RECORDED}'><b>{escape(result)}</b><br><i>{escape(mark)}</i><br>{escape(sentence)}</div>",
    )
