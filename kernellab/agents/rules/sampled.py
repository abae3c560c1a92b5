"""Where a kernel's time goes, in sentences: from the judge's program counter samples, or a GPU's counters.

:func:`time_goes` describes it for a prompt; :func:`hot_line` says in one sentence where to begin. Samples lie at lines
of the kernel's source, or outside of them: in OpenMP's runtime (threads that start or wait), in the call and its host
code, or in helpers (:class:`Samples`). If most are outside, the lines are not the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kernellab.agents.briefs import RouteBrief
from kernellab.errors import counted
from kernellab.records import Author, RouteKind, Source, Verdict
from kernellab.records.counters import HotSpots

if TYPE_CHECKING:
    from kernellab.lens.cpp.hot import HotLine

# The thresholds are chosen, not measured.
#: Share of the samples from which a line is reported, and from which it is the place to begin.
_REPORTED_SHARE, _BEGIN_SHARE = 0.1, 0.3
#: Maximum number of lines in a prompt, and share of the samples outside all lines from which they are reported.
_HOT_LINES, _OUTSIDE_SHARE = 3, 0.2
#: Fewer samples of a line, or in all, are chance.
_LEAST_SAMPLES, ENOUGH_SAMPLES = 5, 10
#: Share above which the samples outside the kernel's lines are the subject.
_ELSEWHERE_SHARE = 0.4
#: Share above which a part is called most of the samples.
_MOST = 0.5
#: Parallel iterations per core up to which fewer of them do not make threads start and wait less.
_FEW_ITERATIONS = 8

_OTHER_LINES = "of the samples are at no line of the kernel: look at what is around the lines, too."


class _Percentages(NamedTuple):
    """The samples at no line, in percent of all."""

    threads: int
    call: int
    helpers: int


@dataclass(frozen=True)
class Samples:
    """A kernel's samples: ``lines`` of its source, the most sampled first. All properties are shares (0 to 1)."""

    hot: HotSpots
    lines: Sequence[HotLine]

    @property
    def outside(self) -> float:
        """At no line of the source."""
        return 1.0 - sum(line.share for line in self.lines) - self.hot.further / self.hot.samples

    @property
    def at_lines(self) -> float:
        return 1.0 - self.outside

    @property
    def waiting(self) -> float:
        """In OpenMP's runtime; 0 if it was not counted."""
        return (self.hot.waiting or 0) / self.hot.samples

    @property
    def call(self) -> float:
        """In neither the kernel's files nor OpenMP's runtime."""
        return self._call_count / self.hot.samples

    @property
    def helpers(self) -> float:
        return self.outside - self.waiting - self.call

    @property
    def helper_names(self) -> tuple[str, ...]:
        from kernellab.lens.cpp.hot import helpers_in

        return helpers_in(self.hot)[:2]

    @property
    def percentages(self) -> _Percentages:
        waiting, call = self.hot.waiting or 0, self._call_count
        helpers = max(round(self.outside * self.hot.samples) - waiting - call, 0)
        return _Percentages(*rounded_shares([waiting, call, helpers], self.hot.samples))

    @property
    def _call_count(self) -> int:
        at_places = self.hot.further + sum(spot.count for spot in self.hot.spots)
        return self.hot.samples - (self.hot.waiting or 0) - at_places


def samples_of(source: Source, hot: HotSpots | None) -> Samples | None:
    """The samples of a source; None if there are too few, or none at its lines."""
    from kernellab.lens.cpp.hot import hot_lines

    if hot is None or hot.samples < ENOUGH_SAMPLES:
        return None
    lines = hot_lines(source, hot)
    return Samples(hot, lines) if lines else None


def hot_line(brief: RouteBrief, to: RouteKind, lines: bool = True, parallelism: float | None = None) -> str:
    """Name the line with the most samples (if ``lines``), or why threads do not reach the lines, or what a GPU's warps
    wait for, in a sentence; empty if unknown, or if prompts omit it. A Designer, who has no code, receives only the
    sketch's line. ``parallelism``: the sketch's number of parallel iterations, if known."""
    if brief.verdict is None or brief.candidate is None or "profile" in brief.ablation:
        return ""
    if brief.verdict.counters:
        sentences = time_goes(brief.candidate.source, brief.verdict)
        return sentences[-1] if sentences and lines else ""  # the decisive fact
    samples = samples_of(brief.candidate.source, brief.verdict.hot)
    if samples is None:
        return ""
    outside_text = _elsewhere(brief, brief.verdict, samples, to, parallelism)
    if outside_text or not lines:
        return outside_text
    if to is RouteKind.DESIGNER:
        return _hot_sketch_line(samples.lines)
    return _on_single_numbers(samples) or _where_to_begin(samples)


def _where_to_begin(samples: Samples) -> str:
    """Name the hottest line, or the two hottest ones, in a sentence; or state that no line stands out."""
    hottest, *others = samples.lines
    if hottest.share >= _BEGIN_SHARE:
        return f"Begin at {hottest.place}, where {hottest.share:.0%} of the samples are."
    if others and others[0].share >= _REPORTED_SHARE and hottest.share + others[0].share >= _ELSEWHERE_SHARE:
        share = hottest.share + others[0].share
        return f"Begin at {hottest.place} and {others[0].place}, where {share:.0%} of the samples are."
    at_lines = samples.at_lines
    if at_lines >= _MOST:
        return (
            f"No line of the kernel has more than {hottest.share:.0%} of the samples: change what a loop loads, keeps "
            "and repeats, and not one line of it."
        )
    if hottest.share >= _MOST * at_lines and hottest.count >= _LEAST_SAMPLES:
        share = hottest.share / at_lines
        return f"Begin at {hottest.place}, which has {share:.0%} of the samples at the kernel's lines."
    return "Most samples are at no line of the kernel: they do not say which line to change."


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


def _on_single_numbers(samples: Samples) -> str:
    """State that most of the time at lines is arithmetic without vectors, in a sentence; else empty."""
    single = [line for line in samples.lines if line.single and line.count >= _LEAST_SAMPLES]
    share, at_lines = sum(line.share for line in single), samples.at_lines
    if len(single) < 2 or at_lines < _MOST or share < _MOST * at_lines:
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


def _elsewhere(brief: RouteBrief, verdict: Verdict, samples: Samples, to: RouteKind, parallelism: float | None) -> str:
    """Name what has most of the samples if it is not the kernel's lines, in a sentence; empty if it is, or if other
    work on the machine explains the samples."""
    if samples.outside < _ELSEWHERE_SHARE:
        return ""
    if samples.hot.waiting is None:
        return f"{samples.outside:.0%} {_OTHER_LINES}"
    waiting, call = samples.waiting, samples.call
    if samples.helpers >= max(waiting, call, _ELSEWHERE_SHARE):
        return _about_helpers(samples, to)
    if other_load(verdict) and waiting >= call:
        return ""  # the threads waited for a core
    if waiting >= max(call, _ELSEWHERE_SHARE):
        return (
            f"{samples.percentages.threads}% of the samples are of threads that start or wait: give each thread more "
            "work in one piece and all of them alike, or use one thread where there is little."
        )
    if call >= _ELSEWHERE_SHARE:
        # the task determines the number of outputs
        remedy = ": fewer temporary tensors help there" if _has_temporaries(brief) else ""
        return (
            f"{samples.percentages.call}% of the samples are in the call and its host code, which faster lines of the "
            f"kernel do not change{remedy}."
        )
    if to is RouteKind.DESIGNER:
        has_many = parallelism is not None and parallelism > _FEW_ITERATIONS * brief.target.chip.cores
        remedy = ": larger iterations help" if waiting >= call and has_many else ""
        return f"Threads that start or wait and the call have {waiting + call:.0%} of the samples{remedy}."
    remedy = " Give each thread more work in one piece." if waiting >= call else ""
    return (
        f"Faster lines change at most {1 - waiting - call:.0%} of the time: threads that start or wait and the call "
        f"have the rest.{remedy}"
    )


def _about_helpers(samples: Samples, to: RouteKind) -> str:
    """A Coder may replace a helper's call, and a sketch decides which helpers are called."""
    names = " and ".join(samples.helper_names)
    remedy = "the sketch's operations decide which" if to is RouteKind.DESIGNER else "look at the calls of them"
    return f"{samples.helpers:.0%} of the samples are in helpers{f' ({names})' if names else ''}: {remedy}."


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
    from kernellab.lens.counters.read import time_summary

    if verdict.counters:
        return time_summary(verdict.counters, verdict.time.median_ms if verdict.time else None)
    samples = samples_of(source, verdict.hot)
    if samples is None:
        return []
    reported = [line for line in samples.lines if line.share >= _REPORTED_SHARE and line.count >= _LEAST_SAMPLES]
    sentences = [line.told for line in reported[:_HOT_LINES]]
    outside = samples.outside
    rest = 1.0 - sum(line.share for line in samples.lines[: len(sentences)]) - max(outside, 0.0)
    if rest >= _OUTSIDE_SHARE and (sentences or outside >= _OUTSIDE_SHARE):
        sentences.append(f"{rest:.0%} of the samples are at {'other lines' if sentences else 'many lines'}.")
    return sentences + ([_outside_text(verdict, samples)] if outside >= _OUTSIDE_SHARE else [])


def _outside_text(verdict: Verdict, samples: Samples) -> str:
    """State what the samples at no line of the source belong to, in a sentence."""
    sentence = f"{samples.outside:.0%} of {samples.hot.samples} samples are at no line of the kernel"
    if samples.hot.waiting is None:
        return f"{sentence}: in helpers, waiting threads, the call, the host code."
    percentages = samples.percentages
    names = ", ".join(samples.helper_names) if percentages.helpers > 0 else ""
    for_cores = ", also for cores" if other_load(verdict) else ""
    parts = (
        (percentages.threads, f"in OpenMP's runtime, where threads start and wait{for_cores}"),
        (percentages.call, "in the call and its host code"),
        (percentages.helpers, f"in helpers{f' ({names})' if names else ''}"),
    )
    return f"{sentence}: {', '.join(f'{percent}% {where}' for percent, where in parts if percent > 0)}."


def rounded_shares(counts: Sequence[int], samples: int) -> list[int]:
    """Each count in percent of ``samples``, as integers whose sum is the rounded percentage of all counts."""
    exact = [100 * count / samples for count in counts]
    percentages = [int(share) for share in exact]
    missing = round(sum(exact)) - sum(percentages)
    for place in sorted(range(len(exact)), key=lambda i: percentages[i] - exact[i])[:missing]:
        percentages[place] += 1
    return percentages
