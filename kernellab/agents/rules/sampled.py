"""Where a kernel's time goes, in sentences: from the judge's program counter samples, or a GPU's counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernellab.agents.briefs import RouteBrief
from kernellab.errors import counted
from kernellab.records import Author, RouteKind, Source, Verdict
from kernellab.records.counters import HotSpots

if TYPE_CHECKING:
    from kernellab.lens.cpp.hot import HotLine

#: Minimum share of the samples of a line that is reported.
_HOT_SHARE = 0.1
#: Maximum number of lines in a prompt; share at which to begin at a line; share outside all lines that is reported.
_HOT_LINES, _BEGIN_SHARE, _OUTSIDE_SHARE = 3, 0.3, 0.2
#: Fewer samples of a line, or in all, are chance.
_LEAST_SAMPLES, ENOUGH_SAMPLES = 5, 10
#: Share above which the samples outside the kernel's lines are the subject.
_ELSEWHERE_SHARE = 0.4
#: Share above which a part is called most of the samples.
_MOST = 0.5
#: Parallel iterations per core up to which fewer of them do not make threads start and wait less.
_FEW = 8


def hot_line(brief: RouteBrief, to: RouteKind, lines: bool = True, at_once: float | None = None) -> str:
    """Name the line with the most samples (if ``lines``), or why threads do not reach the lines, or what a GPU's warps
    wait for, in a sentence; empty if unknown, or if prompts omit it. A Designer, who has no code, receives only the
    sketch's line. ``at_once``: the sketch's number of parallel iterations, if known."""
    if brief.verdict is None or brief.candidate is None or "profile" in brief.ablation:
        return ""
    sentences = time_goes(brief.candidate.source, brief.verdict)
    if brief.verdict.counters:
        return sentences[-1] if sentences and lines else ""  # the decisive fact
    from kernellab.lens.cpp.hot import hot_lines

    hot = brief.verdict.hot
    if hot is None or hot.samples < ENOUGH_SAMPLES or not (samples_by_line := hot_lines(brief.candidate.source, hot)):
        return ""
    if (outside_text := _elsewhere(brief, brief.verdict, hot, samples_by_line, to, at_once)) or not lines:
        return outside_text
    if to is RouteKind.DESIGNER:
        return _hot_sketch_line(samples_by_line)
    if single := _on_single_numbers(hot, samples_by_line):
        return single
    if (hottest := samples_by_line[0]).share < _BEGIN_SHARE:
        second = samples_by_line[1] if len(samples_by_line) > 1 else None
        if second is not None and second.share >= _HOT_SHARE and hottest.share + second.share >= _ELSEWHERE_SHARE:
            both_share = hottest.share + second.share
            return f"Begin at {hottest.place} and {second.place}, where {both_share:.0%} of the samples are."
        own = 1.0 - outside_of(hot, samples_by_line)
        if own < _MOST and hottest.share >= _MOST * own and hottest.count >= _LEAST_SAMPLES:
            return (
                f"Begin at {hottest.place}, which has {hottest.share / own:.0%} of the samples at the kernel's lines."
            )
        if own < _MOST:
            return "Most samples are at no line of the kernel: they do not say which line to change."
        return (
            f"No line of the kernel has more than {hottest.share:.0%} of the samples: change what a loop loads, keeps "
            "and repeats, and not one line of it."
        )
    return f"Begin at {hottest.place}, where {hottest.share:.0%} of the samples are."


def _hot_sketch_line(lines: Sequence[HotLine]) -> str:
    """Name the sketch's line whose code has the most samples, in a sentence."""
    shares: dict[int, float] = {}
    for line in lines:
        shares[line.sketch] = shares.get(line.sketch, 0.0) + (line.share if line.sketch else 0.0)
    number = max(shares, key=lambda n: shares[n])
    if not shares[number]:
        return "The samples are at code that belongs to no sketch line."
    if shares[number] < _BEGIN_SHARE:
        return (
            f"The code of no line of the sketch has more than {shares[number]:.0%} of the samples: look at what its "
            "loops load, keep and repeat, and not at one line."
        )
    code_lines = [line for line in lines if line.sketch == number]
    single = sum(line.share for line in code_lines if line.single)
    sentence = f"The code of sketch line {number} has {shares[number]:.0%} of the samples"
    if single >= _MOST * shares[number]:
        return f"{sentence}, with arithmetic on single numbers: its vectors want an axis of independent elements."
    return f"{sentence}: begin there."


def _on_single_numbers(hot: HotSpots, lines: Sequence[HotLine]) -> str:
    """State that most of the time at lines is arithmetic without vectors, in a sentence; else empty."""
    single = [line for line in lines if line.single and line.count >= _LEAST_SAMPLES]
    share = sum(line.share for line in single)
    own_share = 1.0 - outside_of(hot, lines)
    if len(single) < 2 or own_share < _MOST or share < _MOST * own_share:
        return ""
    numbers, files = [line.line for line in single], {line.file for line in single}
    where = f" ({single[0].file}:{min(numbers)} to {max(numbers)})" if len(files) == 1 else ""
    return (
        f"{share:.0%} of the samples are at {len(single)} lines{where} whose arithmetic is on "
        "single numbers: write those loops so that the compiler makes vectors of them, without branches, calls "
        "and remainders, or write the vectors."
    )


def other_load(verdict: Verdict) -> str:
    """The load if other work needed the cores too, so that threads may have waited for one; else empty."""
    environment = verdict.environment
    is_crowded = environment.threads and environment.load > environment.threads + 2
    return f"load {environment.load:.0f} for {counted(environment.threads, 'thread')}" if is_crowded else ""


def _elsewhere(
    brief: RouteBrief, verdict: Verdict, hot: HotSpots, lines: Sequence[HotLine], to: RouteKind, at_once: float | None
) -> str:  # fmt: skip
    """Name what has most of the samples if it is not the kernel's lines, in a sentence."""
    outside = outside_of(hot, lines)
    if outside < _ELSEWHERE_SHARE:
        return ""
    if hot.waiting is None:
        return f"{outside:.0%} of the samples are at no line of the kernel: look at what is around the lines, too."
    waiting, call = hot.waiting / hot.samples, _calling(hot) / hot.samples
    in_threads, in_call, _ = _outside_shares(hot, outside)
    # a Coder may replace a helper's call, and a sketch decides which helpers are called
    if outside - waiting - call >= max(waiting, call, _ELSEWHERE_SHARE):
        from kernellab.lens.cpp.hot import helpers_in

        share, names = outside - waiting - call, " and ".join(helpers_in(hot)[:2])
        remedy = "the sketch's operations decide which" if to is RouteKind.DESIGNER else "look at the calls of them"
        return f"{share:.0%} of the samples are in helpers{f' ({names})' if names else ''}: {remedy}."
    if waiting >= max(call, _ELSEWHERE_SHARE):
        text = f"{in_threads}% of the samples are of threads that start or wait"
        if other_load(verdict):
            return ""  # they waited for a core
        return (
            f"{text}: give each thread more work in one piece and all of them alike, or use one thread where there is "
            "little."
        )
    if call >= _ELSEWHERE_SHARE:
        # the task determines the number of outputs
        remedy = ": fewer temporary tensors help there" if _has_temporaries(brief) else ""
        return (
            f"{in_call}% of the samples are in the call and its host code, which faster lines of the kernel do not "
            f"change{remedy}."
        )
    if other_load(verdict) and waiting >= call:
        return ""  # most samples at no line waited for a core
    if to is RouteKind.DESIGNER:
        has_many = at_once is not None and at_once > _FEW * brief.target.chip.cores
        remedy = ": larger iterations help" if waiting >= call and has_many else ""
        return f"Threads that start or wait and the call have {waiting + call:.0%} of the samples{remedy}."
    text = f"Faster lines change at most {1 - waiting - call:.0%} of the time: threads that start or wait and the call "
    remedy = " Give each thread more work in one piece." if waiting >= call else ""
    return f"{text}have the rest.{remedy}"


def _has_temporaries(brief: RouteBrief) -> bool:
    """Whether the code's host makes tensors only for the sketch. This is known only for code by the rules."""
    from kernellab.sketch.check import load_program
    from kernellab.sketch.program.program import TensorRole

    if not brief.sketch or brief.candidate is None or brief.candidate.author is not Author.RULES:
        return False
    tensors = load_program(brief.sketch).tensors  # it was lowered, so it is valid
    return any(tensor.role is TensorRole.TEMP for tensor in tensors)


def time_goes(source: Source, verdict: Verdict) -> list[str]:
    """Where a kernel's time goes, in sentences: from a GPU's counters, or from the lines of program counter samples;
    empty without either."""
    from kernellab.lens.counters.read import told
    from kernellab.lens.cpp.hot import hot_lines

    if verdict.counters:
        return told(verdict.counters, verdict.time.median_ms if verdict.time else None)
    if verdict.hot is None or verdict.hot.samples < ENOUGH_SAMPLES or not (lines := hot_lines(source, verdict.hot)):
        return []
    told_lines = [line.told for line in lines if line.share >= _HOT_SHARE and line.count >= _LEAST_SAMPLES]
    outside = outside_of(verdict.hot, lines)
    told_lines = told_lines[:_HOT_LINES]
    named_share = sum(line.share for line in lines[: len(told_lines)])
    rest = 1.0 - named_share - max(outside, 0.0)
    if rest >= _OUTSIDE_SHARE and (told_lines or outside >= _OUTSIDE_SHARE):
        told_lines.append(f"{rest:.0%} of the samples are at {'other lines' if told_lines else 'many lines'}.")
    return told_lines + ([_outside_told(verdict, verdict.hot, outside)] if outside >= _OUTSIDE_SHARE else [])


def _outside_told(verdict: Verdict, hot: HotSpots, outside: float) -> str:
    """State what the samples at no line of the source belong to, in a sentence."""
    sentence = f"{outside:.0%} of {hot.samples} samples are at no line of the kernel"
    if hot.waiting is None:
        return f"{sentence}: in helpers, waiting threads, the call, the host code."
    from kernellab.lens.cpp.hot import helpers_in

    threads, call, helpers = _outside_shares(hot, outside)
    names = ", ".join(helpers_in(hot)[:2]) if helpers > 0 else ""
    parts = (
        (
            threads,
            f"in OpenMP's runtime, where threads start and wait{', also for cores' if other_load(verdict) else ''}",
        ),
        (call, "in the call and its host code"),
        (helpers, f"in helpers{f' ({names})' if names else ''}"),
    )
    return f"{sentence}: {', '.join(f'{share}% {where}' for share, where in parts if share > 0)}."


def _outside_shares(hot: HotSpots, outside: float) -> list[int]:
    """Samples at no line, in percent: threads that start or wait, the call, helpers."""
    helpers = round(outside * hot.samples) - (hot.waiting or 0) - _calling(hot)
    return rounded_shares([hot.waiting or 0, _calling(hot), max(helpers, 0)], hot.samples)


def rounded_shares(counts: Sequence[int], samples: int) -> list[int]:
    """Each count in percent of ``samples``, as integers whose sum is the rounded percentage of all counts."""
    exact = [100 * count / samples for count in counts]
    percentages = [int(share) for share in exact]
    missing = round(sum(exact)) - sum(percentages)
    for place in sorted(range(len(exact)), key=lambda i: percentages[i] - exact[i])[:missing]:
        percentages[place] += 1
    return percentages


def _calling(hot: HotSpots) -> int:
    """Samples that are in neither the kernel's files nor OpenMP's runtime."""
    return hot.samples - (hot.waiting or 0) - hot.further - sum(spot.count for spot in hot.spots)


def outside_of(hot: HotSpots | None, lines: Sequence[HotLine]) -> float:
    """The share of the samples at no line of the source."""
    return 1.0 - sum(line.share for line in lines) - (hot.further / hot.samples if hot else 0.0)
