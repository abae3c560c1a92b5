"""A run from its beginning to its end, on a real task; most leave measuring to the cost model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.errors import DesignError, EvolveError, JournalError, KernellabError, SketchError
from kernellab.evolve import jobs
from kernellab.evolve.begin import begin, open_run, planned, runs
from kernellab.evolve.jobs import Cascade, Job, evaluate
from kernellab.evolve.records import Action, Evaluated, Proposed, SearchRequest, Status, Steered, Step
from kernellab.evolve.report import page
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream
from kernellab.evolve.summary import summary, words
from kernellab.evolve.workers.judges import LocalJudge
from kernellab.lowering.embedded_sketch import code_digest
from kernellab.records import Author, Source, Stage, Trust, Verdict
from tests.evolve.runs import TASK, evaluated, modelled
from tests.verifier.kit import MATMUL, TF32
from tests.zoo.exhibit import exhibits


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return modelled(tmp_path_factory.mktemp("whole")).work().wait(300)


def test_a_run_ends_with_its_rounds_and_every_proposal_has_come_to_something(whole: Run) -> None:
    state = whole.state
    assert state.status is Status.FINISHED
    assert state.reason == "All 2 rounds are done."
    assert not state.waiting
    assert len(state.rounds) == 3
    assert len({p.key for p in state.proposals.values()}) == len(state.proposals), "none is proposed twice"
    for number, proposal in state.proposals.items():
        assert proposal.round == 0 or proposal.parents, f"candidate {number} comes from nobody"
        assert state.evaluations[number].spent, "each has its price"


def test_children_are_other_sketches_than_their_parents_and_say_what_was_changed(whole: Run) -> None:
    for proposal in whole.state.proposals.values():
        if proposal.parents:
            assert proposal.sketch != whole.state.proposals[proposal.parents[0]].sketch
            assert proposal.why
            assert proposal.operator.startswith("rules:")


def test_the_same_seed_makes_the_same_run(whole: Run, tmp_path: Path) -> None:
    again = modelled(tmp_path).work().wait(300)
    assert evaluated(again) == evaluated(whole)


def test_a_run_is_read_from_its_journal_as_it_was_written(whole: Run) -> None:
    read = open_run("soft", whole.workspace)
    assert runs(whole.workspace) == [whole.id]
    assert evaluated(read) == evaluated(whole)
    assert summary(read.id, read.state) == summary(whole.id, whole.state)


def test_words_and_the_page_say_what_each_step_refused(whole: Run) -> None:
    said = words(summary(whole.id, whole.state))
    assert "Refused by step: check 0/" in said
    assert "by the cost model" in said
    text = page(whole.id, whole.state)
    best = whole.state.best()
    assert best is not None
    assert f"candidate {best}" in text
    assert f"{best}: {1 / whole.state.worth(best):.3g} ms, " in text, "the cost model's times are no speedups"
    assert "stroke-dasharray" not in text, "and the reference has none"
    assert "http" not in text.replace("http://www.w3.org", ""), "the page loads nothing"


def test_a_sketch_of_a_session_is_not_called_a_persons(tmp_path: Path) -> None:
    def first(**wrote: Author) -> tuple[str, Author]:
        request = SearchRequest(dsl="cpp", workspace=tmp_path, sketches=("sketch a {}",), **wrote)
        (given,) = planned(TASK, request).given
        return given.operator, given.author

    assert first() == ("person", Author.HUMAN)
    assert first(author=Author.RULES) == ("session", Author.RULES)


def test_an_injected_sketch_is_evaluated_and_what_is_sent_to_an_ended_run_is_refused(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=1)
    wrong = (
        "sketch wrong {\n    tensors: X[4]: f32; Y[4]: f32 out;\n    store(Z -> Y[0:4])\n    store(W -> Y[0:4])\n}\n"
    )
    with pytest.raises(SketchError) as refused:
        run.inject(wrong)
    assert {d.line for d in refused.value.diagnostics} == {3, 4}
    assert "Line 3" in str(refused.value) and "Line 4" in str(refused.value)
    run.work()
    run.inject(wrong.replace("Z", "full([4], 0.0)").replace("W", "full([4], 0.0)"), why="a try")
    run.wait(300)
    (mine,) = [p for p in run.state.proposals.values() if p.operator == "person"]
    found = run.state.evaluations[mine.number]
    assert (found.passed, found.step) == (False, Step.GATE)
    with pytest.raises(EvolveError, match="is finished"):
        run.pause()


def test_what_is_wished_while_nobody_works_is_kept_and_done_once(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=1)
    # seeds are made by whoever works on it first, so that this waits for them; the others are so at once
    run.inject("sketch mine {\n    tensors: Y[4]: f32 out;\n    store(full([4], 0.0) -> Y[0:4])\n}\n", why="a try")
    run.freeze(1)
    run.pause()
    other = open_run(run.id, tmp_path)
    assert (other.state.status, other.state.frozen) == (Status.PAUSED, {1})
    other.resume()
    done = other.work().wait(300)
    assert [p.why for p in done.state.proposals.values() if p.operator == "person"] == ["a try"]
    assert all(p.island == 0 for p in done.state.proposals.values() if p.round)
    asked = [event.action for _, event in Stream(tmp_path, run.id).read() if isinstance(event, Steered)]
    assert sorted(asked) == [Action.FREEZE, Action.INJECT, Action.PAUSE, Action.RESUME]


def test_a_knob_that_is_changed_before_the_worker_has_taken_the_last_one_keeps_it(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=2)
    before = run.state.knobs
    worker = Stream(tmp_path, run.id)
    worker.acquire()
    run.set(rounds=1)
    run.set(elites=before.elites + 1)
    worker.release()
    knobs = run.work().wait(300).state.knobs
    assert knobs == before.model_copy(update={"rounds": 1, "elites": before.elites + 1})


def test_a_paused_run_begins_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=1)
    run.work()
    # as another process of the workspace asks for it
    Stream(tmp_path, run.id).wish(Steered(action=Action.PAUSE))
    deadline = time.monotonic() + 60
    while run.state.status is not Status.PAUSED and time.monotonic() < deadline:
        time.sleep(0.05)
    assert run.state.status is Status.PAUSED
    time.sleep(1)
    seen = len(run.state.proposals)
    time.sleep(1)
    assert len(run.state.proposals) == seen
    run.resume()
    assert run.wait(300).state.status is Status.FINISHED


def test_a_detached_run_is_watched_steered_and_stopped_from_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("soft.py").write_text(TASK)
    assert main(["evolve", "soft.py", "--score", "model", "--rounds", "500", "--detach", "--json"]) == 0
    name = json.loads(capsys.readouterr().out)["run"]
    run = open_run(name, tmp_path)
    deadline = time.monotonic() + 100
    while len(run.state.evaluations) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    Path("mine.py").write_text("def kernel(x):\n    return x\n")
    for wish in (("freeze", "1"), ("protect", "0"), ("inject", "mine.py"), ("set", "rounds=400"), ("scratchpad", "so")):
        assert main(["evolve", wish[0], name, wish[1]]) == 0
    assert main(["evolve", "set", name, "budget=minutes=0.0001"]) == 0
    assert main(["evolve", "attach", name, "--json"]) == 1, "the cost model's best is no verified kernel"
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["run"]) == ("finished", name)
    assert told["reason"].startswith("The budget minutes=0.0001 is reached")
    state = run.state
    assert (state.frozen, state.protected, state.knobs.rounds, state.scratchpad) == ({1}, {0}, 400, "so")
    assert [p.operator for p in state.proposals.values() if p.source is not None] == ["person"]
    assert main(["evolve", "stop", name]) != 0, "it has ended"


def test_a_run_that_nobody_works_on_is_said_to_be_so_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = modelled(tmp_path, rounds=1)
    for asked in (["attach", run.id], ["status", run.id]):
        assert main(["evolve", *asked]) == 1
        assert f"No process works on it. Go on with it: `kernellab evolve --resume {run.id}`" in capsys.readouterr().err
    assert main(["evolve", "list"]) == 0
    assert capsys.readouterr().out.startswith(f"{run.id}  unattended")
    with pytest.raises(EvolveError, match="No process works on the run"):
        run.wait(60)
    holder = Stream(tmp_path, run.id)
    holder.acquire()
    assert main(["evolve", "pause", run.id]) == 0
    assert f"Asked of {run.worker}, which works on {run.id}." in capsys.readouterr().err
    holder.release()
    assert main(["evolve", "stop", run.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "stopped"


def test_a_run_that_cannot_be_read_hides_no_other_and_hinders_no_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("soft.py").write_text(TASK)
    bad, good = modelled(tmp_path), modelled(tmp_path)
    Stream(tmp_path, bad.id).journal.add(f"run:{bad.id}", ["no event at all"])
    assert main(["evolve", "list"]) == 0
    told = capsys.readouterr()
    assert good.id in told.out and bad.id not in told.out
    assert f"{bad.id} cannot be read: The run holds an event that this kernellab cannot read" in told.err
    assert main(["evolve", "soft.py", "--estimate"]) == 0
    assert main(["evolve", "status", bad.id]) == 2


def test_what_was_decided_when_a_run_began_is_refused_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("soft.py").write_text(TASK)
    run = modelled(tmp_path)
    assert main(["evolve", "--resume", run.id, "--rounds", "9"]) == 2
    assert "--rounds was decided when the run began." in capsys.readouterr().err
    assert main(["evolve", "soft.py", "--out", "soft.py"]) == 2
    assert "soft.py cannot be written" in capsys.readouterr().err
    assert main(["evolve", "--resume", run.id, "--cluster", "moon", "--detach"]) == 2
    assert "There is no cluster 'moon'." in capsys.readouterr().err
    assert runs(tmp_path) == [run.id]


def test_another_process_that_works_on_a_run_is_named(tmp_path: Path) -> None:
    run = modelled(tmp_path, rounds=1)
    other = Stream(tmp_path, run.id)
    other.acquire()
    with pytest.raises(EvolveError, match="process"):
        run.work()
    other.release()
    assert run.work().wait(300).state.status is Status.FINISHED


_WORK = """
import sys
from kernellab.evolve.begin import open_run
open_run(sys.argv[1], sys.argv[2]).work().wait()
"""


def test_a_run_that_was_killed_goes_on_and_evaluates_what_an_undisturbed_one_does(whole: Run, tmp_path: Path) -> None:
    run = modelled(tmp_path)
    for kills in (1, 5):  # after the seeds, and in a round
        process = subprocess.Popen([sys.executable, "-c", _WORK, run.id, str(tmp_path)], start_new_session=True)
        deadline = time.monotonic() + 120
        while len(run.state.evaluations) < kills and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # nobody works on it now
        run.write_scratchpad(f"after {kills}")
    done = Run(tmp_path, run.id).work().wait(300)
    assert evaluated(done) == evaluated(whole)
    assert done.state.scratchpad == "after 5"
    events = [event for _, event in Stream(tmp_path, run.id).read()]
    numbers = [event.evaluation.number for event in events if isinstance(event, Evaluated)]
    assert len(numbers) == len(set(numbers)), "none is evaluated twice"
    proposed = [p.number for event in events if isinstance(event, Proposed) for p in event.proposals]
    assert proposed == list(range(len(proposed)))
    taken_up = [e for e in events if isinstance(e, Steered) and e.action is Action.RESUME]
    assert taken_up and done.state.idle > 0, "the time in which no one worked on it counts"


def test_how_long_each_candidate_took_and_which_came_first_decides_nothing(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine: some candidates take ten times as long as others, so that later ones come first."""
    usual = jobs._gate_and_cost

    def slowed(cascade: Cascade, *rest: object) -> None:
        with cascade.at(Step.GATE):
            time.sleep(0.5 * (cascade.job.number * 5 % 4))
        usual(cascade, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(jobs, "_gate_and_cost", slowed)
    run = modelled(tmp_path).work().wait(300)
    assert list(run.state.evaluations) != sorted(run.state.evaluations), "some came before an earlier one"
    assert evaluated(run) == evaluated(whole)


def test_a_task_that_nobody_can_design_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    text = TASK.replace("torch.softmax(x, dim=-1)", "torch.linalg.svdvals(x)")
    run = begin(text, "cpp", name="svd", workspace=tmp_path, score="model").work()
    with pytest.raises(EvolveError, match="svd"):
        run.wait(120)
    assert run.state.status is Status.FAILED
    assert DesignError.__name__ not in run.state.reason


def test_wrong_knobs_are_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(EvolveError, match="no knob 'round'"):
        modelled(tmp_path, round=3)
    with pytest.raises(EvolveError, match="no policy 'isles'"):
        modelled(tmp_path, select="isles")
    with pytest.raises(EvolveError, match="'rounds' cannot be 0"):
        modelled(tmp_path, rounds=0)
    assert runs(tmp_path) == []


def test_a_run_of_a_later_version_is_shown_and_not_touched(tmp_path: Path) -> None:
    run = modelled(tmp_path)
    stream = Stream(tmp_path, run.id)
    stream.journal.add(f"run:{run.id}", ['{"kind": "dreamt", "time": 1.0}'])
    opened = open_run(run.id, tmp_path)
    assert opened.state.begun.name == "soft"
    for touch in (opened.work, opened.pause):
        with pytest.raises(EvolveError, match=r"a later kernellab \(dreamt\)"):
            touch()
    # what is known of an event stands, without what a later version has added to it
    stream.journal.add(f"run:{run.id}", ['{"kind": "steered", "action": "scratchpad", "text": "seen", "mood": "good"}'])
    opened = open_run(run.id, tmp_path)
    assert (opened.state.scratchpad, opened.state.unknown) == ("seen", {"dreamt", "steered: mood"})
    stream.journal.add(f"run:{run.id}", ['{"kind": "ended"}'])
    with pytest.raises(JournalError, match="cannot read"):
        open_run(run.id, tmp_path)


def test_a_verdict_of_an_earlier_format_is_not_read_as_one_without_conditions(tmp_path: Path) -> None:
    run = modelled(tmp_path)
    verdict = Verdict(passed=True, stage=Stage.ROBUST, reason="", trust=Trust.T2).model_dump(mode="json")
    event = {"kind": "verified", "number": 1, "verdict": {**verdict, "label": "", "flags": ["busy"]}}
    Stream(tmp_path, run.id).journal.add(f"run:{run.id}", [json.dumps(event)])
    with pytest.raises(JournalError, match="earlier format"):
        open_run(run.id, tmp_path)


#: TF32's rounding, which this task takes, is above 1e-4
PRODUCT = MATMUL.format(policy='PRECISION = {"matmul": "tf32"}')
ROUNDED = TF32 + "def kernel(x, y):\n    return tf32(x) @ tf32(y)\n"


def test_a_strict_run_ranks_strictly(tmp_path: Path) -> None:
    judge, source = LocalJudge(), Source(dsl="cpp", files={"kernel.py": ROUNDED})
    for precision, passes in (("framework", True), ("strict", False)):
        begun = begin(PRODUCT, "cpp", name="product", workspace=tmp_path, precision=precision).state.begun
        job = Job(
            0, "", begun.text, begun.name, "cpp", None, source=source, allow_library=True, precision=begun.precision
        )
        assert evaluate(job, judge).passed is passes
    with pytest.raises(KernellabError, match="'exact' is not known"):
        begin(PRODUCT, "cpp", workspace=tmp_path, precision="exact")


#: three of the zoo that pass a quick look: an answer of the framework, one that is remembered, one that is only timed
CHEATS = ("ghost_in_cpp", "cache_in_a_ring", "careless_by_the_timed_size")


def test_cheats_are_never_elites_and_what_is_called_the_best_is_verified(tmp_path: Path) -> None:
    cheats = [exhibit for exhibit in exhibits() if exhibit.name in CHEATS]
    assert len(cheats) == 3
    run = begin(
        cheats[0].task, "cpp", name="soft", workspace=tmp_path, rounds=1, parallel=1, islands=1, elites=4,
        sources=[exhibit.source("cpu") for exhibit in cheats],
    )  # fmt: skip
    elites: set[int] = set()
    bests: set[int | None] = set()
    run.watch(lambda: (elites.update(run.state.elites(0)), bests.add(run.state.best())))  # type: ignore[func-returns-value]
    run.work().wait(600)
    state = run.state
    injected = {n for n, p in state.proposals.items() if p.source is not None}
    assert len(injected) == 3
    assert elites and not injected & elites
    assert not injected & bests
    for number in injected:
        verdict = state.verdicts.get(number)
        assert verdict is None or not verdict.passed, "a quick look may let it pass, a verdict does not"
    assert not any(injected & {*p.parents, *p.inspirations} for p in state.proposals.values())
    best = state.best()
    assert best is not None
    assert state.verdicts[best].passed
    assert state.verdicts[best].trust.value >= "T2"
    assert state.scores[best].low <= state.scores[best].speedup <= state.scores[best].high
    candidate, verdict = run.best()
    assert code_digest(candidate.source) == state.evaluations[best].source
    assert verdict is not None
    assert verdict.text in words(summary(run.id, state))
