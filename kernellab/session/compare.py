"""Compares two candidates: the difference of their texts, and which is faster, with the interval."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import SessionError
from kernellab.records import Candidate, Source, Verdict
from kernellab.session.record.state import State

#: Maximum number of kernels that one run times.
MOST_PAIRED = 8
#: The ``baseline`` of kernels that one run timed.
PAIRED = "each other"


def compare_candidates(state: State, a: str, b: str) -> dict[str, Any]:
    """Compare the last candidates of the lines of turns up to ``a`` and ``b``.

    ``sketch`` and ``files`` are unified diffs from a to b (empty if equal); ``a`` and ``b`` are each one's figures.
    ``ratio`` is the speedup of b over a, with ``low`` and ``high``; None if both were not timed against the same
    baseline. The interval combines both 95 % intervals, so it is at least as wide as a 95 % interval.

    Raises:
        SessionError: one of them has no candidate.
    """
    first, second = _candidate(state, a), _candidate(state, b)
    names = f"turn {state.turns[a].number}", f"turn {state.turns[b].number}"
    verdicts = _verdict(state, first), _verdict(state, second)
    files = sorted({*first.source.files, *second.source.files})
    diffs = {name: _diff(first.source.files.get(name, ""), second.source.files.get(name, ""), names) for name in files}
    ratio = ratio_of(state, a, b)
    return {
        "a": _figures(state, a, first, verdicts[0]),
        "b": _figures(state, b, second, verdicts[1]),
        "sketch": _diff(first.sketch or "", second.sketch or "", names),
        "files": {name: text for name, text in diffs.items() if text},
        "constexpr": {
            name: [first.constexpr.get(name), second.constexpr.get(name)]
            for name in sorted({*first.constexpr, *second.constexpr})
            if first.constexpr.get(name) != second.constexpr.get(name)
        },
        **ratio,
        "text": _words(names, ratio),
    }


def passed_source(state: State, turn: str) -> Source:
    """Return the last source of the line up to ``turn``. Raises SessionError if it has not passed."""
    candidate = _candidate(state, turn)
    verdict = _verdict(state, candidate)
    if verdict is None or not verdict.passed:
        raise SessionError(f"The kernel of turn {state.turns[turn].number} has not passed.", "Choose verified kernels.")
    return candidate.source


#: Speedup of the first kernel of one run over each, by source hash: ratio, low, high.
Figures = Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class PairedRun:
    """A run that timed kernels together, at ``sizes`` (empty: the task's own). ``ms`` are medians and ``turns`` the
    numbers of the turns that wrote the kernels, all by source hash."""

    sizes: Mapping[str, int]
    figures: Figures
    ms: Mapping[str, float]
    turns: Mapping[str, int]


def paired_runs(state: State, turn: str) -> list[PairedRun]:
    """The runs that timed the kernel of ``turn`` with others: the newest per set of sizes, the own sizes first."""
    source_hash = _candidate(state, turn).source.hash
    runs: dict[tuple[tuple[str, int], ...], PairedRun] = {}
    for event in reversed(state.paired):
        first, *rest = hashes = [_candidate(state, turn_id).source.hash for turn_id in event.turns]
        comparison_by_hash = dict(zip(rest, event.comparisons, strict=True))
        if source_hash not in hashes or not comparison_by_hash:
            continue
        head = event.comparisons[0]
        writers = {key: state.source_turn(turn_id) for key, turn_id in zip(hashes, event.turns, strict=True)}
        run = PairedRun(
            dict(event.sizes),
            {first: (1.0, 1.0, 1.0), **{key: (c.speedup, c.low, c.high) for key, c in comparison_by_hash.items()}},
            {first: head.baseline_time.median_ms / head.speedup}
            | {key: c.baseline_time.median_ms for key, c in comparison_by_hash.items()},
            {key: turn.number for key, turn in writers.items() if turn},
        )
        runs.setdefault(tuple(sorted(event.sizes.items())), run)
    return [runs[sizes] for sizes in sorted(runs)]


def paired_ratios(state: State, turn_a: str, turn_b: str) -> list[tuple[Mapping[str, int], tuple[float, float, float]]]:
    """The speedup of b's kernel over a's (ratio, low, high) for each set of sizes at which one run timed both; empty if
    they are the same kernel."""
    a, b = _candidate(state, turn_a).source.hash, _candidate(state, turn_b).source.hash
    ratios = []
    for run in paired_runs(state, turn_a) if a != b else ():
        if b in run.figures:
            (of_a, low_a, high_a), (of_b, low_b, high_b) = run.figures[a], run.figures[b]
            ratios.append((run.sizes, (of_a / of_b, low_a / high_b, high_a / low_b)))
    return ratios


def _candidate(state: State, turn: str) -> Candidate:
    candidate = state.candidate(turn)
    if candidate is None:
        raise SessionError(f"Turn {state.turns[turn].number} has no candidate.", "Choose a Coder's or Verifier's turn.")
    return candidate


def _verdict(state: State, candidate: Candidate) -> Verdict | None:
    turn = state.verdict_of(candidate.source.hash)
    return turn.verdict if turn else None


def _figures(state: State, turn: str, candidate: Candidate, verdict: Verdict | None) -> dict[str, Any]:
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


def ratio_of(state: State, turn_a: str, turn_b: str) -> dict[str, Any]:
    """The speedup of b's kernel over a's: from a run that timed both, otherwise from their speedups against one
    baseline, which cancels the machine's load."""
    first, second = _candidate(state, turn_a), _candidate(state, turn_b)
    a, b = _verdict(state, first), _verdict(state, second)
    for sizes, (ratio, low, high) in paired_ratios(state, turn_a, turn_b):
        if not sizes:
            is_significant = not low <= 1.0 <= high
            return {"ratio": ratio, "low": low, "high": high, "baseline": PAIRED, "distinguishable": is_significant}
    none: dict[str, Any] = {"ratio": None, "low": None, "high": None, "baseline": None, "distinguishable": False}
    if a is None or b is None or not (a.passed and b.passed):
        return none
    for name in ("eager", "compile", *(c.baseline for c in a.comparisons)):
        of_first, of_second = a.against(name), b.against(name)
        if of_first is not None and of_second is not None and of_first.low > 0 and of_second.low > 0:
            low, high = of_second.low / of_first.high, of_second.high / of_first.low
            return {
                "ratio": of_second.speedup / of_first.speedup, "low": low, "high": high, "baseline": name,
                "distinguishable": not low <= 1.0 <= high,
            }  # fmt: skip
    return none


def _words(names: tuple[str, str], ratio: dict[str, Any]) -> str:
    if ratio["ratio"] is None:
        return f"{names[0]} and {names[1]} were not both timed against the same baseline."
    figures = f"{ratio['ratio']:.2f} times as fast as {names[0]} ({ratio['low']:.2f} to {ratio['high']:.2f})"
    note = "" if ratio["distinguishable"] else "; the difference is not significant"
    method = "timed in one run" if ratio["baseline"] == PAIRED else f"both against {ratio['baseline']}"
    return f"{names[1]} is {figures}, {method}{note}."


def _diff(before: str, after: str, names: tuple[str, str]) -> str:
    if before == after:
        return ""
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))
