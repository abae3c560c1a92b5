"""The rules Analyst: a session's attempts, their outcomes and limits, in sentences made from the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernellab.agents.briefs import AnalyseBrief, AnalyseReply, Attempt
from kernellab.agents.rules.classify import classify
from kernellab.records import Author, GateState, Verdict


class RulesAnalyst:
    """States only facts of the record; the same brief gives the same text."""

    author = Author.RULES

    def analyse(self, brief: AnalyseBrief) -> AnalyseReply:
        """Report the attempts and their faults, the best kernel, and its distance from the bound."""
        sentences = [_rounds(brief.history), *_faults(brief.history), *_best(brief)]
        return AnalyseReply(" ".join(filter(None, sentences)))


def _rounds(history: Sequence[Attempt]) -> str:
    if not history:
        return "Nothing was tried yet."
    verdicts = [attempt.verdict for attempt in history if attempt.verdict is not None]
    passed = sum(verdict.passed for verdict in verdicts)
    sketches = len({attempt.sketch for attempt in history if attempt.sketch})
    return (
        f"{_count(len(history), 'round')} with {_count(sketches, 'sketch', 'sketches')}: "
        f"{_count(len(verdicts), 'kernel')} verified, {passed} passed."
    )


def _faults(history: Sequence[Attempt]) -> list[str]:
    refused = sum(attempt.gate is not None and attempt.gate.state is GateState.WRONG for attempt in history)
    classes = Counter(
        classify(attempt.verdict).value for attempt in history if attempt.verdict and not attempt.verdict.passed
    )
    sentences = []
    if refused:
        sentences.append(f"The gate refused {_count(refused, 'sketch', 'sketches')} before any code was written.")
    if classes:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in classes.most_common())
        sentences.append(f"What failed: {kinds}.")
    last = next((attempt.verdict for attempt in reversed(history) if attempt.verdict), None)
    if last is not None and not last.passed:
        sentences.append(f"The last kernel failed at {last.stage.value}: {last.reason}")
    return sentences


def _best(brief: AnalyseBrief) -> list[str]:
    verdict = brief.best
    if verdict is None:
        return ["No kernel has passed yet."] if brief.history else []
    turn = f" (turn {brief.best_turn})" if brief.best_turn is not None else ""
    sentences = [f"The best kernel{turn} {_figures(verdict)}."]
    if brief.headroom is not None:
        sentences.append(f"It reaches {100 * brief.headroom:.0f} % of the speed-of-light bound of this chip.")
    return sentences


def _figures(verdict: Verdict) -> str:
    figures = [
        f"{c.speedup:.2f} times as fast as {'torch.compile' if c.baseline == 'compile' else c.baseline} "
        f"(95 %: {c.low:.2f} to {c.high:.2f})"
        for c in verdict.comparisons
    ]
    return "is " + " and ".join(figures) if figures else f"passed at {verdict.trust.value} and was not timed"


def _count(number: int, word: str, words: str = "") -> str:
    return f"{number} {word if number == 1 else words or word + 's'}"
