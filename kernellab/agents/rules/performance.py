"""A kernel that is right but slow: does it pay to go on, and what does its sketch's cost say to change?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kernellab.agents.briefs import Attempt, RouteBrief, best_of, design_of, tied, times_as_fast
from kernellab.agents.rules.sampled import hot_line
from kernellab.agents.rules.slow import (
    MOSTLY_CALL_MS,
    hot_launch,
    hot_operation,
    is_slow,
    may_measure,
    share_of,
    was_sent_back,
)
from kernellab.errors import KernellabError, SketchError, counted, duration, kilobytes
from kernellab.records import Author, Role, RouteFact, RouteKind, Verdict
from kernellab.target import Backend, Target
from kernellab.verifier.audit.trace import Cost as Work
from kernellab.verifier.audit.trace import trace

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost, LoopCost
    from kernellab.task import Task

#: this share of the speed-of-light bound is good enough: measured kernels seldom reach more
ENOUGH = 0.85
#: and below this a session that ends says so
_FAR = 1 / 3
#: kernels without this gain that end the improving, and those of which noise hides whether they have it
PATIENCE, NOISY = 2, 4
GAIN = 1.03
#: traffic above the distinct bytes by this factor is worth a word
_AGAIN = 1.2
#: what Python, outputs and the entry into the code take of any call, at the very least
CALL_MS = 0.002
#: arithmetic of a sketch above the reference's by this factor is worth a word
_MORE_WORK = 1.5
#: from this share on a part is most of it
_MOST = 0.5


def work_of(task: Task) -> Work:
    """What one run of the reference takes at the task's own sizes; counted once, and again where a problem ended it."""
    try:
        return _counted(task)
    except _Uncounted as error:
        return error.work


class _Uncounted(Exception):
    def __init__(self, work: Work) -> None:
        super().__init__(work.problem)
        self.work = work


@lru_cache(maxsize=64)
def _counted(task: Task) -> Work:
    """As :func:`work_of`. Raises _Uncounted, which is not kept, for what ended in a problem."""
    work = trace(task)
    if work.problem:
        raise _Uncounted(work)
    return work


def more_work(task: Task, cost: Cost) -> float | None:
    """The arithmetic of a sketch over the reference's, where it is certainly more; None where it is not, or where the
    reference's is not known."""
    work = work_of(task)
    needed = work.total_flops + work.other_flops
    if work.problem or work.guessed or not needed:
        return None
    ratio = sum(cost.flops.values()) / needed
    return ratio if ratio >= _MORE_WORK else None


def why_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed is the end; empty while going on may pay."""
    return must_finish(brief) or ("" if may_measure(brief) or unasked(brief) else no_gain(brief))


def must_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed is the end, whatever its rounds gained; empty where that is a matter of judgement.

    A kernel that is certainly slower than eager is no end before the rules have measured their designs and tunables.
    """
    if may_measure(brief):
        return ""
    if is_slow(brief.verdict) and brief.measures and was_sent_back(brief):
        return f"Every design of the rules was measured, with its tunables. {hot_of(brief)}".strip()
    if not brief.improve:
        return f"Nobody asked for more. {hot_of(brief) if is_slow(brief.verdict) else ''}".strip()
    timed = brief.verdict is not None and brief.verdict.time is not None
    if brief.target.backend is Backend.INTERPRETER:
        return "No time is compared in Triton's interpreter."
    if brief.headroom is None and not (timed and brief.turns_left > 0 and unasked(brief)):
        return "How far it is from the bound is not known."
    if brief.headroom is not None and brief.headroom >= ENOUGH:
        return f"{brief.reached.capitalize()}."
    if brief.turns_left <= 0:
        return "The limit of turns is reached."
    standing, left = standing_of(brief), unasked(brief)
    if (
        standing is not None
        and standing.at_roofline
        and (standing.at_bound or not left)
        and (standing.sketch_at_bound or Role.DESIGNER not in brief.improvers)
    ):
        return f"The kernel is at its sketch's roofline ({duration(standing.sketch_ms)})."
    return ""


def is_far(brief: RouteBrief) -> bool:
    """Does the best kernel take several times as long as the machine needs, and longer than a call costs?"""
    time = brief.verdict.time if brief.verdict is not None else None
    far = brief.headroom is not None and brief.headroom < _FAR
    return far and time is not None and time.median_ms > MOSTLY_CALL_MS


def unasked(brief: RouteBrief) -> list[Role]:
    """The improvers that were not asked for something faster yet, the Designer first."""
    routes = [a.route for a in brief.history if a.route is not None and a.verdict is not None and a.verdict.passed]
    asked = {route.to.value for route in routes}
    return [role for role in (Role.DESIGNER, Role.CODER) if role in brief.improvers and role.value not in asked]


def untried(brief: RouteBrief) -> str:
    """What a session that ends below its target leaves untried, and what that would cost; empty where nothing is."""
    if brief.target.backend is Backend.INTERPRETER or (brief.headroom is not None and brief.headroom >= ENOUGH):
        return ""
    cost = f" (about {brief.request_tokens:,.0f} tokens a request)" if brief.request_tokens else ""
    left = [f"the {role.value} was not asked for something faster{cost}" for role in unasked(brief) if brief.improve]
    if brief.measures and not was_sent_back(brief):
        left.append("the rules' designs were not measured against each other (--tune 20: about a minute)")
    return f" Left untried: {'; '.join(left)}." if left else ""


@dataclass(frozen=True)
class Standing:
    """Where a kernel stands, in ms: its time, its sketch's roofline, and the task's bound."""

    time_ms: float
    sketch_ms: float
    bound_ms: float

    @property
    def at_roofline(self) -> bool:
        """Does the code do what its sketch allows?"""
        return self.sketch_ms >= ENOUGH * self.time_ms

    @property
    def is_beyond_sketch(self) -> bool:
        """Is the code faster than its sketch allows, so that the sketch's cost says nothing of it?"""
        return self.time_ms < ENOUGH * self.sketch_ms

    @property
    def at_bound(self) -> bool:
        """Does the code do what the machine does?"""
        return self.bound_ms >= ENOUGH * self.time_ms

    @property
    def sketch_at_bound(self) -> bool:
        """Does the sketch allow what the machine does?"""
        return self.bound_ms >= ENOUGH * self.sketch_ms

    @property
    def code_costs_more(self) -> bool:
        """Is more lost between the code and its sketch than between the sketch and the bound?"""
        return self.time_ms / self.sketch_ms > self.sketch_ms / self.bound_ms


def standing_of(brief: RouteBrief) -> Standing | None:
    """Where the kernel that is judged stands; None without a time, a bound that holds, or a sketch that can be
    costed."""
    verdict, cost = brief.verdict, _cost(brief)
    if verdict is None or verdict.time is None or not verdict.sol_ms or cost is None or not cost.time_ms:
        return None
    if verdict.bound_share is None:
        return None
    return Standing(verdict.time.median_ms, max(cost.time_ms, verdict.sol_ms), verdict.sol_ms)


def no_gain(brief: RouteBrief) -> str:
    """That the improvers' last kernels were not faster than the best before, in a sentence; empty where one was, or
    too few were tried.

    What no improver made is no failure of theirs: a sketch's lowering before a Coder who may work on it, and the rules'
    designs before a model's. Where the interval does not exclude a gain, it takes more kernels.
    """
    rounds = [(a, a.verdict) for a in brief.rounds if a.verdict is not None and a.verdict.passed and _speed(a.verdict)]
    of_improvers = [_is_improvers(a, brief) for a, _ in rounds]
    best, slower, noisy = 0.0, 0, 0
    for (_, verdict), improver in zip(rounds, of_improvers, strict=True):
        speed, eager = _speed(verdict) or 0.0, verdict.against("eager")
        if speed >= GAIN * best:
            best, slower, noisy = speed, 0, 0
        elif improver or not any(of_improvers):
            unclear = eager is not None and eager.high >= GAIN * best
            slower, noisy = slower + (not unclear), noisy + unclear
    if slower < PATIENCE and slower + noisy < NOISY:
        return ""
    return f"The last {slower + noisy} kernels that were to be faster were not faster than the best before."


def _is_improvers(attempt: Attempt, brief: RouteBrief) -> bool:
    """Was this round's kernel made by a role that may find something faster?"""
    coder = attempt.candidate.author if attempt.candidate is not None else None
    to_designer = attempt.route is not None and attempt.route.to is RouteKind.DESIGNER
    lowered = coder is Author.RULES and to_designer and Role.DESIGNER in brief.improvers
    author = coder if Role.CODER in brief.improvers and not lowered else attempt.author
    return author not in (None, Author.RULES)


def _speed(verdict: Verdict) -> float | None:
    if verdict.speedup is not None:
        return verdict.speedup
    return 1.0 / verdict.time.median_ms if verdict.time and verdict.time.median_ms > 0 else None


def is_best(brief: RouteBrief) -> bool:
    """Is the kernel that is judged the best so far, whose share of the bound stands in its verdict?"""
    rounds = brief.rounds
    return bool(rounds) and best_of(rounds) is rounds[-1]


def stays_best(brief: RouteBrief) -> str:
    """That an earlier kernel stays the best, in a sentence; empty where the one that is judged is it, or none was
    timed."""
    rounds = brief.rounds
    best = best_of(rounds)
    if best is None or best is rounds[-1]:
        return ""
    return f"An earlier kernel stays the best{_by_what(best.verdict, rounds[-1].verdict)}."


def starting(brief: RouteBrief, to: RouteKind) -> tuple[RouteBrief, str]:
    """The brief as of the kernel that the role ``to`` starts from, and that it is an earlier one, in a sentence."""
    rounds = brief.rounds
    best = best_of(rounds)
    if best is None or best is rounds[-1]:
        return brief, ""
    # a Coder stays with the brief's sketch, a Designer begins with one
    if (to is RouteKind.CODER and best.sketch != brief.sketch) or (to is RouteKind.DESIGNER and not best.sketch):
        return brief, ""
    number = rounds.index(best) + 1
    said = (
        f"Round {number} is still the best{_by_what(best.verdict, rounds[-1].verdict)}, and the work starts from it. "
    )
    of_best = replace(brief, sketch=best.sketch, gate=best.gate, candidate=best.candidate, verdict=best.verdict)
    return of_best, said


def _by_what(best: Verdict | None, last: Verdict | None) -> str:
    """By what it is the best where its time is the longer one; else empty."""
    if best is None or last is None or best.time is None or last.time is None or not last.passed:
        return ""
    paired = best.against("eager") is not None and last.against("eager") is not None
    longer = best.time.median_ms > last.time.median_ms
    if paired and longer:
        return " by its speedup, though not by its time, which other work changes more"
    return ", though noise may hide which is faster" if tied(best, last) else ""


def slow_because(brief: RouteBrief, to: RouteKind = RouteKind.DESIGNER) -> tuple[str, list[RouteFact]]:
    """What the role ``to`` should change to make a right kernel faster, in words, and the facts that this rests on."""
    verdict = brief.verdict
    facts = []
    if verdict is not None and verdict.time is not None and verdict.bound_share is not None:
        earlier = next((n for n, a in enumerate(brief.rounds[:-1], 1) if a.verdict is verdict), None)
        whose = f"round {earlier}: " if earlier else ""
        eager = verdict.against("eager")
        fast = f", {eager.text}" if eager is not None else ""
        share = f"{100 * verdict.bound_share:.3g} % of the bound"
        facts.append(f"{whose}time {duration(verdict.time.median_ms)}, {share}{fast}")
    best = best_of(brief.rounds)
    if brief.headroom is not None and (best is None or best.verdict is not verdict):
        facts.append(brief.reached)
    if verdict is not None and verdict.own_share is not None and verdict.own_share < 0.99:
        facts.append(f"{100 * verdict.own_share:.0f} % of the time is spent in the kernel's own code")
    cost = _cost(brief)
    if cost is None:
        why = ": the sketch could not be costed" if brief.sketch else ""
        return f"Make it faster{why}. Change one thing at a time.", [RouteFact(text=fact) for fact in facts]
    follows = brief.candidate is None or brief.candidate.author is Author.RULES
    # lines of other code say nothing of the sketch that a Designer revises
    hot = hot_line(brief, to, lines=follows or to is RouteKind.CODER, at_once=cost.parallelism)
    # what was sampled stands in place of what a model guesses, and a sketch's cost says nothing of other code
    words, found = _of_launches(cost, brief.target, brief.allow_library, guess=follows and not hot)
    words = [hot, *words] if hot else words or ["Change one thing at a time."]
    if (ratio := more_work(brief.task, cost)) is not None and cost.bound == "compute":
        most = cost.operations[0]
        found.append(f"{ratio:.1f} times the arithmetic of the reference")
        words = [
            f"The sketch does {ratio:.1f} times the arithmetic of the reference, {most_of(most.share)} "
            f"{most.operation} in line {most.line}: look for what is computed there more than once, or is not used."
        ]
    standing, own = standing_of(brief), list[str]()
    if standing is not None:
        own = [] if standing.sketch_at_bound else [f"the sketch's own roofline is {duration(standing.sketch_ms)}"]
        if follows and standing.code_costs_more and len(cost.launches) > 1:
            found.append(
                f"the judge times a call as a whole: in which of the {len(cost.launches)} launches the other "
                f"{duration(standing.time_ms - standing.sketch_ms)} go was not measured"
            )
        if to is RouteKind.CODER:
            gain, same = None if is_best(brief) else _gain_over_best(brief), _is_of_best_sketch(brief)
            samples = verdict.hot.samples if verdict is not None and verdict.hot is not None else 0
            words = [_about_code(standing, cost, gain, same, hot, follows, samples)]
            if not follows:
                own, found = [], []  # where a sketch's bytes go is not where those of other code do
        elif standing.is_beyond_sketch:
            # its tiles and loops are not the sketch's, so that nothing that the model says of those is true of it
            words = [hot] if hot else ["Change one thing at a time."]
            own, found = [], ["the code takes less time than its sketch would by the cost model: it takes other steps"]
    of_cost = len(cost.launches) < 2
    return " ".join(words), [
        *(RouteFact(text=fact) for fact in facts), *(RouteFact(text=fact, of_cost=True) for fact in own),
        *(RouteFact(text=fact, of_cost=of_cost or fact == _at_once(cost)) for fact in found),
    ]  # fmt: skip


def most_of(share: float) -> str:
    """What a part with this share of a whole (0 to 1), the largest one, is called."""
    return "most of it" if share > _MOST else f"the largest part of it, {share:.0%},"


def _at_once(cost: Cost) -> str:
    return f"the sketch has {counted(round(cost.parallelism), 'parallel iteration')}"


def _of_launches(cost: Cost, target: Target, library: bool, guess: bool) -> tuple[list[str], list[str]]:
    """Words and facts about the launch that takes most of the time in the model, where there are several; ``guess`` as
    in :func:`_from_cost`."""
    if len(cost.launches) < 2:
        return _from_cost(cost, target, guess)
    launch = hot_launch(cost)
    if launch is None:
        words, facts = _from_cost(cost, target, guess)
        unknown = "which of them takes most of the time is not known: the chip's rates are not"
        return words, [f"the sketch has {len(cost.launches)} launches; {unknown}", *facts]
    took = (
        f"of {len(cost.launches)} launches {launch.kernel} (line {launch.line}) takes the most by the cost model, "
        f"{share_of(launch, cost):.0%} of the sketch's roofline time"
    )
    if launch.library:
        other = "" if library else ": another design must do without it"
        return [f"{launch.kernel} is a call of the framework's library{other}."], [took]
    words, facts = _from_cost(launch.cost, target, guess, f"launch {launch.kernel}")
    return words, [took, *facts]


def _about_code(
    standing: Standing, cost: Cost, gain: float | None, same: bool, hot: str, follows: bool, samples: int
) -> str:  # fmt: skip
    """Advice for a kernel far from what its sketch allows, or the machine where it does not follow the sketch; ``gain``
    says how many times as fast as the best earlier kernel it is, where that one is better, which is of the ``same``
    sketch or not. ``samples`` were taken."""
    # of two limits that are about the same the prompt names one
    own = follows and not standing.sketch_at_bound
    limit, said = (standing.sketch_ms, "The sketch allows") if own else (standing.bound_ms, "The bound is")
    allowed = f"{said} {duration(limit)} and the code takes {duration(standing.time_ms)}"
    if gain is not None and gain * GAIN < 1 and not same:
        allowed += f"; by the speedups an earlier kernel, of another sketch, was {1 / gain:.2f} times as fast"
    elif gain is not None and gain * GAIN < 1:
        return (
            f"{allowed}; by the speedups an earlier kernel was {1 / gain:.2f} times as fast: begin with its code, and "
            "change one thing."
        )
    if limit < CALL_MS:
        allowed += f"; any call takes longer than {duration(CALL_MS)}"
    if hot:
        return f"{allowed}. {hot}"
    hottest = _hottest(cost) if follows and limit >= CALL_MS else None
    where = f": by the cost model the loop of line {hottest.line} of the sketch holds most of it" if hottest else ""
    if samples:
        return f"{allowed}; {counted(samples, 'sample')} do not say where its time goes{where}."
    return f"{allowed}; where its time goes was not sampled{where}."


def _gain_over_best(brief: RouteBrief) -> float | None:
    """How many times as fast as the best of the earlier kernels it is; None before there is one."""
    best = best_of(brief.history)
    return times_as_fast(brief.verdict, best.verdict) if brief.verdict and best and best.verdict else None


def _is_of_best_sketch(brief: RouteBrief) -> bool:
    """Is the best of the earlier kernels one of this sketch, whatever its tunables? Code of another design is none to
    begin with."""
    best = best_of(brief.history)
    return best is None or design_of(best.sketch or "", {})[0] == design_of(brief.sketch or "", {})[0]


def _from_cost(cost: Cost, target: Target, guess: bool, name: str = "the sketch") -> tuple[list[str], list[str]]:
    """Words and facts by the cost model; with ``guess`` also where the time may go when nothing stands out."""
    at_once = _at_once(cost)
    words, facts = [], [f"{name} is bound by {cost.bound}", at_once]
    worst = max(cost.tensors, key=lambda t: t.slow - t.unique, default=None)
    again = worst is not None and worst.unique and worst.slow > _AGAIN * worst.unique
    if worst is not None and again:
        times = worst.slow / worst.unique
        facts.append(f"{worst.tensor} is fetched {times:.1f} times (line {worst.line})")
        if cost.bound == "memory":
            words.append(
                f"Keep {worst.tensor} on chip: line {worst.line} fetches it {times:.1f} times; "
                "load a tile once for all uses, or make the tile of the other dimension larger."
            )
    if cost.parallelism < target.chip.cores:
        facts.append(f"the chip has {target.chip.cores} cores")
        if cost.parallelism > 1:
            words.append(
                f"Only {counted(round(cost.parallelism), 'iteration')} can run at once on {target.chip.cores} cores: "
                "split an outer loop, or make its tile smaller."
            )
        elif any(row.iterations > 1 for row in cost.loops):
            words.append(
                f"No two iterations can run at once, and there are {target.chip.cores} cores: mark a loop whose "
                "iterations are independent as parallel, or split one."
            )
    limit = target.chip.on_chip_bytes
    if limit and cost.footprint > limit:
        facts.append(f"tiles of {kilobytes(cost.footprint)}, {kilobytes(limit)} on chip")
        words.append(
            f"The tiles of one iteration take {kilobytes(cost.footprint)} and {kilobytes(limit)} are on chip: "
            "make them smaller."
        )
    hottest = _hottest(cost)
    if hottest is not None:
        share = "bytes" if cost.bound == "memory" else "FLOPs"
        facts.append(f"by the cost model most of the {share} are in the loop of line {hottest.line} ({hottest.label})")
    return words or ([_around(cost) or "Change one thing at a time."] if guess else []), facts


def _around(cost: Cost) -> str:
    """Where the cost model lets a sketch's time go when nothing was sampled; empty where no loop holds it."""
    if cost.time_ms is not None and cost.time_ms < CALL_MS:
        return (
            f"By the cost model the work takes {duration(cost.time_ms)}, and any call longer than {duration(CALL_MS)}: "
            "a sketch can only save launches, outputs and temporaries."
        )
    if (hottest := _hottest(cost)) is None:
        return ""
    once = "Arithmetic bounds it" if cost.bound != "memory" else "Each tensor is fetched about once"
    return (
        f"{once}, so by the cost model the time goes into what the loop of line {hottest.line} does each time: its "
        "loads, its stores and its arithmetic. Change one thing at a time."
    )


def hot_of(brief: RouteBrief) -> str:
    """The sketch's hot operation, in a sentence; empty where it cannot be costed."""
    cost, standing = _cost(brief), standing_of(brief)
    return hot_operation(cost, standing is None or not standing.at_roofline) if cost is not None else ""


def _hottest(cost: Cost) -> LoopCost | None:
    """The innermost loop that still holds most of what bounds the sketch, or the launch that takes most of its time."""
    launch = hot_launch(cost)
    cost = cost if launch is None else launch.cost

    def weight(row: LoopCost) -> float:
        return row.bytes_total if cost.bound == "memory" else row.flops

    most = max(map(weight, cost.loops), default=0.0)
    return max(
        (r for r in cost.loops if r.iterations > 1 and weight(r) >= 0.5 * most),
        key=lambda r: r.iterations,
        default=None,
    )


def _cost(brief: RouteBrief) -> Cost | None:
    if not brief.sketch:
        return None
    given = brief.candidate.constexpr if brief.candidate else {}
    try:
        return cost_at(brief.sketch, brief.task, brief.target, given)
    except KernellabError:
        return None


def cost_at(sketch: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> Cost:
    """The cost of a sketch at the task's own sizes.

    Raises:
        SketchError: it is wrong, cannot be bound to the task, or cannot be costed.
    """
    from kernellab.sketch.check import load_program
    from kernellab.sketch.cost import cost
    from kernellab.sketch.program.bind import bind

    program = load_program(sketch)
    binding = bind(program, task, dict(constexpr), target)
    sizes = dict(task.module().default_sizes())
    try:
        symbols = binding.sizes(lambda at, dim: task.args[at].extents(sizes)[dim])
        return cost(program, {**binding.fixed, **symbols}, dict(binding.constexpr), target.chip)
    except (KeyError, IndexError) as error:
        raise SketchError(
            f"The cost of the sketch cannot be estimated: the size of {error} is not known.", ""
        ) from None
