"""What would make a right kernel faster: changes that its sketch's cost, its samples and its times suggest.

Samples are measured, so they come before the cost model's guesses; and a sketch's cost describes only code that follows
the sketch. The advice for a Coder states how far the code is from its sketch or its bound, that for a Designer what to
change in the sketch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kernellab.agents.briefs import RouteBrief, best_of, times_as_fast
from kernellab.agents.designs import design_of
from kernellab.agents.rules.performance import GAIN, Standing, is_best, standing_of
from kernellab.agents.rules.sampled import hot_line
from kernellab.agents.rules.sketch_cost import cost_of, largest_part, more_work
from kernellab.agents.rules.slow import hot_launch, share_of
from kernellab.errors import counted, duration, kilobytes
from kernellab.records import Author, RouteFact, RouteKind
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab.sketch.cost import Cost, LoopCost

#: Ratio of traffic to distinct bytes above which it is reported.
_REFETCHED = 1.2
#: Minimum time of any call in ms: Python, outputs and the entry into the code.
CALL_MS = 0.002


_ONE_THING = "Change one thing at a time."
#: For a Designer, of a sketch that leaves the cost model nothing to gain.
_AT_BOUND = (
    "The sketch allows the bound by the cost model, so another one helps only by what that does not count: fewer "
    "operations, or another order of the work."
)
#: For a Designer, of code that takes other steps than its sketch and is faster than that allows.
_BEYOND = "Make a sketch of the steps that make the code faster than its sketch, where the language can state them."


class Suggestion(NamedTuple):
    """What a role should change, and the facts for it."""

    text: str
    facts: list[RouteFact]


class _Advice(NamedTuple):
    """Sentences, and facts: from the cost model, and about the sketch's roofline."""

    sentences: list[str]
    cost_facts: list[str]
    roofline_facts: list[str]


def slow_because(brief: RouteBrief, to: RouteKind = RouteKind.DESIGNER) -> Suggestion:
    """Suggest what the role ``to`` should change to make a right kernel faster."""
    measured = [RouteFact(text=fact) for fact in _measured_facts(brief)]
    cost = cost_of(brief)
    if cost is None:
        reason = ": the sketch could not be costed" if brief.sketch else ""
        return Suggestion(f"Make it faster{reason}. {_ONE_THING}", measured)
    advice = _by_cost(brief, to, cost)
    # figures of one launch among several are not the sketch's
    is_of_sketch = len(cost.launches) < 2
    facts = [
        *measured, *(RouteFact(text=fact, of_cost=True) for fact in advice.roofline_facts),
        *(RouteFact(text=fact, of_cost=is_of_sketch or fact == _parallel_fact(cost)) for fact in advice.cost_facts),
    ]  # fmt: skip
    return Suggestion(" ".join(advice.sentences), facts)


def _measured_facts(brief: RouteBrief) -> list[str]:
    """The facts that the judge measured."""
    verdict, facts = brief.verdict, []
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
    return facts


def _by_cost(brief: RouteBrief, to: RouteKind, cost: Cost) -> _Advice:
    """Advice by the sketch's cost and the samples."""
    follows_rules = brief.candidate is None or brief.candidate.author is Author.RULES
    # lines of other code do not describe the sketch that a Designer revises
    hot = hot_line(brief, to, lines=follows_rules or to is RouteKind.CODER, parallelism=cost.parallelism)
    # samples replace a model's guess, and a sketch's cost does not apply to other code
    by_model = _of_launches(cost, brief.target, brief.allow_library, guess=follows_rules and not hot)
    sentences = [hot, *by_model.sentences] if hot else by_model.sentences or [_ONE_THING]
    cost_facts = [*by_model.cost_facts]
    if (ratio := more_work(brief.task, cost)) is not None and cost.bound == "compute":
        cost_facts.append(f"{ratio:.1f} times the arithmetic of the reference")
        sentences = [
            f"The sketch does {ratio:.1f} times the arithmetic of the reference; {largest_part(brief.task, cost)}: "
            "look for what is computed there more than once, or is not used."
        ]
    standing = standing_of(brief)
    if standing is None:
        return _Advice(sentences, cost_facts, [])
    roofline = [] if standing.sketch_at_bound else [f"the sketch's own roofline is {duration(standing.sketch_ms)}"]
    if follows_rules and standing.code_costs_more and len(cost.launches) > 1:
        cost_facts.append(
            f"the judge times a call as a whole: in which of the {len(cost.launches)} launches the other "
            f"{duration(standing.time_ms - standing.sketch_ms)} go was not measured"
        )
    if to is RouteKind.CODER:
        sentences = [_about_code(brief, standing, cost, hot, follows_rules)]
        # the sketch's traffic does not describe other code's
        return _Advice(sentences, cost_facts, roofline) if follows_rules else _Advice(sentences, [], [])
    if standing.sketch_at_bound and not follows_rules and not hot:
        return _Advice([_AT_BOUND], cost_facts, roofline)
    if standing.is_beyond_sketch:
        # its tiles and loops are not the sketch's, so the cost model does not describe them
        steps = "the code takes less time than its sketch would by the cost model: it takes other steps"
        return _Advice([hot or _BEYOND], [steps], [])
    return _Advice(sentences, cost_facts, roofline)


def _parallel_fact(cost: Cost) -> str:
    return f"the sketch has {counted(round(cost.parallelism), 'parallel iteration')}"


def _of_launches(cost: Cost, target: Target, library: bool, guess: bool) -> _Advice:
    """Advice and facts about the launch with most of the time in the cost model, if there are several; see
    :func:`_from_cost` for ``guess``."""
    if len(cost.launches) < 2:
        return _from_cost(cost, target, guess)
    launch = hot_launch(cost)
    if launch is None:
        advice = _from_cost(cost, target, guess)
        unknown = "which of them takes most of the time is not known: the chip's rates are not"
        launches_fact = f"the sketch has {len(cost.launches)} launches; {unknown}"
        return advice._replace(cost_facts=[launches_fact, *advice.cost_facts])
    launch_fact = (
        f"of {len(cost.launches)} launches {launch.kernel} (line {launch.line}) takes the most by the cost model, "
        f"{share_of(launch, cost):.0%} of the sketch's roofline time"
    )
    if launch.library:
        remark = "" if library else ": another design must do without it"
        return _Advice([f"{launch.kernel} is a call of the framework's library{remark}."], [launch_fact], [])
    advice = _from_cost(launch.cost, target, guess, f"launch {launch.kernel}")
    return advice._replace(cost_facts=[launch_fact, *advice.cost_facts])


def _about_code(brief: RouteBrief, standing: Standing, cost: Cost, hot: str, follows_rules: bool) -> str:
    """Advice for a kernel far from what its sketch allows, or from what the machine allows if the code does not follow
    the sketch. ``hot`` names its hot lines; "" if they were not sampled."""
    verdict = brief.verdict
    samples = verdict.hot.samples if verdict is not None and verdict.hot is not None else 0
    gain = None if is_best(brief) else _gain_over_best(brief)
    # of two nearly equal limits the prompt names one
    by_sketch = follows_rules and not standing.sketch_at_bound
    limit, phrase = (standing.sketch_ms, "The sketch allows") if by_sketch else (standing.bound_ms, "The bound is")
    times = f"{phrase} {duration(limit)} and the code takes {duration(standing.time_ms)}"
    if gain is not None and gain * GAIN < 1 and not _is_of_best_sketch(brief):
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
    hottest = _hottest(cost) if follows_rules and limit >= CALL_MS else None
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
    return best is None or design_of(best.sketch or "", {}).structure == design_of(brief.sketch or "", {}).structure


def _from_cost(cost: Cost, target: Target, guess: bool, name: str = "the sketch") -> _Advice:
    """Advice and facts from the cost model; with ``guess`` also likely causes if nothing stands out."""
    sentences, facts = [], [f"{name} is bound by {cost.bound}", _parallel_fact(cost)]
    worst = max(cost.tensors, key=lambda t: t.slow - t.unique, default=None)
    is_refetched = worst is not None and worst.unique and worst.slow > _REFETCHED * worst.unique
    if worst is not None and is_refetched:
        times = worst.slow / worst.unique
        facts.append(f"{worst.tensor} is fetched {times:.1f} times (line {worst.line})")
        if cost.bound == "memory":
            sentences.append(
                f"Keep {worst.tensor} on chip: line {worst.line} fetches it {times:.1f} times; "
                "load a tile once for all uses, or make the tile of the other dimension larger."
            )
    if cost.parallelism < target.chip.cores:
        facts.append(f"the chip has {target.chip.cores} cores")
        if cost.parallelism > 1:
            sentences.append(
                f"Only {counted(round(cost.parallelism), 'iteration')} can run at once on {target.chip.cores} cores: "
                "split an outer loop, or make its tile smaller."
            )
        elif any(row.iterations > 1 for row in cost.loops):
            sentences.append(
                f"No two iterations can run at once, and there are {target.chip.cores} cores: mark a loop whose "
                "iterations are independent as parallel, or split one."
            )
    limit = target.chip.on_chip_bytes
    if limit and cost.footprint > limit:
        facts.append(f"tiles of {kilobytes(cost.footprint)}, {kilobytes(limit)} on chip")
        sentences.append(
            f"The tiles of one iteration take {kilobytes(cost.footprint)} and {kilobytes(limit)} are on chip: "
            "make them smaller."
        )
    hottest = _hottest(cost)
    if hottest is not None:
        share = "bytes" if cost.bound == "memory" else "FLOPs"
        facts.append(f"by the cost model most of the {share} are in the loop of line {hottest.line} ({hottest.label})")
    return _Advice(sentences or ([_likely_cause(cost) or _ONE_THING] if guess else []), facts, [])


def _likely_cause(cost: Cost) -> str:
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
