"""In which way a model is asked: each way is a separate operator, so that the bandit credits a prompt."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kernellab.evolve.policies import Request
from kernellab.evolve.records import Step
from kernellab.evolve.state import RunState

#: relatives that failed and are shown to the model, and lines of what each had changed
_FAILED, _LINES = 4, 12
#: changes of the whole search that gained most and are shown to an agent, and from which gain on
_GAINS, _GAINED = 3, 1.05
#: characters of what a candidate's maker said of it
_WHY = 160


@dataclass(frozen=True)
class Told:
    """What a way adds to the brief: the sketch to revise ("" for none), what is wanted, and what is shown."""

    previous: str
    wanted: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """``suits`` says whether a request has what it takes."""

    name: str
    suits: Callable[[RunState, Request], bool]
    told: Callable[[RunState, Request], Told]


def _difference(state: RunState, request: Request) -> Told:
    parent = request.parents[0]
    wanted = f"Change one thing in candidate {parent}, what promises most, and leave every other line as it is."
    return Told(_sketch(state, parent), wanted, _near(state, request))


def _whole(state: RunState, request: Request) -> Told:
    parent = request.parents[0]
    technique = state.evaluations[parent].place.technique
    kind = f', which is of the kind "{technique}"' if technique else ""
    wanted = f"Design it from the start, with another algorithm or another order of work than candidate {parent}{kind}."
    return Told("", wanted, (relative(state, parent), *_near(state, request)))


def _cross(state: RunState, request: Request) -> Told:
    parent, other = request.parents[0], _other(state, request)
    assert other is not None
    wanted = f"Take what is good in candidate {other} into the sketch so far, which is candidate {parent}."
    shown = f"The sketch of candidate {other}:\n```sketch\n{_sketch(state, other).strip()}\n```"
    return Told(_sketch(state, parent), wanted, (relative(state, other), shown))


def _failed(state: RunState, request: Request) -> Told:
    parent = request.parents[0]
    wanted = "Reach what these meant without their fault, or go another way if it cannot be reached."
    told = []
    for number in _failures(state, parent)[-_FAILED:]:
        told += [relative(state, number), *_changed(_sketch(state, parent), _sketch(state, number))]
    return Told(_sketch(state, parent), wanted, tuple(told))


def _lineage(state: RunState, request: Request) -> Told:
    """As in AVO (arXiv:2603.24517): the agent consults lineage, failures and measurements, and tries by itself."""
    parent = request.parents[0]
    wanted = (
        f"Improve candidate {parent} by whatever promises most. Look at its lineage and at what failed, try changes "
        "with your tools, correct what is wrong, and submit the best sketch that you found."
    )
    line = [n for n in state.lineage(parent) if n in state.evaluations]
    failed = _failures(state, parent)[-_FAILED:]
    near = tuple(relative(state, n) for n in dict.fromkeys((*line, *failed))) + _near(state, request)
    return Told(_sketch(state, parent), wanted, near + tuple(_gains(state, near)))


def relative(state: RunState, number: int) -> str:
    """A candidate in one line: how it was made, and what came of it."""
    proposal, evaluation = state.proposals[number], state.evaluations[number]
    came = worth(state, number) if evaluation.passed else f"failed at {evaluation.step.value}"
    why = textwrap.shorten(proposal.why, _WHY, placeholder=" ...")
    return f"Candidate {number} ({proposal.operator}: {why}): {came}. {evaluation.reason}".strip()


def worth(state: RunState, number: int) -> str:
    """What a candidate that passed is ordered by, in words."""
    if state.knobs.score == "rank":
        return f"{state.worth(number):.2f}x the reference's speed"
    return f"{state.evaluations[number].modelled_ms or 0:.4g} ms by the cost model"


def _near(state: RunState, request: Request) -> tuple[str, ...]:
    """What was tried from the parent already, what failed of it, and who is looked at in addition."""
    parent = request.parents[0]
    tried = [n for n in state.children(parent) if n in state.evaluations and n not in request.inspirations]
    failed = [n for n in tried if not state.evaluations[n].passed]
    best = sorted((n for n in tried if state.alive(n)), key=state.worth)
    return tuple(relative(state, n) for n in (*request.inspirations, *best[-2:], *failed[-_FAILED:]))


def _gains(state: RunState, told: Sequence[str]) -> Iterator[str]:
    """What gained most over its parent in the whole search, and what was changed for it: where others found something
    faster; of those ``told`` already the change alone."""
    over = {n: state.worth(n) / state.worth(p.parents[0]) for n, p in state.proposals.items()
            if p.parents and state.alive(n) and state.worth(p.parents[0])}  # fmt: skip
    for number in sorted((n for n in over if over[n] > _GAINED), key=lambda n: -over[n])[:_GAINS]:
        parent, line = state.proposals[number].parents[0], relative(state, number)
        yield f"Candidate {number} is {over[number]:.2f} times as fast as candidate {parent}, which it was made from."
        yield from [line] if line not in told else []
        yield from _changed(_sketch(state, parent), _sketch(state, number))


def _changed(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    kept = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [f"It changed:\n```diff\n{chr(10).join(kept[:_LINES])}\n```"] if kept else []


def _failures(state: RunState, parent: int) -> list[int]:
    """Children that were tried and failed, with a sketch that can be shown; one that is nothing new has not failed."""
    done = {n: state.evaluations[n] for n in state.children(parent) if n in state.evaluations}
    wrong = [n for n, e in done.items() if not e.passed and e.same_as is None and e.step is not Step.NOVELTY]
    return [n for n in wrong if state.proposals[n].sketch]


def _other(state: RunState, request: Request) -> int | None:
    parent = _sketch(state, request.parents[0])
    return next((n for n in request.inspirations if _sketch(state, n) not in ("", parent)), None)


def _sketch(state: RunState, number: int) -> str:
    return state.proposals[number].sketch


_ALL = (
    Way("difference", lambda state, request: bool(_sketch(state, request.parents[0])), _difference),
    Way("whole", lambda state, request: True, _whole),
    Way("cross", lambda state, request: _other(state, request) is not None, _cross),
    Way("failed", lambda state, request: bool(_failures(state, request.parents[0])), _failed),
)

#: how an agent is asked: it looks up the rest by itself
LINEAGE = Way("lineage", lambda state, request: bool(_sketch(state, request.parents[0])), _lineage)
#: name -> way
WAYS: Mapping[str, Way] = MappingProxyType({way.name: way for way in _ALL})

__all__ = ["LINEAGE", "WAYS", "Told", "Way", "relative", "worth"]
