"""The inputs and replies of each role; the same for rules, models and people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernellab.agents.designs import changed_defaults, design_of
from kernellab.conditions import Condition, DrawnLimit
from kernellab.records import Author, Candidate, Comparison, GateResult, Role, Route, Source, Verdict
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.sketch.syntax.pins import Kept
    from kernellab.task import Task

#: Ratio of an interval's ends above which it ranks no kernel.
_WIDE = 2.0

NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Attempt:
    """One earlier attempt in this line of turns and its outcome."""

    candidate: Candidate | None = None
    sketch: str | None = None
    gate: GateResult | None = None
    verdict: Verdict | None = None
    route: Route | None = None
    #: The author of its sketch, or of the code if the sketch is an earlier one; and the author's rationale.
    author: Author | None = None
    rationale: str = ""
    #: The rank of its kernel among the session's passed ones, 0 is the best; None if no session ranked it.
    place: int | None = None
    #: Its kernel's comparison with the best one until then, timed in one run; None if not needed.
    next_to_best: Comparison | None = None


def best_of(history: Sequence[Attempt]) -> Attempt | None:
    """The best attempt that passed and was timed, in a session's ranking; the first of equal ones."""
    timed = [
        (math.inf if a.place is None else a.place, a.verdict.rank, n)
        for n, a in enumerate(history) if a.verdict and a.verdict.passed and a.verdict.time
    ]  # fmt: skip
    return history[min(timed)[-1]] if timed else None


def times_as_fast(one: Verdict, other: Verdict) -> float | None:
    """The speedup of ``one`` over ``other``: by their speedups, which are paired; otherwise by plain times."""
    first, second = one.against("eager"), other.against("eager")
    if first is not None and second is not None and second.speedup > 0:
        return first.speedup / second.speedup
    if one.time is None or other.time is None or one.time.median_ms <= 0:
        return None
    return other.time.median_ms / one.time.median_ms


def tied(one: Verdict, two: Verdict) -> bool:
    """Whether the intervals of both speedups overlap. False if either was not timed against eager."""
    first, second = one.against("eager"), two.against("eager")
    return first is not None and second is not None and first.overlaps(second)


def avoidable(conditions: Iterable[Condition]) -> list[Condition]:
    """The limits that another kernel may avoid. The range of an index is not included: the reference needs it, too."""
    return [c for c in conditions if c.concern == "kernel" and c.label and not _is_of_index(c)]


def _is_of_index(condition: Condition) -> bool:
    return isinstance(condition, DrawnLimit) and isinstance(condition.low, int) and isinstance(condition.high, int)


def ranks_nothing(low: float, high: float) -> bool:
    """Whether a speedup's interval is too wide to order two kernels by its middle: few calls, a busy machine."""
    return high > _WIDE * low


def unsure(best: Verdict, verdict: Verdict) -> bool:
    """Whether a run of both may order a kernel and the best one better than their speedups do: the intervals overlap,
    and its own is wide, or it has fewer avoidable conditions, or the lower ends and the middles order them
    differently."""
    own, best_figure = verdict.against("eager"), best.against("eager")
    if not verdict.passed or own is None or best_figure is None or not tied(verdict, best):
        return False
    has_fewer = len(avoidable(verdict.conditions)) < len(avoidable(best.conditions))
    is_wide = ranks_nothing(own.low, own.high)
    return is_wide or has_fewer or (own.speedup > best_figure.speedup) != (verdict.rank < best.rank)


def reason_of(verdict: Verdict) -> str:
    """A verdict's reason without the name of its signature at the end."""
    name = verdict.evidence.signature if verdict.evidence is not None else None
    plain = verdict.reason.removesuffix(f"; {name}.") if name else verdict.reason
    return verdict.reason if plain == verdict.reason else f"{plain}."


def own_reason(route: Route) -> str:
    """A route's reason without its quotation of the verdict, for a text that contains the verdict; may be empty."""
    reason = route.reason.removesuffix(route.quotes).rstrip(": .")
    return f"{reason}." if reason else ""


def start_of(history: Sequence[Attempt], sketch: str | None) -> Attempt | None:
    """The attempt from whose code the Coder of ``sketch`` starts: the best one, if the last passed and is of the same
    sketch and not better, otherwise the last."""
    best, last = best_of(history), history[-1] if history else None
    passed = last is not None and last.verdict is not None and last.verdict.passed
    return best if passed and best is not None and best.sketch == sketch else last


@dataclass(frozen=True)
class Remembered:
    """A memory entry that a role receives: a verified kernel of a similar computation.

    ``logic``, ``shape`` and ``value`` are its scores (0 to 1), ``score`` combines them; ``why`` is one sentence.
    ``stale`` says why its figures do not apply here ("" if they do).
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
    """The fix of a failure like the last one: a diff of sources, and the speedup that followed."""

    id: str
    reason: str
    change: str
    speedup: float | None = None


@dataclass(frozen=True)
class Advice:
    """A note that a person approved, with its measured effect: the ratio of the time before to the time after."""

    id: str
    advice: str
    change: str
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Recalled:
    """The memory's entries for a brief; empty without a memory."""

    kernels: tuple[Remembered, ...] = ()
    cures: tuple[Cure, ...] = ()
    skills: tuple[Advice, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(kernel.id for kernel in self.kernels)


@dataclass(frozen=True)
class Brief:
    """The input that every role receives."""

    task: Task
    target: Target
    _: KW_ONLY
    #: The earlier attempts, oldest first.
    history: tuple[Attempt, ...] = ()
    #: People's notes to this role.
    notes: tuple[str, ...] = ()
    #: The share of the speed-of-light bound that the best candidate reaches (0 to 1); None before a timing.
    headroom: float | None = None
    #: The turn that wrote it.
    best_turn: int | None = None
    #: The task's speed-of-light bound in ms, as measured by the Verifier; None before a timing.
    bound_ms: float | None = None
    #: The remaining budget, in words.
    budget_left: str = ""
    #: The parts of :data:`kernellab.options.design.ABLATIONS` that this session omits on purpose.
    ablation: frozenset[str] = NOTHING

    @property
    def reached(self) -> str:
        """``the best kernel (turn 6) reaches 62 % of the speed-of-light bound``; "" if unknown."""
        if self.headroom is None:
            return ""
        turn = f" (turn {self.best_turn})" if self.best_turn is not None else ""
        return f"the best kernel{turn} reaches {100 * self.headroom:.0f} % of the speed-of-light bound"

    #: The lines that a person pinned and that a revision must keep.
    pins: tuple[str, ...] = ()
    #: A person's pins and constraints; None: all of the sketch to revise are.
    kept: Kept | None = None
    #: A kernel may call the framework's library.
    allow_library: bool = False
    #: The memory's entries for operators like this one.
    recalled: Recalled = Recalled()

    @property
    def passed(self) -> bool:
        """Whether a kernel passed in an earlier attempt."""
        return any(attempt.verdict is not None and attempt.verdict.passed for attempt in self.history)


@dataclass(frozen=True)
class DesignBrief(Brief):
    """The input from which the Designer makes or revises a sketch."""

    #: The route that sent the work here, with its (possibly edited) suggestion.
    route: Route | None = None
    #: The sketch to revise; what is ``held`` of it must be kept.
    previous: str | None = None
    #: The values of its tunables in the last candidate made from it.
    previous_constexpr: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def held(self) -> Kept:
        """The pins and constraints that a revision of ``previous`` keeps."""
        from kernellab.sketch.syntax.pins import Kept

        return self.kept if self.kept is not None else Kept.of(self.previous or "") or Kept()


@dataclass(frozen=True)
class DesignReply:
    """A sketch. ``constexpr`` are the chosen values of tunables; ``claims`` are sentences that the record can check.

    ``library_calls`` are the operations for which the framework is called because no rule designs them; ``rewritten``:
    it multiplies fewer numbers than the reference.
    """

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()
    library_calls: tuple[str, ...] = ()
    rewritten: bool = False


@dataclass(frozen=True)
class CodeBrief(Brief):
    """The input from which the Coder writes a source; ``sketch`` is empty if the session works without sketches."""

    sketch: str
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    #: The Designer's rationale for the sketch.
    design: str = ""
    route: Route | None = None
    #: The last source of this line of turns.
    previous: Source | None = None
    #: The sketch and the constants from which ``previous`` was made; None without a previous source or a sketch.
    previous_sketch: str | None = None
    previous_constexpr: Mapping[str, int | float] = field(default_factory=dict)

    @property
    def redesigned(self) -> bool:
        """Whether the design differs from that of the last source."""
        if self.previous is None or self.previous_sketch is None:
            return False
        # a value that one of them does not have is assumed to equal the other's
        previous_design = design_of(self.previous_sketch, {**self.constexpr, **self.previous_constexpr})
        changed = changed_defaults(self.previous_sketch, self.sketch)
        return previous_design != design_of(self.sketch, {**self.previous_constexpr, **changed, **self.constexpr})


@dataclass(frozen=True)
class CodeReply:
    """A source, with its values of constexprs, rationale and claims."""

    source: Source
    constexpr: Mapping[str, int | float] = field(default_factory=dict)
    rationale: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class RouteBrief(Brief):
    """The Conductor's input after a verdict or a failed gate."""

    sketch: str | None
    gate: GateResult | None
    candidate: Candidate | None
    verdict: Verdict | None
    turns_left: int = 0
    #: Why the Coder could not write any source (its sentence and remedy); empty if it could.
    error: str = ""
    #: Continue after a candidate passed, while there is headroom.
    improve: bool = False
    #: The roles that may find something faster: a model's or a person's, otherwise all.
    improvers: frozenset[Role] = frozenset((Role.DESIGNER, Role.CODER))
    #: The fastest verdict that passed so far.
    best: Verdict | None = None
    #: Mean tokens per request to a model; None before the first request.
    request_tokens: float | None = None
    #: Whether the Designer is the rules, which can measure their designs and tunables and have not yet.
    measures: bool = False
    #: The attempt that is judged, which is not in ``history``.
    judged: Attempt | None = None

    @property
    def rounds(self) -> tuple[Attempt, ...]:
        """The attempts, including the one that is judged."""
        if self.judged is not None:
            return (*self.history, self.judged)
        attempt = Attempt(self.candidate, self.sketch, self.gate, self.verdict)
        return self.history if self.verdict is None else (*self.history, attempt)


@dataclass(frozen=True)
class AnalyseBrief(Brief):
    """The Analyst's input: a session so far, and a person's ``question`` about it, if any."""

    best: Verdict | None = None
    question: str = ""


@dataclass(frozen=True)
class AnalyseReply:
    """An explanation and its claims."""

    text: str
    claims: tuple[str, ...] = ()


class Designer(Protocol):
    """The protocol of a Designer."""

    author: Author

    def design(self, brief: DesignBrief) -> DesignReply | Route:
        """Return a sketch; or a route to FINISH if a kernel has passed and no better design is known."""
        ...


class Coder(Protocol):
    """The protocol of a Coder."""

    author: Author

    def code(self, brief: CodeBrief) -> CodeReply | Route:
        """Return a source; or a route to FINISH if the last one has passed and is left unchanged."""
        ...


class Conductor(Protocol):
    """The protocol of a Conductor."""

    author: Author

    def route(self, brief: RouteBrief) -> Route: ...


class Analyst(Protocol):
    """The protocol of an Analyst."""

    author: Author

    def analyse(self, brief: AnalyseBrief) -> AnalyseReply: ...
