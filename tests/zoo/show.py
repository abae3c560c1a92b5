"""Shows exhibits to the Verifier and tells what it found."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass

from kernellab.records import Verdict
from kernellab.verifier import Verifier, VerifyOptions

from .exhibit import Exhibit, Place

NO_TIME = "no time was left"
RIGHT, ELSEWHERE, TOLD, HARMLESS, FALSE_ALARM, MISSED, BROKEN = (
    "ok", "refused elsewhere", "told", "harmless", "FALSE ALARM", "PASSES", "BROKEN",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One exhibit's verdict against what its card expects. Stages are names, "pass" for none."""

    name: str
    kind: str
    dsl: str
    expected: str
    found: str
    signature: str
    outcome: str
    seconds: float
    reason: str
    label: str = ""
    flags: tuple[str, ...] = ()
    #: seconds that each stage took
    stages: tuple[tuple[str, float], ...] = ()

    @property
    def ok(self) -> bool:
        return self.outcome in (RIGHT, ELSEWHERE, TOLD, HARMLESS)

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"ok": self.ok}


class Keeper:
    """Shows exhibits on ``jobs`` warm Verifiers side by side; a context manager.

    ``until`` is a monotonic time after which none is begun.
    """

    def __init__(self, jobs: int, place: Place = "cpu", until: float | None = None) -> None:
        self.place: Place = place
        self._until = until
        self._own = threading.local()
        self._verifiers: list[Verifier] = []
        self._pool = ThreadPoolExecutor(jobs)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        for verifier in self._verifiers:
            verifier.close()

    def submit(self, exhibit: Exhibit) -> Future[Finding]:
        return self._pool.submit(self.show, exhibit)

    def call(self, choose: Callable[[], Exhibit]) -> Future[Finding]:
        """Shows what ``choose`` gives when a Verifier is free, asked from that Verifier's thread."""
        return self._pool.submit(lambda: self.show(choose()))

    def all(self, chosen: Sequence[Exhibit]) -> Iterator[Finding]:
        """The findings in the order of ``chosen``, each as soon as those before it are there."""
        for future in [self.submit(e) for e in chosen]:
            yield future.result()

    def show(self, exhibit: Exhibit) -> Finding:
        start = time.monotonic()
        card = exhibit.card
        if self._until is not None and start > self._until:
            return Finding(exhibit.name, exhibit.kind, card.dsl, "", "", "", BROKEN, 0.0, NO_TIME)
        options = VerifyOptions(
            allow_library=card.allow_library, budget=card.budget, threads=card.threads, deadline=card.deadline
        )
        try:
            target, task = exhibit.target(self.place), exhibit.task
            verdict = self._verifier().verify(task, exhibit.source(self.place), target, options=options)
        except Exception as error:  # one exhibit that cannot be shown must not end the others
            words = f"{type(error).__name__}: {error}"
            seconds = time.monotonic() - start
            return Finding(exhibit.name, exhibit.kind, card.dsl, "", "", "", BROKEN, seconds, words)
        return judged(exhibit, self.place, verdict, time.monotonic() - start)

    def _verifier(self) -> Verifier:
        if not hasattr(self._own, "verifier"):
            self._own.verifier = Verifier()
            self._verifiers.append(self._own.verifier)
        found: Verifier = self._own.verifier
        return found


def judged(exhibit: Exhibit, place: Place, verdict: Verdict, seconds: float = 0.0) -> Finding:
    card, expected = exhibit.card, exhibit.expected(place)
    signature = (verdict.evidence.signature or "") if verdict.evidence else ""
    return Finding(
        exhibit.name, exhibit.kind, card.dsl, expected.value if expected else "pass",
        "pass" if verdict.passed else verdict.stage.value, signature, _outcome(exhibit, place, verdict, signature),
        seconds, verdict.reason, verdict.label, tuple(verdict.flags),
        tuple((r.name.value, round(r.seconds, 2)) for r in verdict.stages if r.seconds),
    )  # fmt: skip


def _outcome(exhibit: Exhibit, place: Place, verdict: Verdict, signature: str) -> str:
    card, expected = exhibit.card, exhibit.expected(place)
    if expected is None:
        if not verdict.passed:
            return FALSE_ALARM if exhibit.honest else ELSEWHERE
        told = [*verdict.label.split(", "), *verdict.flags]
        if card.told:
            return TOLD if any(words in t for words in card.told.split("|") for t in told) else MISSED
        return RIGHT if not card.label or any(t.startswith(card.label) for t in told) else "label missing"
    if verdict.passed:
        return HARMLESS if card.harmless else MISSED
    as_named = verdict.stage is expected and (not card.signature or signature == card.signature)
    return RIGHT if as_named else ELSEWHERE


def table(findings: Sequence[Finding]) -> str:
    """One line each, and the totals."""
    lines = [_line("name", "dsl", "expected", "found", "signature", "", "s"), "-" * 118]
    lines += [row(f) for f in findings]
    return "\n".join([*lines, "", totals(findings)])


def row(finding: Finding) -> str:
    f = finding
    stages = " ".join(f"{name[:2]} {seconds:.1f}" for name, seconds in f.stages if seconds >= 0.05)
    return _line(f.name, f.dsl, f.expected, f.found, f.signature, f.outcome, f"{f.seconds:.1f}") + f"  {stages}"


def totals(findings: Sequence[Finding]) -> str:
    bad = [f for f in findings if f.kind != "honest"]
    good = [f for f in findings if f.kind == "honest"]

    def count(group: Sequence[Finding], outcome: str) -> int:
        return sum(f.outcome == outcome for f in group)

    return (
        f"cheats and errors: {len(bad)}, refused {sum(f.found not in ('pass', '') for f in bad)} "
        f"({count(bad, RIGHT)} as named), told by a condition {count(bad, TOLD)}, harmless {count(bad, HARMLESS)}, "
        f"passing wrongly {count(bad, MISSED)}\n"
        f"honest: {len(good)}, passed {sum(f.found == 'pass' for f in good)}, false alarms {count(good, FALSE_ALARM)}, "
        f"label missing {count(good, 'label missing')}; could not be shown: {count(findings, BROKEN)}"
    )


def _line(name: str, dsl: str, expected: str, found: str, signature: str, outcome: str, seconds: str) -> str:
    return f"{name:34} {dsl:7} {expected:8} {found:8} {signature:18} {outcome:18} {seconds:>6}"
