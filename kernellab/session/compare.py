"""Compares two candidates: the difference of their texts, and which is faster, with the interval.

Two kernels that one run timed are compared by that run. Otherwise their speedups against one baseline are divided,
which cancels the machine's load.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kernellab.errors import SessionError
from kernellab.records import Candidate, Source, Verdict
from kernellab.session.record.standings import SELF, Ratio
from kernellab.session.record.state import State

#: Maximum number of kernels that one run times.
MOST_PAIRED = 8
#: The ``baseline`` of kernels that one run timed.
PAIRED = "each other"


class RatioOver(NamedTuple):
    """A kernel's speedup over another one, from their speedups over ``baseline``, or :data:`PAIRED`."""

    ratio: Ratio
    baseline: str


def compare_candidates(state: State, a: str, b: str) -> dict[str, Any]:
    """Compare the last candidates of the lines of turns up to ``a`` and ``b``.

    ``sketch`` and ``files`` are unified diffs from a to b (empty if equal); ``a`` and ``b`` are each one's figures.
    ``ratio`` is the speedup of b over a, with ``low`` and ``high``; None if both were not timed against the same
    baseline. The interval combines both 95 % intervals, so it is at least as wide as a 95 % interval.

    Raises:
        SessionError: one of them has no candidate.
    """
    first, second = _candidate(state, a), _candidate(state, b)
    first_name, second_name = f"turn {state.turns[a].number}", f"turn {state.turns[b].number}"

    def difference(before: str, after: str) -> str:
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), first_name, second_name, lineterm="")
        return "\n".join(lines) if before != after else ""

    files = sorted({*first.source.files, *second.source.files})
    diffs = {name: difference(first.source.files.get(name, ""), second.source.files.get(name, "")) for name in files}
    speedup = ratio_of(state, a, b)
    ratio = speedup.ratio if speedup is not None else None
    return {
        "a": _figures(state, a, first),
        "b": _figures(state, b, second),
        "sketch": difference(first.sketch or "", second.sketch or ""),
        "files": {name: text for name, text in diffs.items() if text},
        "constexpr": {
            name: [first.constexpr.get(name), second.constexpr.get(name)]
            for name in sorted({*first.constexpr, *second.constexpr})
            if first.constexpr.get(name) != second.constexpr.get(name)
        },
        "ratio": ratio.speedup if ratio is not None else None,
        "low": ratio.low if ratio is not None else None,
        "high": ratio.high if ratio is not None else None,
        "baseline": speedup.baseline if speedup is not None else None,
        "distinguishable": ratio is not None and ratio.is_significant,
        "text": _sentence(first_name, second_name, speedup),
    }


def passed_source(state: State, turn: str) -> Source:
    """Return the last source of the line up to ``turn``. Raises SessionError if it has not passed."""
    candidate = _candidate(state, turn)
    verdict = _verdict(state, candidate)
    if verdict is None or not verdict.passed:
        raise SessionError(f"The kernel of turn {state.turns[turn].number} has not passed.", "Choose verified kernels.")
    return candidate.source


@dataclass(frozen=True)
class PairedRun:
    """A run that timed kernels together, at ``sizes`` (empty: the task's own); the others are by source hash."""

    sizes: Mapping[str, int]
    #: The speedup of the run's first kernel over each.
    ratios: Mapping[str, Ratio]
    #: Medians in ms.
    ms: Mapping[str, float]
    #: The number of the turn that wrote the kernel.
    turns: Mapping[str, int]


class RatioAt(NamedTuple):
    """A speedup at ``sizes`` of the task's Dims; empty: the task's own."""

    sizes: Mapping[str, int]
    ratio: Ratio


def paired_runs(state: State, turn: str) -> list[PairedRun]:
    """The runs that timed the kernel of ``turn`` with others: the newest per set of sizes, the own sizes first."""
    source_hash = _candidate(state, turn).source.hash
    runs: dict[tuple[tuple[str, int], ...], PairedRun] = {}
    for event in reversed(state.paired):
        first, *rest = hashes = [_candidate(state, turn_id).source.hash for turn_id in event.turns]
        comparison_by_hash = dict(zip(rest, event.comparisons, strict=True))
        if source_hash not in hashes or not comparison_by_hash:
            continue
        # the first kernel's own time is not in the event: it follows from any comparison with it
        any_comparison = event.comparisons[0]
        writers = {key: state.source_turn(turn_id) for key, turn_id in zip(hashes, event.turns, strict=True)}
        run = PairedRun(
            sizes=dict(event.sizes),
            ratios={first: SELF, **{key: Ratio.of(c) for key, c in comparison_by_hash.items()}},
            ms={first: any_comparison.baseline_time.median_ms / any_comparison.speedup}
            | {key: c.baseline_time.median_ms for key, c in comparison_by_hash.items()},
            turns={key: turn.number for key, turn in writers.items() if turn},
        )
        runs.setdefault(tuple(sorted(event.sizes.items())), run)
    return [runs[sizes] for sizes in sorted(runs)]


def paired_ratios(state: State, turn_a: str, turn_b: str) -> list[RatioAt]:
    """The speedup of b's kernel over a's for each set of sizes at which one run timed both; empty if they are the same
    kernel."""
    a, b = _candidate(state, turn_a).source.hash, _candidate(state, turn_b).source.hash
    runs = paired_runs(state, turn_a) if a != b else []
    return [RatioAt(run.sizes, run.ratios[a].over(run.ratios[b])) for run in runs if b in run.ratios]


def ratio_of(state: State, turn_a: str, turn_b: str) -> RatioOver | None:
    """The speedup of b's kernel over a's: from a run that timed both at the task's own sizes, otherwise from their
    speedups against one baseline; None without either."""
    for sizes, ratio in paired_ratios(state, turn_a, turn_b):
        if not sizes:
            return RatioOver(ratio, PAIRED)
    a, b = _verdict(state, _candidate(state, turn_a)), _verdict(state, _candidate(state, turn_b))
    if a is None or b is None or not (a.passed and b.passed):
        return None
    for name in ("eager", "compile", *(c.baseline for c in a.comparisons)):
        of_a, of_b = a.against(name), b.against(name)
        if of_a is not None and of_b is not None and of_a.low > 0 and of_b.low > 0:
            return RatioOver(Ratio.of(of_b).over(Ratio.of(of_a)), name)
    return None


def _candidate(state: State, turn: str) -> Candidate:
    candidate = state.candidate(turn)
    if candidate is None:
        raise SessionError(f"Turn {state.turns[turn].number} has no candidate.", "Choose a Coder's or Verifier's turn.")
    return candidate


def _verdict(state: State, candidate: Candidate) -> Verdict | None:
    turn = state.verdict_of(candidate.source.hash)
    return turn.verdict if turn else None


def _figures(state: State, turn: str, candidate: Candidate) -> dict[str, Any]:
    verdict = _verdict(state, candidate)
    return {
        "turn": turn,
        "number": state.turns[turn].number,
        "candidate": candidate.id,
        "author": candidate.author.value,
        "passed": verdict.passed if verdict else None,
        "time": verdict.time.model_dump(mode="json") if verdict and verdict.time else None,
        "comparisons": [c.model_dump(mode="json") for c in verdict.comparisons] if verdict else [],
        "sol_ms": verdict.sol_ms if verdict else None,
        "trust": verdict.trust.value if verdict else None,
    }


def _sentence(first_name: str, second_name: str, speedup: RatioOver | None) -> str:
    if speedup is None:
        return f"{first_name} and {second_name} were not both timed against the same baseline."
    ratio, baseline = speedup
    figures = f"{ratio.speedup:.2f} times as fast as {first_name} ({ratio.low:.2f} to {ratio.high:.2f})"
    note = "" if ratio.is_significant else "; the difference is not significant"
    method = "timed in one run" if baseline == PAIRED else f"both against {baseline}"
    return f"{second_name} is {figures}, {method}{note}."
