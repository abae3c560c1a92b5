"""The cards of the course: an exercise, what came of an answer, a prediction, a challenge, and how far one is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

from kernellab.notebook.learn.linked import linked
from kernellab.notebook.learn.picture import bar, wrong_svg
from kernellab.notebook.saved.coloured import coloured
from kernellab.notebook.saved.figures import BLUE, GREY, ORANGE, RED
from kernellab.notebook.saved.receipt import Shown
from kernellab.notebook.saved.snapshot import CELL, PRE, verdict_html
from kernellab.teach.goals import Facts, asked
from kernellab.teach.judge import Outcome, Reached
from kernellab.teach.progress import NEAR, Progress, calibration
from kernellab.teach.translate import Translation

if TYPE_CHECKING:
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    from kernellab.teach.challenge import Result
    from kernellab.teach.exercise import Course, Exercise
    from kernellab.teach.hints import Said
    from kernellab.teach.progress import Pair, Tried

_BOX = "border:1px solid rgba(128,128,128,.4);border-left:4px solid {};padding:4px 10px;margin:4px 0"
#: what an exercise of the attack lesson asks
_ATTACKS = {
    "break": "kernels that get past the toy judge, each in a cell %%kernel_attack; a point for each other hole",
    "close": "functions of the toy judge written again, in a cell %%kernel_attack --close; a point for each hole",
}
_COLOURS = {Reached.RIGHT: "#009e73", Reached.PASSED: "#009e73", Reached.GOAL: ORANGE}


def exercise_card(exercise: Exercise, text: str, progress: Progress) -> Shown:
    """What is asked: the task, the goals, the points, and how often it was tried."""
    goals = [_ATTACKS[exercise.attack]] if exercise.attack else asked(exercise.goals, exercise.essential)
    tries = _tries(exercise, progress)
    state = "passed" if progress.passed(exercise.id) else f"tried {tries} times" if tries else "not tried yet"
    points = f"{exercise.points} point{'s' if exercise.points > 1 else ''}"
    head = f"{exercise.id}: {exercise.title} ({points}; {state})"
    lines = [head, *(f"  asked: {goal}" for goal in goals), text.strip()]
    rows = "".join(f"<li>{escape(goal)}</li>" for goal in goals)
    code = f"<pre {PRE}>{coloured(text.strip(), 'task.py')}</pre>" if text else ""
    html = f"<b>{escape(head)}</b>{f'<ul>{rows}</ul>' if rows else ''}{code}"
    return Shown("\n".join(lines), html)


def framed(head: str, sentence: str, reached: Reached, hint: str = "") -> Shown:
    """A head, a sentence and a hint, in the colour of what was reached."""
    html = f"<div style='{_BOX.format(_COLOURS.get(reached, RED))}'><b>{escape(head)}</b><br>{escape(sentence)}"
    html += f"<p>{escape(hint)}</p></div>" if hint else "</div>"
    return Shown("\n".join([head, *(f"  {text}" for text in (sentence, hint) if text)]), html)


def outcome_card(
    title: str, outcome: Outcome, hint: Said | None, notes: Sequence[str] = (), text: str = "",
    codes: Sequence[Translation] = (),
) -> Shown:  # fmt: skip
    """How far an answer came, the hint, and the picture of what was wrong; of a right sketch ``text`` what the rules
    make of it in other languages."""
    head = f"{title}: {outcome.reached.value}"
    if outcome.verdict is not None and outcome.verdict.passed:
        head += f" ({outcome.verdict.trust.value})"
    said = f"{outcome.sentence}{_facts(outcome.facts)}"
    lines = [head, f"  {said}"]
    if outcome.wrong is not None and not outcome.reached.good:
        lines += [f"  {row}" for row in _excerpt(outcome.wrong.rows)]
    lines += [f"  {row}" for row in (str(hint) if hint else "", *notes) if row]
    colour = _COLOURS.get(outcome.reached, RED)
    html = f"<div style='{_BOX.format(colour)}'><b>{escape(head)}</b><br>{escape(said)}"
    if outcome.wrong is not None:
        html += wrong_svg(outcome.wrong)
    if hint is not None:
        html += f"<p><i>Hint {hint.step} of {hint.steps}.</i> {escape(hint.text)}</p>"
    html += "".join(f"<p>{escape(note)}</p>" for note in notes)
    html += "".join(linked(text, code) for code in codes)
    if outcome.verdict is not None:
        html += f"<details><summary>the whole verdict</summary>{verdict_html(outcome.verdict)}</details>"
    return Shown("\n".join(lines), f"{html}</div>")


def _excerpt(rows: Sequence[str]) -> Sequence[str]:
    """Eight rows of a picture for those who read text: the first ones, unless all of them are right."""
    first = next((i for i, row in enumerate(rows) if row.strip(".")), 0)
    return rows[:8] if first < 8 else rows[first : first + 8]


def _facts(facts: Facts | None) -> str:
    if facts is None:
        return ""
    launches = f"{facts.launches} launch{'es' if facts.launches != 1 else ''}"
    return f" ({launches}, {facts.traffic:.2f} times the bytes of inputs and outputs)"


def challenge_card(title: str, result: Result, tries: Sequence[Tried]) -> Shown:
    """The grade, what it rests on, the rules' kernel to beat, and one's own best."""
    outcome, verdict = result.outcome, result.outcome.verdict
    if not outcome.reached.good:
        return outcome_card(title, outcome, None, ["%kernel_challenge NAME --hint says a little more each time."])
    best = [t for t in tries if t.passed and t.ms is not None]
    lines = [f"{title}: grade {result.grade} ({result.why}) at {verdict.trust.value if verdict else ''}"]
    if verdict is not None:
        lines.append(f"  {verdict.text}")
        rules = verdict.against("rules")
        if rules is not None:
            beaten = "you beat the rules' kernel" if rules.low > 1 else "the rules' kernel is not beaten yet"
            lines.append(f"  {beaten}: {rules.text}")
    if best:
        lines.append(f"  your best of {len(tries)}: {min(t.ms for t in best if t.ms):.3g} ms")
    share = verdict.bound_share if verdict is not None else None
    html = "<br>".join(escape(line.strip()) for line in lines)
    if share is not None:
        html += f"<br>{bar(share, f'{100 * share:.0f}% of the bound')}"
    html += tries_svg(tries)
    if verdict is not None:
        html += f"<details><summary>the whole verdict</summary>{verdict_html(verdict)}</details>"
    return Shown("\n".join(lines), f"<div style='{_BOX.format('#009e73')}'>{html}</div>")


def tries_svg(tries: Sequence[Tried]) -> str:
    """One's own times, try by try, and the best so far as a line; "" for fewer than two."""
    timed = [t.ms for t in tries if t.ms]
    if len(timed) < 2:
        return ""
    low, high = math.log(min(timed)), math.log(max(timed))
    span = (high - low) or 1.0
    points = [(12 + 24 * i, 6 + 44 * (1 - (math.log(ms) - low) / span)) for i, ms in enumerate(timed)]
    # y grows downwards, where the faster ones are
    fastest_y = accumulate((y for _, y in points), max)
    line = [f"{x},{best_y:.1f}" for (x, _), best_y in zip(points, fastest_y, strict=True)]
    dots = "".join(f"<circle cx='{x}' cy='{y:.1f}' r='3' fill='{BLUE}'/>" for x, y in points)
    words = f"{len(timed)} timed tries, from {timed[0]:.3g} to {timed[-1]:.3g} ms, the best {min(timed):.3g} ms"
    width = 24 * len(timed) + 12
    return (
        f"<figure style='margin:4px 0'><svg role='img' aria-label='{words}' width='{width}' height='58'>"
        f"<title>{words}</title><polyline points='{' '.join(line)}' fill='none' stroke='{ORANGE}'/>{dots}</svg>"
        f"<figcaption>{words}; lower is faster</figcaption></figure>"
    )


def progress_card(course: Course, progress: Progress, only: str = "") -> Shown:
    """Each lesson's exercises and points, and how near the predictions were."""
    lessons = {name: lesson for name, lesson in course.lessons.items() if not only or lesson is course.lesson(only)}
    lines, rows, total, reached = [], "", 0, 0
    for name, lesson in lessons.items():
        got, most = sum(map(progress.points, lesson.exercise)), sum(e.points for e in lesson.exercise)
        total, reached = total + most, reached + got
        words = ", ".join(f"{exercise.id} {_progress_words(exercise, progress)}" for exercise in lesson.exercise)
        lines.append(f"{name}: {got} of {most} points ({words})")
        rows += f"<tr><td {CELL}>{escape(name)}</td><td {CELL}>{got} of {most}</td><td {CELL}>{escape(words)}</td></tr>"
    whole = f"in all: {reached} of {total} points. " if not only else ""
    lines.append(whole + calibration(progress.pairs()))
    head = "".join(f"<th {CELL}>{word}</th>" for word in ("lesson", "points", "exercises"))
    return Shown("\n".join(lines), f"<table><tr>{head}</tr>{rows}</table><p>{escape(lines[-1])}</p>")


def _progress_words(exercise: Exercise, progress: Progress) -> str:
    if progress.points(exercise) == exercise.points:
        return "passed"
    tries = _tries(exercise, progress)
    return f"open, {tries} tried" if tries else "open"


def _tries(exercise: Exercise, progress: Progress) -> int:
    """How many different answers were tried."""
    return len({attempt.text for attempt in progress.attempts(exercise.id)})


def calibration_figure(pairs: Sequence[Pair]) -> go.Figure:
    """Measured over expected, prediction by prediction, with the band that counts as near and the running miss."""
    import plotly.graph_objects as go

    at = list(range(1, len(pairs) + 1))
    misses = [math.log(pair.miss) for pair in pairs]
    running = [math.exp(sum(misses[max(0, i - 5) : i]) / len(misses[max(0, i - 5) : i])) for i in at]
    drawn = go.Figure()
    drawn.add_hrect(y0=1 / NEAR, y1=NEAR, fillcolor=GREY, opacity=0.15, line_width=0)
    drawn.add_scatter(
        x=at, y=[p.measured / p.expected for p in pairs], mode="markers", name="measured over expected",
        hovertext=[p.name for p in pairs], marker={"color": BLUE, "size": 9},
    )  # fmt: skip
    drawn.add_scatter(x=at, y=running, mode="lines", name="typical miss, last five", line={"color": ORANGE})
    drawn.update_xaxes(title="prediction", dtick=1)
    drawn.update_yaxes(type="log", title="times; 1 is as expected")
    return drawn.update_layout(title="How near your predictions come")
