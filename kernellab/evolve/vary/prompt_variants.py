"""The ways in which a model is asked: each is a separate operator, so that the bandit credits prompts."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kernellab.evolve.policies import Request
from kernellab.evolve.records import Step
from kernellab.evolve.state import RunState

#: Number of failed relatives that a model sees, and of changed lines of each.
_FAILED, _LINES = 4, 12
#: Number of the search's largest gains that an agent sees, and the minimum gain.
_GAINS, _GAINED = 3, 1.05
#: Maximum characters of a candidate's rationale.
_WHY = 160


@dataclass(frozen=True)
class Instructions:
    """A way's additions to the brief: the sketch to revise ("" for none), the instruction, and the evidence."""

    previous: str
    wanted: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Way:
    """A way to ask a model. ``suits`` returns whether a request has what the way needs."""

    name: str
    suits: Callable[[RunState, Request], bool]
    instructions: Callable[[RunState, Request], Instructions]


def _difference(state: RunState, request: Request) -> Instructions:
    parent = request.parents[0]
    instruction = f"Change one thing in candidate {parent}, what promises most, and leave every other line as it is."
    return Instructions(_sketch(state, parent), instruction, _relatives(state, request))


def _whole(state: RunState, request: Request) -> Instructions:
    parent = request.parents[0]
    technique = state.evaluations[parent].place.technique
    kind = f', which is of the kind "{technique}"' if technique else ""
    aim = f"Design it from the start, with another algorithm or another order of work than candidate {parent}{kind}."
    return Instructions("", aim, (relative(state, parent), *_relatives(state, request)))


def _cross(state: RunState, request: Request) -> Instructions:
    parent, other_number = request.parents[0], _other(state, request)
    assert other_number is not None
    instruction = f"Take what is good in candidate {other_number} into the sketch so far, which is candidate {parent}."
    other_sketch = f"The sketch of candidate {other_number}:\n```sketch\n{_sketch(state, other_number).strip()}\n```"
    return Instructions(_sketch(state, parent), instruction, (relative(state, other_number), other_sketch))


def _failed(state: RunState, request: Request) -> Instructions:
    parent = request.parents[0]
    instruction = "Reach what these meant without their fault, or go another way if it cannot be reached."
    evidence = []
    for number in _failures(state, parent)[-_FAILED:]:
        evidence += [relative(state, number), *_changed(_sketch(state, parent), _sketch(state, number))]
    return Instructions(_sketch(state, parent), instruction, tuple(evidence))


def _lineage(state: RunState, request: Request) -> Instructions:
    """As in AVO (arXiv:2603.24517): the agent consults lineage, failures and measurements, and tries changes itself."""
    parent = request.parents[0]
    instruction = (
        f"Improve candidate {parent} by whatever promises most. Look at its lineage and at what failed, try changes "
        "with your tools, correct what is wrong, and submit the best sketch that you found."
    )
    lineage = [n for n in state.lineage(parent) if n in state.evaluations]
    failed = _failures(state, parent)[-_FAILED:]
    evidence = tuple(relative(state, n) for n in dict.fromkeys((*lineage, *failed))) + _relatives(state, request)
    return Instructions(_sketch(state, parent), instruction, evidence + tuple(_gains(state, evidence)))


def relative(state: RunState, number: int) -> str:
    """A candidate in one line: its origin and its result."""
    proposal, evaluation = state.proposals[number], state.evaluations[number]
    result = worth(state, number) if evaluation.passed else f"failed at {evaluation.step.value}"
    why = textwrap.shorten(proposal.why, _WHY, placeholder=" ...")
    return f"Candidate {number} ({proposal.operator}: {why}): {result}. {evaluation.reason}".strip()


def worth(state: RunState, number: int) -> str:
    """The value by which a passed candidate is ordered, in words."""
    if state.knobs.score == "rank":
        return f"{state.worth(number):.2f}x the reference's speed"
    return f"{state.evaluations[number].modelled_ms or 0:.4g} ms by the cost model"


def _relatives(state: RunState, request: Request) -> tuple[str, ...]:
    """The parent's evaluated children, its failures, and the request's inspirations."""
    parent = request.parents[0]
    evaluated = [n for n in state.children(parent) if n in state.evaluations and n not in request.inspirations]
    failed = [n for n in evaluated if not state.evaluations[n].passed]
    best = sorted((n for n in evaluated if state.alive(n)), key=state.worth)
    return tuple(relative(state, n) for n in (*request.inspirations, *best[-2:], *failed[-_FAILED:]))


def _gains(state: RunState, present: Sequence[str]) -> Iterator[str]:
    """Yield the largest gains over a parent in the whole search, with the changes that made them; for candidates that
    are already in ``present``, only the change."""
    gains = {n: state.worth(n) / state.worth(p.parents[0]) for n, p in state.proposals.items()
            if p.parents and state.alive(n) and state.worth(p.parents[0])}  # fmt: skip
    for number in sorted((n for n in gains if gains[n] > _GAINED), key=lambda n: -gains[n])[:_GAINS]:
        parent, line = state.proposals[number].parents[0], relative(state, number)
        yield f"Candidate {number} is {gains[number]:.2f} times as fast as candidate {parent}, which it was made from."
        yield from [line] if line not in present else []
        yield from _changed(_sketch(state, parent), _sketch(state, number))


def _changed(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    changed_lines = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return [f"It changed:\n```diff\n{chr(10).join(changed_lines[:_LINES])}\n```"] if changed_lines else []


def _failures(state: RunState, parent: int) -> list[int]:
    """Children that failed and have a sketch to show; repetitions do not count as failures."""
    evaluated = {n: state.evaluations[n] for n in state.children(parent) if n in state.evaluations}
    failed = [n for n, e in evaluated.items() if not e.passed and e.same_as is None and e.step is not Step.NOVELTY]
    return [n for n in failed if state.proposals[n].sketch]


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

#: The way to ask an agent, which looks up other facts itself.
LINEAGE = Way("lineage", lambda state, request: bool(_sketch(state, request.parents[0])), _lineage)
#: Name -> way.
WAYS: Mapping[str, Way] = MappingProxyType({way.name: way for way in _ALL})

__all__ = ["LINEAGE", "WAYS", "Instructions", "Way", "relative", "worth"]
