"""The monitor on real runs: what it shows, what a person decides, what it says to a page that missed something."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from notebook_parts import Page

from kernellab.evolve.fold import apply_event
from kernellab.evolve.records import (
    Action,
    Ended,
    Evaluated,
    Evaluation,
    Migrated,
    Move,
    Paired,
    Place,
    Proposal,
    Proposed,
    RoundEnded,
    Status,
    Steered,
    Step,
    Verified,
)
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.head import best_of, figures, head, ledger, left, lines
from kernellab.notebook.monitor.monitor import Monitor
from kernellab.notebook.monitor.rows import MOST, condition, row, rows
from kernellab.options.search import Knobs
from kernellab.records import Comparison, Environment

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.evolve.runs import modelled, score, timing, verdict
from tests.evolve.runs import state as raced
from tests.waiting import until

SKETCH = """sketch soft {
    tensors: x[64, 256]: f32; y[64, 256]: f32 out;
    @llm_hint("parallel")
    for i in range(64):
        load(x[i, 0:256] -> row)
        top = reduce_max(row, axis=0)
        exps = exp(row - top)
        total = reduce_sum(exps, axis=0)
        store(exps / total -> y[i, 0:256])
}
"""


def opened(run: Run, number: int) -> str:
    return f"opened {number}"


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return modelled(tmp_path_factory.mktemp("ended"), rounds=1).work().wait(200)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[tuple[Run, Page]]:
    """A run that nobody works on, and a page that shows it."""
    run = modelled(tmp_path)
    bench = Monitor(run, opened)
    yield run, Page(bench)
    bench.close()


@cache
def writer(workspace: Path, run: str) -> Stream:
    """The run's stream, held as by another process."""
    stream = Stream(workspace, run)
    stream.acquire()
    return stream


def write(run: Run, count: int) -> Stream:
    """Candidates of made-up speedups."""
    stream = writer(run.workspace, run.id)
    first = len(stream.state().proposals)
    for number in range(first, first + count):
        proposal = Proposal(number=number, round=0, island=number % 2, operator="seed", sketch=f"sketch s{number} {{}}")
        evaluation = Evaluation(
            number=number, key=proposal.key, passed=True, step=Step.RANK, score=score(1 + number / 10),
            place=Place(technique="blocks", footprint=64 * (number + 1), intensity=1.0),
        )  # fmt: skip
        stream.append([Proposed(proposals=(proposal,)), Evaluated(evaluation=evaluation)])
    return stream


# -- what it shows -----------------------------------------------------------------------------------------------------


def test_an_ended_run_is_shown_with_its_rounds_its_steps_and_its_candidates(ended: Run) -> None:
    follower = Follower(ended.workspace, ended.id)
    shown, told = head(follower, False), figures(follower)
    assert shown["status"] == "finished"
    assert not any(shown["can"].values())
    assert [one["round"] for one in told["rounds"]] == [0, 1]
    assert told["rounds"][-1]["after"] == shown["candidates"] == len(ended.state.evaluations)
    assert {step["name"]: step["seen"] for step in told["steps"]}["gate"] > 0
    assert {cell["number"] for cell in told["cells"]} <= set(ended.state.evaluations)
    found = rows(follower, 0)["rows"]
    assert sorted(one["number"] for one in found) == sorted(ended.state.proposals)
    assert {one["at"] for one in found} == set(range(1, len(found) + 1))
    assert shown["left"] is None and shown["spent"] > 0
    json.dumps([shown, told, found])


def test_a_run_says_how_long_its_further_rounds_take(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    stream = write(run, 4)
    assert left(run.state) is None  # nothing is known of a round yet
    stream.append([RoundEnded(round=0)])
    stream.append([Proposed(proposals=(Proposal(number=4, round=1, island=0, operator="seed", sketch="sketch s {}"),))])
    state = run.state
    pace = (state.latest - state.begun.time) / 4
    assert left(state) == pytest.approx(pace * state.knobs.rounds * state.knobs.size, abs=0.1)


def test_what_an_ended_run_did_not_come_to_does_not_wait(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    stream = write(run, 1)
    stream.append([Proposed(proposals=(Proposal(number=1, round=1, island=0, operator="seed", sketch="sketch s {}"),))])
    assert condition(run.state, 1) == "waiting"
    stream.append([Ended(status=Status.STOPPED, reason="Stopped.")])
    assert [condition(run.state, number) for number in (0, 1)] == ["passed", "untried"]


@pytest.mark.parametrize("paused", [True, False])
def test_a_night_in_which_nobody_worked_on_a_run_is_no_work(waiting: tuple[Run, Page], paused: bool) -> None:
    run, _ = waiting
    stream = write(run, 4)
    stream.append([RoundEnded(round=0)])
    before, night = run.state.spent, 30_000.0
    evening, at_rest = left(run.state), run.state.latest
    if paused:
        stream.append([Steered(action=Action.PAUSE, time=at_rest)])
    stream.append([Steered(action=Action.SCRATCHPAD, time=at_rest + night / 2)])
    stream.append([Steered(action=Action.RESUME, time=at_rest + night)])
    follower = Follower(run.workspace, run.id)
    shown = head(follower, False)
    assert left(run.state) == evening == shown["left"]
    assert shown["spent"] == pytest.approx(before, abs=0.1)
    assert shown["began"] == pytest.approx(run.state.begun.time + night, abs=1)


def test_without_a_front_end_a_run_is_text_and_html(ended: Run) -> None:
    said = ended._repr_mimebundle_()
    assert "Refused by step" in said["text/plain"]
    assert "<svg" in said["text/html"]
    assert "<style" not in said["text/html"], "it must not change the rest of the notebook"
    assert repr(ended).startswith(f"<Run {ended.id}: finished, ")
    bench = Monitor(ended, opened)
    bundle = bench._repr_mimebundle_()
    assert bundle is not None
    assert bundle[0]["text/plain"] == said["text/plain"]
    bench.close()


def test_a_notebook_keeps_a_sentence_of_a_running_search_that_stays_true(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    bench = Monitor(run, opened)
    bundle = bench._repr_mimebundle_()
    bench.close()
    assert bundle is not None
    assert bundle[0]["text/plain"] == "The search soft began here. Run the cell again to see how it stands."


def test_levels_are_those_of_the_verdict_as_speedups_over_eager(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    stream = write(run, 1)
    found = verdict(2.0)
    compiled = found.comparisons[0].model_copy(update={"baseline": "compile", "speedup": 1.25})
    timed = compiled.model_copy(update={"baseline_time": found.time.model_copy(update={"median_ms": 0.625})})
    whole = found.model_copy(update={"comparisons": [*found.comparisons, timed], "sol_ms": 0.25})
    stream.append([Verified(number=0, verdict=whole)])
    follower = Follower(run.workspace, run.id)
    assert lines(follower.state) == [], "a modelled time is no speedup over eager"
    follower.state.knobs = Knobs(score="rank")
    assert {line["name"]: round(line["value"], 3) for line in lines(follower.state)} == {
        "eager": 1.0, "compile": 1.6, "bound": 4.0,
    }  # fmt: skip


def test_a_sketch_that_is_typed_costs_what_the_searchs_own_judge_measured(waiting: tuple[Run, Page]) -> None:
    """The rates of this machine while it was busy were a third of the judge's: a kernel beat "its roofline"."""
    run, page = waiting
    stream = write(run, 1)
    before = page.ask("check", text=SKETCH)["cost"]
    chip = page.bench._facts().chip
    where = Environment(chip=chip.name, bandwidth=100 * chip.bandwidth, flops=100 * max(chip.peak_flops.values()))
    stream.append([Verified(number=0, verdict=verdict(2.0).model_copy(update={"environment": where}))])
    assert until(lambda: page.bench._facts().chip.bandwidth == 100 * chip.bandwidth)
    (now,) = [one["text"] for one in page.ask("check", text=SKETCH)["cost"] if "roofline" in one["text"]]
    assert now not in {one["text"] for one in before}


def test_a_budget_of_time_says_what_comes_after_it() -> None:
    """Two minutes were shown as spent after three on the wall clock: the leader was judged then."""
    told = lambda budget: {one["name"]: one["text"] for one in ledger(raced([1.1], Knobs(budget=budget)))}["budget"]  # noqa: E731
    assert told("minutes=2,tokens=10k") == "tokens=10000,minutes=2.0; the verdict on the leader comes after it"
    assert told("tokens=10k") == "tokens=10000"
    assert told("") == "none"


def test_an_islands_best_is_the_runs_best_or_verified_before_it_is_fast() -> None:
    now = raced([1.1, 1.5, 2.0, 3.0], Knobs(score="rank"))
    apply_event(now, now.seq + 1, Verified(number=2, verdict=verdict(1.5)))
    assert now.best() == 2
    assert best_of(now, [1, 2, 3]) == 2, "3 was ranked faster, and never verified"
    assert best_of(now, [1, 3]) == 3
    assert best_of(now, []) is None


def test_a_migrant_is_counted_once_and_a_first_design_that_is_the_best_is_called_so(
    waiting: tuple[Run, Page],
) -> None:
    run, _ = waiting
    stream = write(run, 4)
    stream.append([Migrated(moves=(Move(number=3, source=1, target=0),))])
    follower = Follower(run.workspace, run.id)
    follower.close()
    shown = head(follower, False)
    assert run.state.islands[0] == [0, 2, 3]
    assert [one["size"] for one in shown["islands"]] == [2, 2]
    assert sum(one["size"] for one in shown["islands"]) == shown["candidates"]
    assert shown["first_text"].startswith("first design ")
    stream.append([Verified(number=0, verdict=verdict(1.5))])
    now = Follower(run.workspace, run.id)
    now.close()
    assert (head(now, False)["best"], head(now, False)["first_text"]) == (0, "it is the first design")
    # the table shows one with a higher figure: the two in turn are what says that it is not the best
    pair = Comparison(baseline="first", baseline_time=timing(1.0), speedup=1.05, low=0.91, high=1.2)
    stream.append([Verified(number=1, verdict=verdict(3.0)), Paired(number=1, first=0, comparison=pair)])
    last = Follower(run.workspace, run.id)
    last.close()
    words = "it is the first design: none is certainly faster, 1 in turn with it 0.91x to 1.20x as fast"
    assert (head(last, False)["best"], head(last, False)["first_text"]) == (0, words)


def test_a_run_says_who_waits_and_when_its_rounds_are_over(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    stream = write(run, 4)
    stream.append([RoundEnded(round=at) for at in range(run.state.knobs.rounds + 1)])
    follower = Follower(run.workspace, run.id)
    follower.close()
    shown = head(follower, False)
    assert "timing the best ones, 4 candidates" in shown["status_text"]
    assert shown["left"] is None


def test_a_run_says_that_it_verifies_the_best_and_which_are_tied_with_it(tmp_path: Path) -> None:
    run = modelled(tmp_path, score="rank")
    stream = write(run, 4)

    def shown(works_here: bool = True) -> dict[str, Any]:
        follower = Follower(run.workspace, run.id)
        follower.close()
        return dict(head(follower, works_here))

    # a minute or more is spent there, in which no candidate arrives
    assert shown()["status_text"].endswith("4 candidates, verifying the best of them")
    assert "verifying" not in shown(works_here=False)["status_text"], "no process works on it"
    assert shown()["tied"] == []
    stream.append([Verified(number=0, verdict=verdict(2.0)), Verified(number=1, verdict=verdict(2.01))])
    assert (shown()["best"], shown()["tied"]) == (0, [1])
    # the two in turn decide, whatever the noise of each
    pair = Comparison(baseline="first", baseline_time=timing(1.0), speedup=1.05, low=1.02, high=1.1)
    stream.append([Paired(number=1, first=0, comparison=pair)])
    assert (shown()["best"], shown()["tied"]) == (1, [])
    stream.append([Verified(number=2, verdict=verdict(9.0))])
    assert (shown()["best"], shown()["tied"]) == (2, [])
    stream.append([RoundEnded(round=0)])
    assert "verifying" not in shown()["status_text"]


# -- only what changed goes out ----------------------------------------------------------------------------------------


def test_what_another_process_writes_arrives_once_and_by_itself(waiting: tuple[Run, Page]) -> None:
    run, page = waiting
    sent: list[dict[str, Any]] = []
    send = page.bench.send
    page.bench.send = lambda content, buffers=None: (sent.append(content), send(content, buffers))
    stream = write(run, 3)
    assert until(lambda: page.bench.head["candidates"] == 3)
    stream.append([Steered(action=Action.PROTECT, number=1)])
    assert until(lambda: any(one["protected"] for message in sent for one in message.get("rows", ())))
    parts = [message for message in sent if message["kind"] == "rows"]
    assert [one["number"] for one in parts[-1]["rows"]] == [1], "the others are not sent again"
    for before, after in pairwise(parts):
        assert after["since"] == before["version"]
    assert page.bench.version == parts[-1]["version"]


@pytest.mark.parametrize("over", [False, True])
def test_a_monitor_that_has_nothing_to_say_is_heard_all_the_same(
    waiting: tuple[Run, Page], ended: Run, over: bool
) -> None:
    bench = Monitor(ended, opened) if over else waiting[1].bench
    assert bench.head["can"]["stop"] is not over
    bench._publisher._idle = 0.3
    bench._publisher.poke()  # wakes its thread, which waits for the old number of seconds
    before = bench.beat
    assert until(lambda: bench.beat >= before + 2, 15), "the view would say that the kernel is gone"
    bench.close()


def test_a_page_that_missed_something_asks_for_what_changed_since(waiting: tuple[Run, Page]) -> None:
    run, page = waiting
    write(run, 4)
    assert until(lambda: page.bench.head["candidates"] == 4)
    whole = page.ask("rows", since=0)
    assert [one["number"] for one in whole["rows"]] == [0, 1, 2, 3]
    assert whole["version"] == page.bench.version
    write(run, 1)
    assert until(lambda: page.bench.head["candidates"] == 5)
    assert [one["number"] for one in page.ask("rows", since=whole["version"])["rows"]] == [4]


def test_many_rows_are_asked_for_in_parts(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    follower = Follower(run.workspace, run.id)
    proposals = tuple(
        Proposal(number=n, round=0, island=0, operator="seed", sketch=f"sketch s{n} {{}}") for n in range(MOST + 5)
    )
    writer(run.workspace, run.id).append([Proposed(proposals=proposals)])
    assert follower.update()
    first = rows(follower, 0)
    second = rows(follower, first["version"])
    assert (len(first["rows"]), len(second["rows"])) == (MOST, 5)
    assert second["version"] == follower.version


def test_a_row_says_what_became_of_its_candidate(waiting: tuple[Run, Page]) -> None:
    run, _ = waiting
    stream = write(run, 2)
    proposal = Proposal(number=2, round=1, island=0, operator="cross", parents=(0, 1), sketch="sketch c {}", why="both")
    failed = Evaluation(number=2, key=proposal.key, passed=False, step=Step.GATE, reason="Wrong at y[0].")
    stream.append([Proposed(proposals=(proposal,))])
    follower = Follower(run.workspace, run.id)
    assert (row(follower, 2)["state"], row(follower, 2)["at"]) == ("waiting", None)
    stream.append([Evaluated(evaluation=failed), Steered(action=Action.DROP, number=1)])
    follower.update()
    lost = row(follower, 2)
    assert (lost["state"], lost["step"], lost["reason"], lost["value"]) == ("failed", "gate", "Wrong at y[0].", None)
    assert lost["parents"] == [0, 1]
    assert row(follower, 1)["state"] == "dropped"


# -- what a person decides ---------------------------------------------------------------------------------------------


def test_each_decision_is_an_event_by_a_person_and_a_refusal_is_one_sentence(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=30, parallel=1)
    bench = Monitor(run, opened)
    page = Page(bench)
    assert page.act("work") == ""
    assert until(lambda: bench.head["candidates"] >= 2, 120)
    assert page.act("pause") == ""
    assert until(lambda: bench.head["status"] == "paused")
    assert page.act("protect", number=0) == ""
    assert page.act("freeze", island=1) == ""
    assert page.act("knob", name="elites", value="3") == ""
    assert page.act("scratchpad", text="keep rows whole") == ""
    assert page.act("inject", text=SKETCH, island=0, why="by hand") == ""
    assert until(lambda: bench.head["islands"][1]["frozen"])
    assert "no candidate 999" in page.act("drop", number=999)
    refused = page.heard[f"{page.name}-{page.number}"]["error"]
    assert until(lambda: bench.head["message"] == refused)
    assert "cannot be" in page.act("knob", name="elites", value="many")
    assert "cannot be changed" in page.act("knob", name="score", value="rank")
    assert "No direction is proposed" in page.act("refuse")
    assert "empty" in page.act("inject", text=" ", island=0, why="")
    assert "Line 7: Unknown name 'rwo'" in page.act(
        "inject", text=SKETCH.replace("exp(row", "exp(rwo"), island=0, why=""
    )
    assert "unknown command" in page.act("dance")
    assert page.act("open", number=0) == ""
    assert page.heard[f"{page.name}-{page.number}"]["note"] == "opened 0"
    assert page.act("resume") == ""
    mine = until(lambda: any(p.operator == "person" for p in Follower(tmp_path, run.id).state.proposals.values()), 120)
    assert mine
    assert page.act("stop") == ""
    run.wait(60)
    assert until(lambda: bench.head["status"] == "stopped")
    assert until(lambda: bench.figures["scratchpad"] == "keep rows whole")
    done = [event.action for _, event in Stream(tmp_path, run.id).read() if isinstance(event, Steered)]
    wanted = [Action.PAUSE, Action.PROTECT, Action.FREEZE, Action.KNOBS, Action.SCRATCHPAD, Action.INJECT]
    assert [action for action in done if action in wanted] == wanted
    assert "is stopped" in page.act("pause")
    bench.close()


def test_a_decision_that_arrives_twice_is_carried_out_once(waiting: tuple[Run, Page]) -> None:
    run, page = waiting
    for _ in range(2):
        page.heard.clear()
        page.reply(page.post({"action": "scratchpad", "text": "once"}, "the-same"))
    assert sum(isinstance(event, Steered) for _, event in Stream(run.workspace, run.id).read()) == 1


def test_two_candidates_are_compared_by_figures_and_texts(waiting: tuple[Run, Page]) -> None:
    run, page = waiting
    write(run, 6)
    assert until(lambda: page.bench.head["candidates"] == 6)
    found = page.ask("compare", a=0, b=5)
    assert found["verdict"].startswith("Candidate 5 is 1.50 times as fast as candidate 0")
    assert "-sketch s0 {}" in found["diff"] and "+sketch s5 {}" in found["diff"]
    near = page.ask("compare", a=0, b=0)
    assert near["verdict"].startswith("No difference can be told")
    shown = page.ask("candidate", number=5)
    assert shown["sketch"] == "sketch s5 {}"
    assert {"name": "technique", "text": "blocks"} in shown["facts"]


def test_a_sketch_is_checked_while_it_is_typed_and_a_report_is_a_page(waiting: tuple[Run, Page]) -> None:
    _, page = waiting
    found = page.ask("check", text=SKETCH.replace("exp(row", "exp(rwo"))
    assert found["diagnostics"][0]["line"] == 7
    right = page.ask("check", text=SKETCH)
    assert right["diagnostics"] == [] and any("on chip" in figure["text"] for figure in right["cost"])
    assert page.ask("hover", text=SKETCH, line=6, col=16)["title"]
    assert "reduce_max" in {one["label"] for one in page.ask("complete", text=SKETCH, line=6, col=22)}
    assert page.ask("report")["text"].startswith("<!doctype html>")


def test_closing_leaves_the_run_alone_and_ends_the_threads(tmp_path: Path) -> None:
    run = modelled(tmp_path)
    before = set(threading.enumerate())
    bench = Monitor(run, opened)
    assert until(lambda: bench.beat > 0 or bench.version == 0)
    bench.close()
    bench.close()
    assert until(lambda: not [t for t in threading.enumerate() if t not in before and t.is_alive()], 10)
    assert run.state.status.value == "running"
