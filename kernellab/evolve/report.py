"""A run as one read-only HTML page without a server or a script: progress, rounds, candidates, lineage, words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import jinja2

from kernellab.evolve.records import Proposal
from kernellab.evolve.state import RunState
from kernellab.evolve.summary import Summary, summary

WIDTH, HEIGHT, LEFT, BOTTOM = 860, 320, 56, 36
#: One colour per island, readable on white and on black.
COLOURS = ("#2f7ed8", "#d8762f", "#3f9b3f", "#b04fb0", "#a08a10", "#c0392b", "#17a2b8", "#7f8c8d")
#: Maximum number of candidates with sketches on the page.
_SHOWN = 12


_RANKED = "Speedup over the reference by evaluation: large dots are verified, the dashed line is the reference"
_MODELLED = "The cost model's time by evaluation, the least on top; large dots are verified"


@dataclass(frozen=True)
class Point:
    """A candidate on the chart, in pixels."""

    number: int
    x: float
    y: float
    colour: str
    title: str
    verified: bool


@dataclass(frozen=True)
class Tick:
    """A mark on the chart's axis, in pixels."""

    y: float
    text: str


@dataclass(frozen=True)
class Chart:
    """The candidates' order value over evaluations: speedups over the reference, or the cost model's times. A
    logarithmic axis, and a step line for the best."""

    points: tuple[Point, ...]
    line: str
    ticks: tuple[Tick, ...]
    #: The reference's position; None for the cost model's times, which have no reference.
    eager: float | None
    #: The content of the chart, in words.
    said: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    number: int
    round: int
    island: int
    operator: str
    parents: str
    text: str
    reason: str
    colour: str


def page(run: str, state: RunState) -> str:
    """Return the page's HTML."""
    figures: Summary = summary(run, state)
    shown = state.ordered(state.evaluations)[:_SHOWN]
    rows = [row(state, number) for number in [*shown, *(n for n in state.evaluations if n not in set(shown))]]
    sketches = [(state.proposals[n], row(state, n)) for n in shown if state.proposals[n].sketch]
    return template("report.html.j2").render(
        found=figures, chart=chart(state), rows=rows, sketches=sketches, knobs=state.knobs, scratchpad=state.scratchpad,
        lineage=[state.proposals[n] for n in state.lineage(figures.best)] if figures.best is not None else [],
        width=WIDTH, height=HEIGHT, left=LEFT, bottom=BOTTOM, colours=list(enumerate(COLOURS[: len(state.islands)])),
    )  # fmt: skip


def part(run: str, state: RunState) -> str:
    """A notebook's permanent output of a run: its end, chart, rounds and best candidates, with inline styles."""
    shown = state.ordered(state.evaluations)[:_SHOWN]
    return template("part.html.j2").render(
        found=summary(run, state), chart=chart(state), rows=[row(state, number) for number in shown],
        width=WIDTH, height=HEIGHT, left=LEFT, colours=list(enumerate(COLOURS[: len(state.islands)])),
        cell="text-align: left; padding: 2px 10px 2px 0; vertical-align: top",
    )  # fmt: skip


def chart(state: RunState) -> Chart:
    """Return the chart; empty if no candidate has a speedup."""
    worths = {n: state.worth(n) for n in state.evaluations if state.worth(n) > 0}
    if not worths:
        return Chart((), "", (), None)
    is_ranked = state.knobs.score == "rank"
    values = [*worths.values(), *([1.0] if is_ranked else [])]
    low, high = min(values), max(values)
    span = math.log(high / low) or 1.0
    places = {number: at for at, number in enumerate(state.evaluations)}

    def x(at: float) -> float:
        return LEFT + at / max(1, len(places) - 1) * (WIDTH - LEFT - 12)

    def y(worth: float) -> float:
        return round(12 + (1 - math.log(worth / low) / span) * (HEIGHT - BOTTOM - 12), 1)

    def text(worth: float) -> str:
        return f"{worth:.2f}x" if is_ranked else f"{1 / worth:.3g} ms"

    points = tuple(
        Point(
            n,
            x(places[n]),
            y(worth),
            _colour(state.proposals[n]),
            f"{n}: {text(worth)}, {state.proposals[n].operator}",
            n in state.verdicts,
        )
        for n, worth in worths.items()
    )
    steps: list[str] = []
    for at, number in state.improvements:
        if number in worths:
            steps += (
                [f"H{x(at - 1):.1f}", f"V{y(worths[number]):.1f}"]
                if steps
                else [f"M{x(at - 1):.1f} {y(worths[number]):.1f}"]
            )
    line = " ".join([*steps, f"H{WIDTH - 12}"]) if steps else ""
    marks = [low * (high / low) ** (at / 4) for at in range(5)]
    ticks = tuple(Tick(y(m), text(m)) for m in marks)
    return Chart(points, line, ticks, y(1.0) if is_ranked else None, _RANKED if is_ranked else _MODELLED)


def row(state: RunState, number: int) -> Row:
    """Return a candidate's row of the table."""
    proposal, evaluation = state.proposals[number], state.evaluations[number]
    score, verdict = state.scores.get(number), state.verdicts.get(number)
    text = verdict.text if verdict else ""
    if not text and score is not None:
        text = f"{score.time.median_ms:.4g} ms, ranked {score.speedup:.2f}x [{score.low:.2f}, {score.high:.2f}]"
    if not text and evaluation.passed and evaluation.modelled_ms:
        text = f"modelled {evaluation.modelled_ms:.4g} ms"
    prefix = "" if evaluation.passed else f"{evaluation.step.value}: "
    reason = verdict.reason if verdict else evaluation.reason
    return Row(
        number, proposal.round, proposal.island, proposal.operator, ", ".join(map(str, proposal.parents)), text,
        f"{prefix}{reason or proposal.why}", _colour(proposal),
    )  # fmt: skip


def _colour(proposal: Proposal) -> str:
    return COLOURS[proposal.island % len(COLOURS)]


@cache
def template(name: str) -> jinja2.Template:
    """Return a template of this package."""
    loader = jinja2.PackageLoader("kernellab.evolve", ".")
    return jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True).get_template(name)
