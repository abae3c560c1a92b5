"""What a run calls its best: timed again with the first design, one candidate a code, rounds that do not fall."""

from __future__ import annotations

import math
from concurrent.futures import Future
from pathlib import Path
from random import Random

import pytest

from kernellab.conditions import LibraryShare
from kernellab.dsls.machine import detect_target
from kernellab.errors import VerifierError
from kernellab.evolve.fold import apply_event
from kernellab.evolve.jobs import FIRST, Ranked, job_of
from kernellab.evolve.promote import Promotion
from kernellab.evolve.records import Proposal, Remeasured, RoundEnded, Score
from kernellab.evolve.state import RunState
from kernellab.evolve.summary import summary, words
from kernellab.evolve.vary.mix import Mix
from kernellab.lowering.embedded_sketch import code_digest
from kernellab.options.search import Knobs
from kernellab.records import Comparison, Source, Verdict
from kernellab.target import Target
from kernellab.task import Task, load_task
from kernellab.verifier import VerifyOptions
from tests.evolve.runs import modelled, score, state, timing, verdict, verify


def over_first(low: float, high: float) -> Verdict:
    pair = Comparison(baseline=FIRST, baseline_time=timing(1.0), speedup=(low + high) / 2, low=low, high=high)
    found = verdict(2.0)
    return found.model_copy(update={"comparisons": [*found.comparisons, pair]})


class Compares:
    """A judge whose comparison of two candidates is ``verdict``."""

    judges = 1

    def __init__(self, verdict: Verdict) -> None:
        self.verdict, self.pairs = verdict, list[tuple[int, int]]()

    def compare(self, job: int, other: int) -> Future[Verdict]:
        self.pairs.append((job, other))
        done: Future[Verdict] = Future()
        done.set_result(self.verdict)
        return done


def searched(timed: Verdict) -> tuple[RunState, Compares]:
    """Candidate 1 leads the first design by verdicts of separate minutes; then both are timed in turn."""
    found, judge = state([1.0, 1.3], Knobs(islands=1)), Compares(timed)
    verify(found, 0, 1.0)
    verify(found, 1, 1.3)
    assert found.best() == 1
    for event in Promotion(found, lambda n: n, judge).paired():  # type: ignore[arg-type, return-value]
        apply_event(found, found.seq + 1, event)
    return found, judge


def test_a_leader_that_is_no_faster_in_turn_with_the_first_design_is_not_the_best() -> None:
    found, judge = searched(over_first(0.97, 1.05))
    assert judge.pairs == [(1, 0)]
    assert found.best() == 0
    told = summary("run", found)
    assert told.first_is_best and "no candidate is certainly faster" in words(told)
    assert list(Promotion(found, lambda n: n, judge).paired()) == [], "once is enough"  # type: ignore[arg-type, return-value]


def test_a_leader_that_wins_in_turn_says_by_how_much() -> None:
    found, _ = searched(over_first(1.2, 1.3))
    assert found.best() == 1
    assert "Timed in turn with the first design: 1.25x [1.20, 1.30]." in words(summary("run", found))


def test_a_pair_that_could_not_be_timed_decides_nothing_and_says_why() -> None:
    found, _ = searched(verdict(2.0, passed=False))
    assert found.best() == 1
    pairing = found.pairing()
    assert pairing is not None and pairing.comparison is None and pairing.reason == "Wrong."


def test_a_judge_that_fails_at_the_end_leaves_the_verdicts_as_they_are() -> None:
    class Broken(Compares):
        def compare(self, job: int, other: int) -> Future[Verdict]:
            done: Future[Verdict] = Future()
            done.set_exception(VerifierError("The judge ended.", "Resume."))
            return done

    found = state([1.0, 1.3], Knobs(islands=1))
    verify(found, 0, 1.0)
    verify(found, 1, 1.3)
    (event,) = Promotion(found, lambda n: n, Broken(verdict(2.0))).paired()  # type: ignore[arg-type, return-value]
    apply_event(found, found.seq + 1, event)
    pairing = found.pairing()
    assert found.best() == 1 and pairing is not None and pairing.reason == "The judge ended."


def test_rounds_never_fall_whatever_later_measurements_say() -> None:
    found = state([1.0, 2.0, 1.9], Knobs(islands=1))
    for at, (number, speedup) in enumerate([(0, 1.0), (1, 2.0), (2, 1.9)]):
        verify(found, number, speedup)
        best = found.best()
        apply_event(found, found.seq + 1, RoundEnded(round=at, best=best, worth=found.worth(best or 0)))
    apply_event(found, found.seq + 1, Remeasured(scores={1: score(1.5), 2: score(1.8)}))
    shown = [float(end.text.rstrip("x")) for end in summary("run", found).rounds]
    assert shown == sorted(shown) == [1.0, 1.5, 1.8]


class Noisy:
    """A judge of real candidates whose clock errs by ``spread`` from call to call; ``times`` faster is what has
    ``word`` in its text. Nothing is built or timed."""

    def __init__(self, seed: int, spread: float, word: str = "", times: float = 1.0) -> None:
        self._random, self._spread, self._word, self._times = Random(seed), spread, word, times

    def speed(self, source: Source) -> float:
        return self._times if self._word and self._word in source.files["kernel.cpp"] else 1.0

    def drawn(self, true: float, share: float = 1.0) -> tuple[float, float, float]:
        """A median of calls that err alike for a while, and the interval that the calls themselves tell."""
        middle, half = true * math.exp(self._random.gauss(0.0, share * self._spread)), share * self._spread
        return middle, middle * math.exp(-half), middle * math.exp(half)

    def start(self, target: Target) -> None: ...

    def rank(self, task: Task, source: Source, target: Target, allow_library: bool) -> Ranked:
        middle, low, high = self.drawn(self.speed(source))
        return Ranked(Score(time=timing(1 / middle), speedup=middle, low=low, high=high))

    def verify(self, task: Task, source: Source, target: Target, options: VerifyOptions) -> Verdict:
        # a verdict times longer
        middle, low, high = self.drawn(self.speed(source), share=0.5)
        pairs = [Comparison(baseline="eager", baseline_time=timing(1.0), speedup=middle, low=low, high=high)]
        for name, rival in options.rivals.items():
            middle, low, high = self.drawn(self.speed(source) / self.speed(rival), share=0.25)
            pairs.append(Comparison(baseline=name, baseline_time=timing(1.0), speedup=middle, low=low, high=high))
        found = verdict(pairs[0].speedup)
        return found.model_copy(update={"comparisons": pairs})


def noisy(folder: Path, judge: Noisy, seed: int) -> RunState:
    """A whole search of real candidates by a clock that errs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernellab.evolve.workers.cluster.local_judges", lambda target: [judge])
        return modelled(folder, score="rank", seed=seed).work().wait().state


def test_of_candidates_that_are_all_alike_a_clock_that_errs_makes_no_best(tmp_path: Path) -> None:
    """The highest of ten quick looks leads the first design, and nothing of it is left at the end."""
    searched = noisy(tmp_path, Noisy(0, 0.06), 0)
    assert max(searched.worth(n) for n in searched.scores) > 1.03 * searched.worth(0) and len(searched.scores) == 10
    assert searched.best() == searched.first() == 0


def test_a_gain_beyond_the_noise_is_found_and_told_as_it_is(tmp_path: Path) -> None:
    searched = noisy(tmp_path, Noisy(0, 0.06, "CHUNK", 1.1), 0)
    best, pair = searched.best(), searched.pairing()
    assert best is not None and "CHUNK" in searched.proposals[best].sketch
    assert pair is not None and pair.comparison is not None and abs(pair.comparison.speedup / 1.1 - 1) < 0.05


PYTHON = '''"""A kernel."""
SOURCE = """
// {comment}
int main() {{ return 1; /* {comment} */ }}
"""


def kernel(x):
    # {comment}
    return x{spaces} +{spaces} {value}
'''


def source(comment: str = "one", value: int = 1, spaces: str = "", cpp: str = "int f() { return 1; }") -> Source:
    return Source(
        dsl="cpp", files={"kernel.py": PYTHON.format(comment=comment, value=value, spaces=spaces), "kernel.cpp": cpp}
    )


def test_code_that_differs_in_its_comments_and_spacing_is_one_code_and_another_number_is_not() -> None:
    digest = code_digest(source())
    assert code_digest(source(comment="another", spaces=" ")) == digest
    assert code_digest(source(cpp="int f() { // why\n  return 1;\n}")) == digest
    assert code_digest(source(value=2)) != digest
    assert code_digest(source(cpp='int f() { return "// 1"; }')) != code_digest(
        source(cpp='int f() { return "// 2"; }')
    )


FOURIER = """
import torch


def reference(x):
    return torch.fft.rfft(x).abs() * 2 + x.sum()


def inputs(seed: int = 0):
    return torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
"""


def test_what_the_rules_may_call_in_a_design_they_may_call_in_a_search() -> None:
    """A session lets the rules call the framework where no rule designs an operation; so does a search."""
    task, target = load_task(FOURIER, "fourier"), detect_target("cpp")
    begun = state([]).begun
    seeds = Mix(task, target).seeds(state([])).proposals
    assert seeds and all(p.library for p in seeds)
    assert all(job_of(begun, p).allow_library for p in seeds)
    person = Proposal(number=9, round=0, island=0, operator="person", sketch="sketch s {}")
    assert not job_of(begun, person).allow_library


@pytest.mark.parametrize("passed", [True, False])
def test_where_no_candidate_passes_the_run_says_what_the_verdict_said(passed: bool) -> None:
    found = state([1.0])
    verify(found, 0, 1.0, passed=passed, conditions=[LibraryShare(share=0.5)])
    assert ("Wrong." in found.why_none()) is not passed
