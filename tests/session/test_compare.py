"""A finished kernel's comparison with torch.compile: in the background, journalled, shown when it comes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from session_parts import TASK, OneSketch

from kernellab.conditions import DisturbedCalls, DrawnInPart, Mark
from kernellab.errors import SessionError
from kernellab.notebook.views.candidates import comparison, rows_of
from kernellab.records import Comparison, Ranking, Role, Stage, Timing
from kernellab.session import Session, SessionStatus, design
from kernellab.session.compare import paired_ratios
from kernellab.session.engine.recorder import Recorder
from kernellab.session.record.events import Compared
from kernellab.session.record.fold import apply
from kernellab.session.record.records import Turn
from kernellab.session.turn.sweeping import Sweep, SweepPoint, chosen

QUICK = {"budget": 0.2}


def wait_for_comparison(session: Session, seconds: float = 150.0) -> None:
    end = time.monotonic() + seconds
    while session.timings.running and time.monotonic() < end:
        time.sleep(0.05)


def wait_for_its_begin(session: Session, seconds: float = 10.0) -> None:
    """It begins just after the session has ended."""
    end = time.monotonic() + seconds
    while not session.timings.running and time.monotonic() < end:
        time.sleep(0.01)
    assert session.timings.running


def test_torch_compile_is_compared_after_the_session_has_finished(tmp_path: Path) -> None:
    roles: Any = {"designer": OneSketch(), "coder": "rules"}
    session = design(TASK, dsl="cpp", roles=roles, name="late", workspace=tmp_path, options=QUICK, compare=True)
    session.wait(120)
    assert session.status is SessionStatus.FINISHED
    assert [c.baseline for c in session.verdict.comparisons] == ["eager"]
    wait_for_its_begin(session)
    assert session.to_dict()["comparing"]
    first = session.verdict

    wait_for_comparison(session)
    assert [c.baseline for c in session.verdict.comparisons] == ["eager", "compile"]
    assert session.status is SessionStatus.FINISHED
    assert len(session.turns) == 4
    assert session.verdict.stages == first.stages
    assert set(session.to_dict()["best"]["speedups"]) == {"eager", "compile"}
    assert "x compile" in repr(session)

    again = Recorder.read(session._journal, session.id)
    best = again.best()
    assert best is not None
    assert best.verdict == session.verdict

    compared = [e for _, e in session._journal.read(session.id) if isinstance(e, Compared)]
    assert len(compared) == 1
    assert compared[0].turn == best.turn.id

    explicit = session.timings.compare("eager", timeout=120)
    assert [c.baseline for c in explicit.comparisons] == ["eager"]
    eager = session.verdict.against("eager")
    assert eager is not None and session.verdict.against("compile") is not None
    assert eager == first.against("eager")  # the first figure stays
    (again,) = session.verdict.timed_again
    assert again.baseline == "eager"
    assert again.baseline_time.samples > explicit.comparisons[0].baseline_time.samples


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Turn, Turn]:
    """A session over one Dim with two kernels that passed, and their turns. A test leaves its kernels as they are."""
    roles: Any = {"designer": OneSketch(), "coder": "rules"}
    sized = TASK.replace("import torch\n", 'import torch\nfrom kernellab import Dim\nM = Dim("M", 1, 900)\n')
    sized = sized.replace("inputs()", "inputs(M=37)").replace("randn(37", "randn(M")
    folder = tmp_path_factory.mktemp("two")
    session = design(sized, dsl="cpp", roles=roles, name="again", workspace=folder, options=QUICK).wait(120)
    first = next(t for t in session.turns if t.role is Role.CODER)
    assert first.candidate is not None
    session.edit_source(first.candidate.source.files["kernel.cpp"] + "\n// the same again\n")
    session.wait(120)
    return session, first, [t for t in session.turns if t.role is Role.CODER][-1]


def test_figures_of_a_comparison_are_added_to_those_of_the_verdict_alone(two: tuple[Session, Turn, Turn]) -> None:
    session = two[0]
    assert not session.timings.running
    state = session.state
    judged = next(t for t in session.turns if t.role is Role.VERIFIER)
    assert judged.verdict is not None
    timing = Timing(median_ms=1.0, q1_ms=0.9, q3_ms=1.1, samples=9)
    figures = (Comparison(baseline="compile", baseline_time=timing, speedup=2.0, low=1.9, high=2.1),)
    busy = (Mark(kind="busy-machine"), DrawnInPart(tried=4321, untried=1))
    after = apply(state.id, state, Compared(turn=judged.id, timing=timing, comparisons=figures, conditions=busy))
    verdict = after.turns[judged.id].verdict
    assert verdict is not None
    assert verdict.comparisons == [*judged.verdict.comparisons, *figures]
    assert verdict.marked("busy-machine") and "4321" not in str(verdict.conditions)
    assert verdict.stages == judged.verdict.stages
    assert verdict.environment == judged.verdict.environment
    assert after.head == state.head
    # each run has its share of disturbed calls: the worse is said, once
    for shares in ((0.22, 0.13), (0.13, 0.22)):
        told = state
        for share in shares:
            event = Compared(
                turn=judged.id, timing=timing, comparisons=figures, conditions=(DisturbedCalls(share=share),)
            )
            told = apply(state.id, told, event)
        (flag,) = [f for f in told.turns[judged.id].verdict.flags if "disturbed" in f]  # type: ignore[union-attr]
        assert "22%" in flag


def test_chosen_kernels_are_timed_in_one_run_which_tells_of_its_sizes_alone(two: tuple[Session, Turn, Turn]) -> None:
    session, first, second = two
    with pytest.raises(SessionError, match="Choose 2 to 8 different ones"):
        session.timings.again(first, timeout=60)
    for sizes, wrong in (({"M": 901}, "outside the declared range"), ({"Q": 3}, "has no Dim 'Q'")):
        with pytest.raises(SessionError, match=wrong):
            session.timings.again(first, second, sizes=sizes, timeout=60)
    before = session.timings.side_by_side(first, second)
    verdict = session.timings.again(first, second, sizes={"M": 600}, timeout=180)
    assert verdict is not None and verdict.passed
    (event,) = Recorder.read(session._journal, session.id).paired
    assert event.sizes == {"M": 600}
    assert session.timings.side_by_side(first, second) == before
    ((at, (ratio, low, high)),) = paired_ratios(session.state, first.id, second.id)
    assert at == {"M": 600} and low <= ratio <= high
    judged = [turn.id for turn in session.turns if turn.role is Role.VERIFIER]
    assert "at M = 600" in comparison(session.state, judged[0], judged[-1])["verdict"]
    assert all("at M = 600" in row["note"] for row in rows_of(session.state) if row["turn"] in (first.id, second.id))
    session.timings.again(first, second, sizes={"M": 37}, timeout=180)  # the task's own
    assert session.timings.side_by_side(first, second)["baseline"] == "each other"
    assert [dict(sizes) for sizes, _ in paired_ratios(session.state, first.id, second.id)] == [{}, {"M": 600}]
    verdict = session.timings.again(first, second, timeout=180)
    assert verdict is not None and verdict.passed
    assert [c.baseline for c in verdict.comparisons] == ["eager", f"turn {second.number}"]
    compared = session.timings.side_by_side(first, second)
    assert compared["ratio"] == pytest.approx(1 / verdict.comparisons[1].speedup)
    assert Recorder.read(session._journal, session.id).paired[-1].turns == (first.id, second.id)


def test_the_best_kernel_is_timed_over_the_range_of_a_dim_and_the_worst_size_is_named(tmp_path: Path) -> None:
    roles: Any = {"designer": OneSketch(), "coder": "rules"}
    sized = TASK.replace("import torch\n", 'import torch\nfrom kernellab import Dim\nM = Dim("M", 1, 900)\n')
    sized = sized.replace("inputs()", "inputs(M=37)").replace("randn(37", "randn(M")
    session = design(sized, dsl="cpp", roles=roles, name="range", workspace=tmp_path, options=QUICK)
    with pytest.raises(SessionError, match="No candidate has passed"):
        session.timings.over("M")
    session.wait(120)
    told: list[int] = []
    found = session.timings.over("M", lambda point: told.append(point.size))
    sizes = [point.size for point in found.points]
    assert sizes == told == sorted(sizes)
    assert {1, 37, 900} <= set(sizes) and not found.left_out
    timed = [p for p in found.points if p.ranking.paired is not None]
    assert found.worst in timed and not found.wrong
    assert all(found.worst.ranking.paired.speedup <= p.ranking.paired.speedup for p in timed)
    assert f"worst: M = {found.worst.size}" in str(found)
    with pytest.raises(SessionError, match="has no Dim 'Q'"):
        session.timings.over("Q")


def swept(*speeds: tuple[int, float, float, float]) -> Sweep:
    """A sweep over M: size, speedup, and the ends of its interval."""
    time = Timing(median_ms=1.0, q1_ms=1.0, q3_ms=1.0, samples=9)
    points = []
    for size, speedup, low, high in speeds:
        pair = Comparison(baseline="eager", baseline_time=time, speedup=speedup, low=low, high=high)
        points.append(SweepPoint(size, Ranking(ranked=True, stage=Stage.FAST, reason="", time=time, paired=pair)))
    return Sweep("M", tuple(points))


def test_the_kernel_changes_only_where_another_one_is_faster_for_certain() -> None:
    one = swept((1, 2.0, 1.9, 2.1), (16, 1.5, 1.3, 1.7), (64, 1.0, 0.95, 1.05), (256, 0.5, 0.4, 0.6))
    two = swept((1, 1.0, 0.9, 1.1), (16, 1.6, 1.4, 1.8), (64, 1.4, 1.3, 1.5), (256, 0.8, 0.7, 0.9))
    found = chosen([one, two])
    # at 16 the intervals overlap; the second wins from between 16 and 64 on, eager from between 64 and 256 on
    assert found.starts == ((0, 0), (32, 1), (128, None))
    assert found.words(["a", "b"]) == ["M from 0: a", "M from 32: b", "M from 128: eager"]


def test_each_of_two_neighbouring_sizes_gets_its_kernel_and_eager_only_what_no_kernel_holds() -> None:
    one = swept((1, 2.0, 1.9, 2.1), (2, 0.9, 0.8, 0.98))
    two = swept((1, 1.0, 0.9, 1.1), (2, 1.1, 0.97, 1.3))
    assert chosen([one, two]).starts == ((0, 0), (2, 1))


def test_a_size_where_no_kernel_is_shown_to_be_as_fast_keeps_eager_and_says_so() -> None:
    one = swept((1, 2.0, 1.9, 2.1), (64, 0.8, 0.6, 1.1), (256, 0.5, 0.4, 0.6))
    assert [point.advice for point in one.points] == ["", "not recommended", "keep eager"]
    assert [point.text.rpartition(", ")[2] for point in one.points[1:]] == ["not recommended", "keep eager"]
    assert chosen([one]).starts == ((0, 0), (8, None))


def test_a_kernel_that_is_shown_to_be_faster_replaces_one_that_keeps_eager() -> None:
    one = swept((1, 2.0, 1.9, 2.1), (64, 0.9, 0.8, 1.1))
    two = swept((1, 1.0, 0.9, 1.1), (64, 1.06, 1.02, 1.09))
    assert chosen([one, two]).starts == ((0, 0), (8, 1))


def test_nothing_is_chosen_where_nothing_was_timed() -> None:
    wrong = SweepPoint(4, Ranking(ranked=False, stage=Stage.CORRECT, reason="wrong"))
    with pytest.raises(SessionError, match="No kernel was timed"):
        chosen([Sweep("M", (wrong,))])
