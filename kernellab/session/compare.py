"""Two candidates side by side: what differs in the text, and which is faster, with the interval."""

from __future__ import annotations

import difflib
from typing import Any

from kernellab.errors import SessionError
from kernellab.records import Candidate, Verdict
from kernellab.session.record.state import State


def compare_candidates(state: State, a: str, b: str) -> dict[str, Any]:
    """The candidates that the lines of turns up to ``a`` and ``b`` end with.

    ``sketch`` and ``files`` hold unified diffs from a to b (empty: the same); ``a`` and ``b`` each one's figures;
    ``ratio`` how many times as fast b is as a, with ``low`` and ``high``, None when not both were timed against the
    same baseline. The interval is made from both 95 % intervals, so it is at least as wide as one of 95 %.

    Raises:
        SessionError: one of them has no candidate.
    """
    first, second = _candidate(state, a), _candidate(state, b)
    names = f"turn {state.turns[a].number}", f"turn {state.turns[b].number}"
    verdicts = _verdict(state, first), _verdict(state, second)
    files = sorted({*first.source.files, *second.source.files})
    diffs = {name: _diff(first.source.files.get(name, ""), second.source.files.get(name, ""), names) for name in files}
    ratio = _ratio(*verdicts)
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


def _candidate(state: State, turn: str) -> Candidate:
    found = state.candidate(turn)
    if found is None:
        raise SessionError(f"Turn {state.turns[turn].number} has no candidate.", "Choose a Coder's or Verifier's turn.")
    return found


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


def _ratio(a: Verdict | None, b: Verdict | None) -> dict[str, Any]:
    """Speedups against one baseline divide out the machine's load, which differs between two runs."""
    none: dict[str, Any] = {"ratio": None, "low": None, "high": None, "baseline": None, "distinguishable": False}
    if a is None or b is None or not (a.passed and b.passed):
        return none
    for name in ("eager", "compile", *(c.baseline for c in a.comparisons)):
        first, second = a.against(name), b.against(name)
        if first is not None and second is not None and first.low > 0 and second.low > 0:
            low, high = second.low / first.high, second.high / first.low
            return {
                "ratio": second.speedup / first.speedup, "low": low, "high": high, "baseline": name,
                "distinguishable": not low <= 1.0 <= high,
            }  # fmt: skip
    return none


def _words(names: tuple[str, str], ratio: dict[str, Any]) -> str:
    if ratio["ratio"] is None:
        return f"{names[0]} and {names[1]} were not both timed against the same baseline."
    figures = f"{ratio['ratio']:.2f} times as fast as {names[0]} ({ratio['low']:.2f} to {ratio['high']:.2f})"
    apart = "" if ratio["distinguishable"] else "; the difference is not significant"
    return f"{names[1]} is {figures}, both against {ratio['baseline']}{apart}."


def _diff(before: str, after: str, names: tuple[str, str]) -> str:
    if before == after:
        return ""
    return "\n".join(difflib.unified_diff(before.splitlines(), after.splitlines(), *names, lineterm=""))
