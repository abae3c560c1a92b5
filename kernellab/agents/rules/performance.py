"""A kernel that is right but slow: whether to continue, and which changes its sketch's cost suggests."""

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

#: Share of the speed-of-light bound that is good enough: measured kernels seldom reach more.
ENOUGH = 0.85
#: Share below which a session that ends reports the distance.
_FAR = 1 / 3
#: Number of kernels without this gain that ends the improving; the second counts those whose noise hides a gain.
PATIENCE, NOISY = 2, 4
GAIN = 1.03
#: Ratio of traffic to distinct bytes above which it is reported.
_AGAIN = 1.2
#: Minimum time of any call in ms: Python, outputs and the entry into the code.
CALL_MS = 0.002
#: Ratio of a sketch's arithmetic to the reference's above which it is reported.
_MORE_WORK = 1.5
#: Share above which a part is called most of the whole.
_MOST = 0.5


def work_of(task: Task) -> Work:
    """The work of one run of the reference at the task's own sizes; cached unless counting ended in a problem."""
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
    """Count like :func:`work_of`. Raises _Uncounted, which is not cached, if counting ended in a problem."""
    work = trace(task)
    if work.problem:
        raise _Uncounted(work)
    return work


def more_work(task: Task, cost: Cost) -> float | None:
    """The ratio of a sketch's arithmetic to the reference's if it is certainly more; None if it is not, or if the
    reference's is unknown."""
    work = work_of(task)
    reference_flops = work.total_flops + work.other_flops
    if work.problem or work.guessed or not reference_flops:
        return None
    ratio = sum(cost.flops.values()) / reference_flops
    return ratio if ratio >= _MORE_WORK else None


#: Operations of a sketch that are products, and the ratio up to which their arithmetic is the reference's own.
_PRODUCTS, _SAME = ("dot", "gemm"), 1.05


def largest_part(task: Task, cost: Cost) -> str:
    """Name the operation with most of a sketch's arithmetic, in words. Products are left out where the sketch's need
    no more than the reference's: what they compute is no waste."""
    products = [part for part in cost.operations if part.operation in _PRODUCTS]
    others = [part for part in cost.operations if part.operation not in _PRODUCTS]
    are_needed = bool(products) and sum(part.flops for part in products) <= _SAME * work_of(task).total_flops
    parts = others if are_needed and others else cost.operations
    share = parts[0].flops / sum(part.flops for part in parts)
    apart = "apart from the reference's products " if parts is others else ""
    return f"{apart}{most_of(share)} is {parts[0].operation} in line {parts[0].line}"


def why_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed ends the session; empty if continuing may help."""
    return must_finish(brief) or ("" if may_measure(brief) or unasked(brief) else no_gain(brief))


def must_finish(brief: RouteBrief) -> str:
    """Why a kernel that passed ends the session, regardless of its attempts' gains; empty if that needs a judgement.

    A kernel that is certainly slower than eager does not end it before the rules have measured their designs and
    tunables.
    """
    if may_measure(brief):
        return ""
    if is_slow(brief.verdict) and brief.measures and was_sent_back(brief):
        return f"Every design of the rules was measured, with its tunables. {hot_of(brief)}".strip()
    if not brief.improve:
        return f"Nobody asked for more. {hot_of(brief) if is_slow(brief.verdict) else ''}".strip()
    is_timed = brief.verdict is not None and brief.verdict.time is not None
    if brief.target.backend is Backend.INTERPRETER:
        return "No time is compared in Triton's interpreter."
    if brief.headroom is None and not (is_timed and brief.turns_left > 0 and unasked(brief)):
        return "How far it is from the bound is not known."
    if brief.headroom is not None and brief.headroom >= ENOUGH:
        return f"{brief.reached.capitalize()}."
    if brief.turns_left <= 0:
        return "The limit of turns is reached."
    standing, roles_left = standing_of(brief), unasked(brief)
    if (
        standing is not None
        and standing.at_roofline
        and (standing.at_bound or not roles_left)
        and (standing.sketch_at_bound or Role.DESIGNER not in brief.improvers)
    ):
        return f"The kernel is at its sketch's roofline ({duration(standing.sketch_ms)})."
    return ""


def is_far(brief: RouteBrief) -> bool:
    """Whether the best kernel takes several times as long as the machine needs, and longer than a call costs."""
    time = brief.verdict.time if brief.verdict is not None else None
    is_below = brief.headroom is not None and brief.headroom < _FAR
    return is_below and time is not None and time.median_ms > MOSTLY_CALL_MS


def unasked(brief: RouteBrief) -> list[Role]:
    """The improvers that have not been asked for something faster yet, the Designer first."""
    routes = [a.route for a in brief.history if a.route is not None and a.verdict is not None and a.verdict.passed]
    asked_roles = {route.to.value for route in routes}
    return [role for role in (Role.DESIGNER, Role.CODER) if role in brief.improvers and role.value not in asked_roles]


def untried(brief: RouteBrief) -> str:
    """What a session that ends below its target has not tried, and its cost; empty if everything was tried."""
    if brief.target.backend is Backend.INTERPRETER or (brief.headroom is not None and brief.headroom >= ENOUGH):
        return ""
    cost = f" (about {brief.request_tokens:,.0f} tokens a request)" if brief.request_tokens else ""
    options = [f"the {role.value} was not asked for something faster{cost}" for role in unasked(brief) if brief.improve]
    if brief.measures and not was_sent_back(brief):
        options.append("the rules' designs were not measured against each other (--tune 20: about a minute)")
    return f" Left untried: {'; '.join(options)}." if options else ""


@dataclass(frozen=True)
class Standing:
    """A kernel's times in ms: measured, by its sketch's roofline, and by the task's bound."""

    time_ms: float
    sketch_ms: float
    bound_ms: float

    @property
    def at_roofline(self) -> bool:
        """Whether the code is as fast as its sketch allows."""
        return self.sketch_ms >= ENOUGH * self.time_ms

    @property
    def is_beyond_sketch(self) -> bool:
        """Whether the code is faster than its sketch allows, so that the sketch's cost does not apply to it."""
        return self.time_ms < ENOUGH * self.sketch_ms

    @property
    def at_bound(self) -> bool:
        """Whether the code is as fast as the machine allows."""
        return self.bound_ms >= ENOUGH * self.time_ms

    @property
    def sketch_at_bound(self) -> bool:
        """Whether the sketch allows what the machine allows."""
        return self.bound_ms >= ENOUGH * self.sketch_ms

    @property
    def code_costs_more(self) -> bool:
        """Whether the code loses more relative to its sketch than the sketch loses relative to the bound."""
        return self.time_ms / self.sketch_ms > self.sketch_ms / self.bound_ms


def standing_of(brief: RouteBrief) -> Standing | None:
    """The times of the kernel that is judged; None without a time, a credible bound, or a sketch with a known cost."""
    verdict, cost = brief.verdict, _cost(brief)
    if verdict is None or verdict.time is None or not verdict.sol_ms or cost is None or not cost.time_ms:
        return None
    if verdict.bound_share is None:
        return None
    return Standing(verdict.time.median_ms, max(cost.time_ms, verdict.sol_ms), verdict.sol_ms)


def no_gain(brief: RouteBrief) -> str:
    """State that the improvers' last kernels were not faster than the best before, in a sentence; empty if one was, or
    too few were tried.

    Kernels that no improver made do not count as failures: a sketch's lowering before a Coder who may work on it, and
    the rules' designs before a model's. If the interval does not exclude a gain, more kernels are needed.
    """
    timed_attempts = [
        (a, a.verdict) for a in brief.rounds if a.verdict is not None and a.verdict.passed and _speed(a.verdict)
    ]
    of_improvers = [_is_improvers(a, brief) for a, _ in timed_attempts]
    best, slower, noisy = 0.0, 0, 0
    for (_, verdict), improver in zip(timed_attempts, of_improvers, strict=True):
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
    """Whether a role that may find something faster made this attempt's kernel."""
    coder = attempt.candidate.author if attempt.candidate is not None else None
    to_designer = attempt.route is not None and attempt.route.to is RouteKind.DESIGNER
    is_lowering = coder is Author.RULES and to_designer and Role.DESIGNER in brief.improvers
    author = coder if Role.CODER in brief.improvers and not is_lowering else attempt.author
    return author not in (None, Author.RULES)


def _speed(verdict: Verdict) -> float | None:
    if verdict.speedup is not None:
        return verdict.speedup
    return 1.0 / verdict.time.median_ms if verdict.time and verdict.time.median_ms > 0 else None


def is_best(brief: RouteBrief) -> bool:
    """Whether the judged kernel is the best so far, so that its verdict has the best share of the bound."""
    attempts = brief.rounds
    return bool(attempts) and best_of(attempts) is attempts[-1]


def stays_best(brief: RouteBrief) -> str:
    """State that an earlier kernel remains the best, in a sentence; empty if the judged one is, or none was timed."""
    attempts = brief.rounds
    best = best_of(attempts)
    if best is None or best is attempts[-1]:
        return ""
    return f"An earlier kernel stays the best{_by_what(best.verdict, attempts[-1].verdict)}."


def starting(brief: RouteBrief, to: RouteKind) -> tuple[RouteBrief, str]:
    """Return the brief of the kernel from which the role ``to`` starts, and a sentence if it is an earlier one."""
    attempts = brief.rounds
    best = best_of(attempts)
    if best is None or best is attempts[-1]:
        return brief, ""
    # a Coder keeps the brief's sketch; a Designer needs one to begin with
    if (to is RouteKind.CODER and best.sketch != brief.sketch) or (to is RouteKind.DESIGNER and not best.sketch):
        return brief, ""
    number = attempts.index(best) + 1
    sentence = (
        f"Round {number} is still the best{_by_what(best.verdict, attempts[-1].verdict)}, and the work starts from it. "
    )
    of_best = replace(brief, sketch=best.sketch, gate=best.gate, candidate=best.candidate, verdict=best.verdict)
    return of_best, sentence


def _by_what(best: Verdict | None, last: Verdict | None) -> str:
    """The measure by which it is the best although its time is longer; else empty."""
    if best is None or last is None or best.time is None or last.time is None or not last.passed:
        return ""
    is_paired = best.against("eager") is not None and last.against("eager") is not None
    is_longer = best.time.median_ms > last.time.median_ms
    if is_paired and is_longer and (times_as_fast(best, last) or 0.0) > 1.0:
        return " by its speedup, though not by its time, which other work changes more"
    return ", though noise may hide which is faster" if tied(best, last) else ""


#: For a Designer, of a sketch that leaves the cost model nothing to gain.
_AT_BOUND = (
    "The sketch allows the bound by the cost model, so another one helps only by what that does not count: fewer "
    "operations, or another order of the work."
)
#: For a Designer, of code that takes other steps than its sketch and is faster than that allows.
_BEYOND = "Make a sketch of the steps that make the code faster than its sketch, where the language can state them."


def slow_because(brief: RouteBrief, to: RouteKind = RouteKind.DESIGNER) -> tuple[str, list[RouteFact]]:
    """Suggest what the role ``to`` should change to make a right kernel faster, and return the facts for it."""
    verdict = brief.verdict
    facts = []
    if verdict is not None and verdict.time is not None and verdict.bound_share is not None:
        earlier = next((n for n, a in enumerate(brief.rounds[:-1], 1) if a.verdict is verdict), None)
        prefix = f"round {earlier}: " if earlier else ""
        eager = verdict.against("eager")
        speedup = f", {eager.text}" if eager is not None else ""
        share = f"{100 * verdict.bound_share:.3g} % of the bound"
        facts.append(f"{prefix}time {duration(verdict.time.median_ms)}, {share}{speedup}")
    best = best_of(brief.rounds)
    if brief.headroom is not None and (best is None or best.verdict is not verdict):
        facts.append(brief.reached)
    if verdict is not None and verdict.own_share is not None and verdict.own_share < 0.99:
        facts.append(f"{100 * verdict.own_share:.0f} % of the time is spent in the kernel's own code")
    cost = _cost(brief)
    if cost is None:
        reason = ": the sketch could not be costed" if brief.sketch else ""
        return f"Make it faster{reason}. Change one thing at a time.", [RouteFact(text=fact) for fact in facts]
    follows_rules = brief.candidate is None or brief.candidate.author is Author.RULES
    # lines of other code do not describe the sketch that a Designer revises
    hot = hot_line(brief, to, lines=follows_rules or to is RouteKind.CODER, at_once=cost.parallelism)
    # samples replace a model's guess, and a sketch's cost does not apply to other code
    advice_parts, cost_facts = _of_launches(cost, brief.target, brief.allow_library, guess=follows_rules and not hot)
    advice_parts = [hot, *advice_parts] if hot else advice_parts or ["Change one thing at a time."]
    if (ratio := more_work(brief.task, cost)) is not None and cost.bound == "compute":
        cost_facts.append(f"{ratio:.1f} times the arithmetic of the reference")
        advice_parts = [
            f"The sketch does {ratio:.1f} times the arithmetic of the reference; {largest_part(brief.task, cost)}: "
            "look for what is computed there more than once, or is not used."
        ]
    standing, own_facts = standing_of(brief), list[str]()
    if standing is not None:
        own_facts = [] if standing.sketch_at_bound else [f"the sketch's own roofline is {duration(standing.sketch_ms)}"]
        if follows_rules and standing.code_costs_more and len(cost.launches) > 1:
            cost_facts.append(
                f"the judge times a call as a whole: in which of the {len(cost.launches)} launches the other "
                f"{duration(standing.time_ms - standing.sketch_ms)} go was not measured"
            )
        if to is RouteKind.CODER:
            gain, is_same_sketch = None if is_best(brief) else _gain_over_best(brief), _is_of_best_sketch(brief)
            samples = verdict.hot.samples if verdict is not None and verdict.hot is not None else 0
            advice_parts = [_about_code(standing, cost, gain, is_same_sketch, hot, follows_rules, samples)]
            if not follows_rules:
                own_facts, cost_facts = [], []  # the sketch's traffic does not describe other code's
        elif standing.sketch_at_bound and not follows_rules and not hot:
            advice_parts = [_AT_BOUND]
        elif standing.is_beyond_sketch:
            # its tiles and loops are not the sketch's, so the cost model does not describe them
            advice_parts = [hot] if hot else [_BEYOND]
            own_facts, cost_facts = (
                [],
                ["the code takes less time than its sketch would by the cost model: it takes other steps"],
            )
    of_cost = len(cost.launches) < 2
    return " ".join(advice_parts), [
        *(RouteFact(text=fact) for fact in facts), *(RouteFact(text=fact, of_cost=True) for fact in own_facts),
        *(RouteFact(text=fact, of_cost=of_cost or fact == _at_once(cost)) for fact in cost_facts),
    ]  # fmt: skip


def most_of(share: float) -> str:
    """Describe the largest part of a whole by its share (0 to 1)."""
    return "most of it" if share > _MOST else f"the largest part of it, {share:.0%},"


def _at_once(cost: Cost) -> str:
    return f"the sketch has {counted(round(cost.parallelism), 'parallel iteration')}"


def _of_launches(cost: Cost, target: Target, library: bool, guess: bool) -> tuple[list[str], list[str]]:
    """Advice and facts about the launch with most of the time in the cost model, if there are several; see
    :func:`_from_cost` for ``guess``."""
    if len(cost.launches) < 2:
        return _from_cost(cost, target, guess)
    launch = hot_launch(cost)
    if launch is None:
        words, facts = _from_cost(cost, target, guess)
        unknown = "which of them takes most of the time is not known: the chip's rates are not"
        return words, [f"the sketch has {len(cost.launches)} launches; {unknown}", *facts]
    launch_fact = (
        f"of {len(cost.launches)} launches {launch.kernel} (line {launch.line}) takes the most by the cost model, "
        f"{share_of(launch, cost):.0%} of the sketch's roofline time"
    )
    if launch.library:
        remark = "" if library else ": another design must do without it"
        return [f"{launch.kernel} is a call of the framework's library{remark}."], [launch_fact]
    words, facts = _from_cost(launch.cost, target, guess, f"launch {launch.kernel}")
    return words, [launch_fact, *facts]


def _about_code(
    standing: Standing, cost: Cost, gain: float | None, same: bool, hot: str, follows: bool, samples: int
) -> str:  # fmt: skip
    """Advice for a kernel far from what its sketch allows, or the machine if it does not follow the sketch. ``gain`` is
    its speedup over the best earlier kernel, whose sketch is the ``same`` or not. ``samples`` is the number of
    samples."""
    # of two nearly equal limits the prompt names one
    by_sketch = follows and not standing.sketch_at_bound
    limit, phrase = (standing.sketch_ms, "The sketch allows") if by_sketch else (standing.bound_ms, "The bound is")
    times = f"{phrase} {duration(limit)} and the code takes {duration(standing.time_ms)}"
    if gain is not None and gain * GAIN < 1 and not same:
        times += f"; by the speedups an earlier kernel, of another sketch, was {1 / gain:.2f} times as fast"
    elif gain is not None and gain * GAIN < 1:
        return (
            f"{times}; by the speedups an earlier kernel was {1 / gain:.2f} times as fast: begin with its code, and "
            "change one thing."
        )
    if limit < CALL_MS:
        times += f"; any call takes longer than {duration(CALL_MS)}"
    if hot:
        return f"{times}. {hot}"
    hottest = _hottest(cost) if follows and limit >= CALL_MS else None
    place = f": by the cost model the loop of line {hottest.line} of the sketch holds most of it" if hottest else ""
    if samples:
        return f"{times}; {counted(samples, 'sample')} do not say where its time goes{place}."
    return f"{times}; where its time goes was not sampled{place}."


def _gain_over_best(brief: RouteBrief) -> float | None:
    """The speedup over the best of the earlier kernels; None before the first."""
    best = best_of(brief.history)
    return times_as_fast(brief.verdict, best.verdict) if brief.verdict and best and best.verdict else None


def _is_of_best_sketch(brief: RouteBrief) -> bool:
    """Whether the best earlier kernel has this sketch, with any tunables. Other designs' code is not a start."""
    best = best_of(brief.history)
    return best is None or design_of(best.sketch or "", {})[0] == design_of(brief.sketch or "", {})[0]


def _from_cost(cost: Cost, target: Target, guess: bool, name: str = "the sketch") -> tuple[list[str], list[str]]:
    """Advice and facts from the cost model; with ``guess`` also likely causes if nothing stands out."""
    parallel_fact = _at_once(cost)
    words, facts = [], [f"{name} is bound by {cost.bound}", parallel_fact]
    worst = max(cost.tensors, key=lambda t: t.slow - t.unique, default=None)
    is_refetched = worst is not None and worst.unique and worst.slow > _AGAIN * worst.unique
    if worst is not None and is_refetched:
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
    """The likely place of a sketch's time by the cost model when nothing was sampled; empty if no loop contains it."""
    if cost.time_ms is not None and cost.time_ms < CALL_MS:
        return (
            f"By the cost model the work takes {duration(cost.time_ms)}, and any call longer than {duration(CALL_MS)}: "
            "a sketch can only save launches, outputs and temporaries."
        )
    if (hottest := _hottest(cost)) is None:
        return ""
    cause = "Arithmetic bounds it" if cost.bound != "memory" else "Each tensor is fetched about once"
    return (
        f"{cause}, so by the cost model the time goes into what the loop of line {hottest.line} does each time: its "
        "loads, its stores and its arithmetic. Change one thing at a time."
    )


def hot_of(brief: RouteBrief) -> str:
    """The sketch's hot operation, in a sentence; empty if its cost is unknown."""
    cost, standing = _cost(brief), standing_of(brief)
    return hot_operation(cost, standing is None or not standing.at_roofline) if cost is not None else ""


def _hottest(cost: Cost) -> LoopCost | None:
    """The innermost loop with most of what bounds the sketch, or of the launch with most of its time."""
    launch = hot_launch(cost)
    cost = cost if launch is None else launch.cost

    def weight(row: LoopCost) -> float:
        return row.bytes_total if cost.bound == "memory" else row.flops

    highest = max(map(weight, cost.loops), default=0.0)
    return max(
        (r for r in cost.loops if r.iterations > 1 and weight(r) >= 0.5 * highest),
        key=lambda r: r.iterations,
        default=None,
    )


def _cost(brief: RouteBrief) -> Cost | None:
    if not brief.sketch:
        return None
    constexpr = brief.candidate.constexpr if brief.candidate else {}
    try:
        return cost_at(brief.sketch, brief.task, brief.target, constexpr)
    except KernellabError:
        return None


def cost_at(sketch: str, task: Task, target: Target, constexpr: Mapping[str, int | float]) -> Cost:
    """Return the cost of a sketch at the task's own sizes.

    Raises:
        SketchError: the sketch is invalid, cannot be bound to the task, or its cost cannot be computed.
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
