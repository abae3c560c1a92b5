"""Repeated measurements of a kernel are pooled; the first figure of its verdict stays."""

from __future__ import annotations

import pytest

from kernellab.notebook.views.candidates import comparison, rows_of
from kernellab.records import NO_BOUND, Comparison, Source, Stage, Timing, Verdict
from kernellab.session.compare import compare_candidates
from kernellab.session.record.events import Compared, Created, Event, Paired, TurnEnded
from kernellab.session.record.fold import fold
from kernellab.session.record.pooling import pooled
from kernellab.session.record.records import Turn

TIME = Timing(median_ms=2.0, q1_ms=1.9, q3_ms=2.1, samples=10)


def eager(speedup: float, low: float, high: float) -> Comparison:
    return Comparison(baseline="eager", baseline_time=TIME, speedup=speedup, low=low, high=high)


def verdict(**fields: object) -> Verdict:
    return Verdict.model_validate({"passed": True, "stage": Stage.FAST, "reason": "Right.", **fields})


def test_two_runs_that_agree_give_a_narrower_interval_between_them() -> None:
    slower = Timing(median_ms=4.0, q1_ms=3.8, q3_ms=4.2, samples=30)
    later = eager(2.1, 1.9, 2.3).model_copy(update={"baseline_time": slower})
    (both,) = pooled([eager(2.0, 1.8, 2.2)], [later])
    assert both.baseline_time.samples == 40
    assert both.baseline_time.median_ms == pytest.approx(3.5)
    assert 2.0 < both.speedup < 2.1
    assert both.high - both.low < 0.4


def test_two_runs_that_differ_give_an_interval_that_holds_both() -> None:
    (both,) = pooled([eager(2.0, 1.99, 2.01)], [eager(3.0, 2.99, 3.01)])
    assert both.low < 2.0 < 3.0 < both.high


def test_a_baseline_that_is_new_is_taken_as_measured() -> None:
    compiled = Comparison(baseline="compile", baseline_time=TIME, speedup=1.2, low=1.1, high=1.3)
    both = pooled([eager(2.0, 1.8, 2.2)], [compiled])
    assert [c.baseline for c in both] == ["eager", "compile"]
    assert both[1] == compiled


def test_the_first_figure_stays_and_later_ones_are_kept_as_timed_again() -> None:
    first = {"role": "verifier", "author": "rules", "state": "done"}
    judged = Turn.model_validate({"id": "t1", "number": 1, "parent": None, **first}).model_copy(
        update={"verdict": verdict(time=TIME, comparisons=[eager(3.21, 3.0, 3.4)])}
    )
    later = TIME.model_copy(update={"median_ms": 2.2})
    compiled = Comparison(baseline="compile", baseline_time=TIME, speedup=1.2, low=1.1, high=1.3)
    events: list[Event] = [Created(name="norm", text="", key="k", dsl="cpp"), TurnEnded(turn=judged)]
    events += [Compared(turn="t1", timing=later, comparisons=(eager(3.13, 3.0, 3.2), compiled), reason="")] * 2
    folded = fold("s", events)
    assert folded is not None
    now = folded.turns["t1"].verdict
    assert now is not None and now.time == TIME
    assert [(c.baseline, c.speedup) for c in now.comparisons] == [("eager", 3.21), ("compile", 1.2)]
    assert [c.baseline for c in now.timed_again] == ["eager", "compile"]
    assert now.timed_again[0].speedup == pytest.approx(3.13)
    assert now.timed_again[0].baseline_time.samples == 20


def test_a_speedup_is_spelled_in_one_way_with_what_cannot_be_told() -> None:
    assert eager(2.824, 2.7, 2.95).text == "2.82x eager [2.70, 2.95]"
    assert eager(1.3, 0.95, 1.71).text == "1.30x eager [0.95, 1.71], no difference"
    assert eager(27.9, 27, 29).model_copy(update={"called": "NumPy"}).text == "27.90x NumPy [27.00, 29.00]"


@pytest.mark.parametrize(("sol", "text"), [(1.24, "62% of bound"), (2.09, "104% of bound"), (6.92, NO_BOUND)])
def test_a_bound_that_a_kernel_passes_is_not_shown_as_a_share(sol: float, text: str) -> None:
    found = verdict(time=TIME, sol_ms=sol)
    assert found.bound_text == text
    assert (found.bound_share is None) == (text == NO_BOUND)


def test_a_bound_that_a_baseline_or_another_kernel_passes_is_believed_of_no_kernel() -> None:
    slow = Timing(median_ms=8.0, q1_ms=7.9, q3_ms=8.1, samples=10)
    compiled = Comparison(baseline="compile", baseline_time=TIME, speedup=0.25, low=0.2, high=0.3)
    assert verdict(time=slow, sol_ms=4.0).bound_text == "50% of bound"
    assert verdict(time=slow, sol_ms=4.0, comparisons=[compiled]).bound_text == NO_BOUND

    def judged(number: int, **fields: object) -> TurnEnded:
        given = {"role": "verifier", "author": "rules", "state": "done", "verdict": verdict(**fields)}
        return TurnEnded(turn=Turn.model_validate({"id": f"t{number}", "number": number, "parent": None, **given}))

    events: list[Event] = [Created(name="norm", text="", key="k", dsl="cpp")]
    events += [judged(1, time=slow, sol_ms=4.0), judged(2, time=TIME, sol_ms=4.0), judged(3, time=slow, sol_ms=1.0)]
    events += [judged(4, time=slow, sol_ms=4.0), judged(5, time=TIME.model_copy(update={"median_ms": 0.5}))]
    for count, texts in (
        (2, ["50% of bound"]),
        (3, [NO_BOUND, NO_BOUND]),
        # one that was measured lower, and that none passes, is that of all
        (5, ["12% of bound", "50% of bound", "12% of bound", "12% of bound"]),
        (6, [NO_BOUND, NO_BOUND, NO_BOUND, NO_BOUND, ""]),
    ):
        found = fold("s", events[:count])
        assert found is not None
        assert [turn.verdict.bound_text for turn in found.turns.values() if turn.verdict] == texts
        assert "least_ms" not in found.turns["t1"].model_dump_json()


def _three_kernels() -> list[Event]:
    def wrote(number: int) -> list[Event]:
        source = Source(dsl="cpp", files={"kernel.cpp": f"// {number}\n"})
        candidate = {"id": f"c{number}", "source": source}
        coded = {"role": "coder", "author": "rules", "state": "done", "candidate": candidate}
        coder = Turn.model_validate({"id": f"t{number}", "number": number, "parent": None, **coded})
        judged = Turn.model_validate(
            {"id": f"t{number + 1}", "number": number + 1, "parent": f"t{number}", "role": "verifier",
             "author": "rules", "state": "done"}
        ).model_copy(update={"verdict": verdict(time=TIME, comparisons=[eager(2.0, 1.0, 4.0)])})  # fmt: skip
        return [TurnEnded(turn=coder), TurnEnded(turn=judged)]

    return [Created(name="norm", text="", key="k", dsl="cpp"), *wrote(1), *wrote(3), *wrote(5)]


def test_kernels_that_one_run_timed_are_compared_by_that_run() -> None:
    events = _three_kernels()
    ratios = [Comparison(baseline=f"turn {n}", baseline_time=TIME, speedup=s, low=s - 0.01, high=s + 0.01)
              for n, s in ((3, 0.8), (5, 1.25))]  # fmt: skip
    before, now = fold("s", events), fold("s", [*events, Paired(turns=("t1", "t3", "t5"), comparisons=tuple(ratios))])
    assert before is not None and now is not None
    assert "not significant" in compare_candidates(before, "t1", "t3")["text"]
    third = compare_candidates(now, "t1", "t3")
    assert third["ratio"] == pytest.approx(1.25) and third["distinguishable"]
    assert "timed in one run" in third["text"]
    fifth = compare_candidates(now, "t5", "t3")
    assert fifth["ratio"] == pytest.approx(1.25 / 0.8)
    assert fifth["low"] < fifth["ratio"] < fifth["high"]
    notes = [row["note"] for row in rows_of(now)]
    assert notes[1].startswith(f"timed in one run: {TIME.median_ms:.3g} ms, the fastest")
    assert notes[0].startswith(f"timed in one run: {TIME.median_ms / 0.8:.3g} ms, 0.80x as fast as turn 3 [0.79, 0.81]")
    together = comparison(now, "t1", "t3")["rows"][0]
    assert (together["name"], together["a"], together["b"]) == (
        "time in one run", f"{TIME.median_ms / 0.8:.3g} ms", f"{TIME.median_ms:.3g} ms"
    )  # fmt: skip
    assert "time in one run" not in {row["name"] for row in comparison(before, "t1", "t3")["rows"]}
    # the run that timed them decides, where the intervals of their speedups leave it open
    assert [best.number for best in now.standings()] == [3, 1, 5]
    assert not now.standings()[0].tied(now.standings()[1])
    assert before.standings()[0].tied(before.standings()[1])


def test_a_run_that_leaves_it_open_says_that_there_is_no_difference() -> None:
    """The best one never reads as slower than another: the faster of the run goes first, and both say it."""
    events = _three_kernels()
    close = Comparison(baseline="turn 3", baseline_time=TIME, speedup=0.83, low=0.67, high=1.05)
    now = fold("s", [*events, Paired(turns=("t1", "t3"), comparisons=(close,))])
    assert now is not None
    first, second, _ = now.standings()
    assert (first.number, first.tied(second)) == (3, True)
    notes = {row["number"]: row["note"] for row in rows_of(now)}
    assert "ms, no difference from turn 3" in notes[1]
    assert "ms, no difference" in notes[3]
    assert [row["number"] for row in rows_of(now) if row["best"]] == [3]


def test_a_verdict_that_was_used_again_is_no_second_candidate() -> None:
    events = _three_kernels()
    judged = fold("s", events)
    assert judged is not None
    again = judged.turns["t2"].model_copy(update={"id": "t7", "number": 7, "reused": "t2"})
    now = fold("s", [*events, TurnEnded(turn=again)])
    assert now is not None
    numbers = [best.number for best in now.standings()]
    assert sorted(numbers) == [1, 3, 5]
