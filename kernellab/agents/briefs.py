"""What a role receives and what it answers; the same for rules, models and people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from kernellab.conditions import Condition, DrawnLimit
from kernellab.records import Author, Candidate, Comparison, GateResult, Role, Route, Source, Verdict
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.sketch.syntax.tree import Declaration
    from kernellab.task import Task

#: an interval whose ends are this factor apart ranks no kernel
_WIDE = 2.0

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Attempt:
    """One earlier round in this line of turns: what was tried and what came of it."""

    candidate: Candidate | None = None
    sketch: str | None = None
    gate: GateResult | None = None
    verdict: Verdict | None = None
    route: Route | None = None
    #: who made its sketch, or the code where the sketch is an earlier one; and what for, in its author's words
    author: Author | None = None
    rationale: str = ""
    #: of its kernel among those of the session that passed, 0 is the best; None where no session ranked it
    place: int | None = None
    #: its kernel against the best one until then, timed in one run; None where that was not needed
    next_to_best: Comparison | None = None


def best_of(history: Sequence[Attempt]) -> Attempt | None:
    """The best round of those that passed and were timed, as a session ranks its kernels; the first of equal ones."""
    timed = [
        (math.inf if a.place is None else a.place, a.verdict.rank, n)
        for n, a in enumerate(history) if a.verdict and a.verdict.passed and a.verdict.time
    ]  # fmt: skip
    return history[min(timed)[-1]] if timed else None


def times_as_fast(one: Verdict, other: Verdict) -> float | None:
    """How many times as fast as ``other`` it is: by the speedups, which are paired; by plain times without them."""
    ours, theirs = one.against("eager"), other.against("eager")
    if ours is not None and theirs is not None and theirs.speedup > 0:
        return ours.speedup / theirs.speedup
    if one.time is None or other.time is None or one.time.median_ms <= 0:
        return None
    return other.time.median_ms / one.time.median_ms


def tied(one: Verdict, two: Verdict) -> bool:
    """Do the intervals of both speedups overlap? False where either was not timed against eager."""
    ours, theirs = one.against("eager"), two.against("eager")
    return ours is not None and theirs is not None and ours.overlaps(theirs)


def avoidable(conditions: Iterable[Condition]) -> list[Condition]:
    """The limits that another kernel may do without. The range of an index is none: the reference needs it, too."""
    return [c for c in conditions if c.concern == "kernel" and c.label and not _is_of_index(c)]


def _is_of_index(condition: Condition) -> bool:
    return isinstance(condition, DrawnLimit) and isinstance(condition.low, int) and isinstance(condition.high, int)


def unsure(best: Verdict, verdict: Verdict) -> bool:
    """May a run of both tell more of a kernel and the best one than their speedups do? The intervals overlap, and its
    own is wide, or it has fewer of the conditions that a kernel can do without, or the lower ends and the middles order
    them differently."""
    ours, theirs = verdict.against("eager"), best.against("eager")
    if not verdict.passed or ours is None or theirs is None or not tied(verdict, best):
        return False
    fewer = len(avoidable(verdict.conditions)) < len(avoidable(best.conditions))
    wide = ours.high > _WIDE * ours.low
    return wide or fewer or (ours.speedup > theirs.speedup) != (verdict.rank < best.rank)


def reason_of(verdict: Verdict) -> str:
    """A verdict's reason without its signature's name at the end, which is no word of a sentence."""
    name = verdict.evidence.signature if verdict.evidence is not None else None
    plain = verdict.reason.removesuffix(f"; {name}.") if name else verdict.reason
    return verdict.reason if plain == verdict.reason else f"{plain}."


def own_reason(route: Route) -> str:
    """A route's reason without what the verdict says, for a text that has the verdict, too; empty where nothing is
    left."""
    reason = route.reason.removesuffix(route.quotes).rstrip(": .")
    return f"{reason}." if reason else ""


def start_of(history: Sequence[Attempt], sketch: str | None) -> Attempt | None:
    """The round whose code the Coder of ``sketch`` starts from: the best one, where the last passed and is of the same
    sketch and not better, else the last."""
    best, last = best_of(history), history[-1] if history else None
    passed = last is not None and last.verdict is not None and last.verdict.passed
    return best if passed and best is not None and best.sketch == sketch else last


def design_of(sketch: str, constexpr: Mapping[str, int | float]) -> tuple[object, dict[str, int | float]]:
    """What makes two designs one: the sketch's tree without the tunables' defaults, and the value of each of them.

    Values of names that the sketch does not declare say nothing; of a sketch that cannot be read, all count.
    """
    from kernellab.sketch.check import check
    from kernellab.sketch.syntax.parse import parse
    from kernellab.sketch.syntax.pins import without_pins

    program = check(sketch).program
    if program is None:
        return sketch.split(), dict(constexpr)
    own = {c.name: c.value for c in program.constexprs if c.value is not None}
    # a pin is no part of a design
    read = parse(without_pins(sketch)).sketches
    plain = [replace(s, declarations=tuple(map(_without_defaults, s.declarations))) for s in read]
    return plain, {**own, **{name: value for name, value in constexpr.items() if name in own}}


def changed_defaults(before: str, after: str) -> dict[str, int | float]:
    """The defaults of ``after`` that are other values in ``before``: who writes another default has chosen it."""
    was = design_of(before, {})[1]
    return {name: value for name, value in design_of(after, {})[1].items() if was.get(name, value) != value}


def _without_defaults(line: Declaration) -> Declaration:
    from kernellab.sketch.syntax.tree import ConstDecl

    kept = (replace(item, value=None) if isinstance(item, ConstDecl) and item.choices else item for item in line.items)
    return replace(line, items=tuple(kept))


@dataclass(frozen=True)
class Remembered:
    """An entry of the memory that a role receives: a verified kernel of a computation like this one.

    ``logic``, ``shape`` and ``value`` are its scores (0 to 1), ``score`` is all of them together; ``why`` is one
    sentence. ``stale`` says why its figures do not hold here ("" where they do).
    """

    id: str
    name: str
    why: str
    score: float
    logic: float
    shape: float
    value: float
    dsl: str
    sketch: str = ""
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    source: Source | None = None
    rationale: str = ""
    stale: str = ""


@dataclass(frozen=True)
class Cure:
    """What fixed a failure like the last one: a difference of sources, and the speedup of what it led to."""

    id: str
    reason: str
    change: str
    speedup: float | None = None


@dataclass(frozen=True)
class Advice:
    """A note that a person approved, with its measured effect: the time before over the time after."""

    id: str
    advice: str
    change: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Recalled:
    """What the memory has for a brief; empty without a memory."""

    kernels: tuple[Remembered, ...] = ()
    cures: tuple[Cure, ...] = ()
    skills: tuple[Advice, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(found.id for found in self.kernels)


@dataclass(frozen=True)
class Brief:
    """What every role receives."""

    task: Task
    target: Target
    _: KW_ONLY
    #: the rounds before, oldest first
    history: tuple[Attempt, ...] = ()
    #: what people told this role
    notes: tuple[str, ...] = ()
    #: the share of the speed-of-light bound that the best candidate reaches (0 to 1); None before a timing
    headroom: float | None = None
    #: the turn that wrote it
    best_turn: int | None = None
    #: the task's speed-of-light bound in ms, as the Verifier measured it; None before a timing
    bound_ms: float | None = None
    #: what may still be spent, in words
    budget_left: str = ""
    #: the parts of :data:`kernellab.options.design.ABLATIONS` that this session leaves out on purpose
    ablation: frozenset[str] = NOTHING

    @property
    def reached(self) -> str:
        """``the best kernel (turn 6) reaches 62 % of the speed-of-light bound``; "" where that is not known."""
        if self.headroom is None:
            return ""
        turn = f" (turn {self.best_turn})" if self.best_turn is not None else ""
        return f"the best kernel{turn} reaches {100 * self.headroom:.0f} % of the speed-of-light bound"

    #: the pinned lines of the sketch that a revision must keep
    pins: tuple[str, ...] = ()
    #: a kernel may compose with the framework's library
    allow_library: bool = False
    #: what was remembered of operators like this one
    recalled: Recalled = Recalled()

    @property
    def passed(self) -> bool:
        """Has a kernel passed in one of the rounds before?"""
        return any(attempt.verdict is not None and attempt.verdict.passed for attempt in self.history)


@dataclass(frozen=True)
class DesignBrief(Brief):
    """What the Designer makes or revises a sketch from."""

    #: the route that sent the work here, with its (possibly edited) suggestion
    route: Route | None = None
    #: the sketch to revise; its pins and require lines must be kept
    previous: str | None = None
    #: the values of its tunables in the last candidate that was made from it
    previous_constexpr: Mapping[str, int | float] = field(default_factory=dict)


@dataclass(frozen=True)
class DesignReply:
    """``constexpr`` are the values chosen for tunables; ``claims`` are sentences the record can check.

    ``library_calls`` are the operations for which the framework is called since no rule designs them; ``rewritten``: it
    multiplies fewer numbers than the reference does.
    """

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()
    library_calls: tuple[str, ...] = ()
    rewritten: bool = False


@dataclass(frozen=True)
class CodeBrief(Brief):
    """What the Coder writes a source from; ``sketch`` is empty where the session works without sketches."""

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    #: why the Designer made the sketch as it is, in its own words
    design: str = ""
    route: Route | None = None
    #: the last source of this line of turns
    previous: Source | None = None
    #: the sketch and the constants that ``previous`` was made from; None without a previous source or a sketch
    previous_sketch: str | None = None
    previous_constexpr: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def redesigned(self) -> bool:
        """Is the design another one than the one that the last source was made from?"""
        if self.previous is None or self.previous_sketch is None:
            return False
        # a value that is not known of one of them is taken to be the other's
        before = design_of(self.previous_sketch, {**self.constexpr, **self.previous_constexpr})
        chosen = changed_defaults(self.previous_sketch, self.sketch)
        return before != design_of(self.sketch, {**self.previous_constexpr, **chosen, **self.constexpr})


@dataclass(frozen=True)
class CodeReply:
    source: Source
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class RouteBrief(Brief):
    """What the Conductor sees after a verdict or a failed gate."""

    sketch: str | None
    gate: GateResult | None
    candidate: Candidate | None
    verdict: Verdict | None
    turns_left: int = 0
    #: why the Coder could not write any source (its sentence and remedy); empty when it did
    error: str = ""
    #: go on after a candidate passed, while there is headroom
    improve: bool = False
    #: the roles that may find something faster: a model's or a person's, else all
    improvers: frozenset[Role] = frozenset((Role.DESIGNER, Role.CODER))
    #: the fastest verdict that passed so far
    best: Verdict | None = None
    #: tokens that a request to a model took on average; None before one was asked
    request_tokens: float | None = None
    #: the Designer is the rules, which can measure their designs and tunables and have not been asked to
    measures: bool = False
    #: the round that is judged, which ``history`` does not have
    judged: Attempt | None = None

    @property
    def rounds(self) -> tuple[Attempt, ...]:
        """The rounds, with the one that is judged."""
        if self.judged is not None:
            return (*self.history, self.judged)
        found = Attempt(self.candidate, self.sketch, self.gate, self.verdict)
        return self.history if self.verdict is None else (*self.history, found)


@dataclass(frozen=True)
class AnalyseBrief(Brief):
    """What the Analyst explains: a session up to now, or the answer to a person's ``question`` about it."""

    best: Verdict | None = None
    question: str = ""


@dataclass(frozen=True)
class AnalyseReply:
    text: str
    claims: tuple[str, ...] = ()


class Designer(Protocol):
    author: Author

    def design(self, brief: DesignBrief) -> DesignReply | Route:
        """A sketch; a route to FINISH where a kernel has passed and no better design is known."""
        ...


class Coder(Protocol):
    author: Author

    def code(self, brief: CodeBrief) -> CodeReply | Route:
        """A source; a route to FINISH where the last one has passed and is left as it is."""
        ...


class Conductor(Protocol):
    author: Author

    def route(self, brief: RouteBrief) -> Route: ...


class Analyst(Protocol):
    author: Author

    def analyse(self, brief: AnalyseBrief) -> AnalyseReply: ...
