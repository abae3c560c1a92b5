"""Several searches under one budget: who has the next round, what ends, and what is told in the morning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernellab.cli import main
from kernellab.errors import EvolveError
from kernellab.evolve.night import Night, knobs_of_a_night, morning, page
from kernellab.evolve.records import Status
from kernellab.options.search import Knobs
from tests.evolve.runs import TASK, modelled
from tests.waiting import until


def test_the_next_round_goes_to_who_gained_most_for_its_seconds_and_each_has_a_first(tmp_path: Path) -> None:
    runs = [modelled(tmp_path / name) for name in "abc"]
    night = Night(runs, 60.0)
    a, b, c = night.turns
    assert night.next() is a
    a.take(0.0, 10.0)
    assert night.next() is b
    for one, gained in ((b, 0.1), (c, 0.3)):
        one.take(0.0, 10.0)
        one.take(gained, 10.0)
    a.take(0.2, 40.0)
    assert night.next() is c
    c.take(0.0, 300.0)
    assert night.next() is b, "what gains no more gives way"
    b.fault = c.fault = "It broke."
    assert night.next() is a
    a.fault = "It broke too."
    assert night.next() is None


def test_a_first_round_leaves_as_much_time_to_those_that_had_none(tmp_path: Path) -> None:
    night = Night([modelled(tmp_path / name) for name in "abc"], 90.0)
    a, b, c = night.turns
    assert night.limit(a, 10.0, 100.0) == 40.0
    a.take(0.0, 30.0)
    assert night.limit(a, 40.0, 100.0) == 100.0 and night.limit(b, 40.0, 100.0) == 70.0
    b.take(0.0, 1.0)
    assert night.limit(c, 41.0, 100.0) == 100.0


def test_all_runs_end_within_the_budget_with_what_they_found(tmp_path: Path) -> None:
    said: list[str] = []
    runs = [modelled(tmp_path / name, rounds=1) for name in "ab"]
    found = Night(runs, 300.0, said.append).work()
    assert [run.state.status for run in runs] == [Status.FINISHED] * 2
    assert [one.rounds for one in found] == [2, 2] and len(said) >= 4
    assert not any(run.works_here for run in runs) or all(run.state.status.ended for run in runs)
    text = page(found, 300.0)
    assert all(run.id in text for run in runs) and "<script" not in text


def test_where_the_time_is_up_every_run_ends_and_begins_no_round(tmp_path: Path) -> None:
    runs = [modelled(tmp_path / name, rounds=100) for name in "ab"]
    runs[0].work()
    until(lambda: runs[0].state.rounds, 60)
    runs[0].pause()
    until(lambda: runs[0].state.status is Status.PAUSED, 60)
    before = len(runs[0].state.rounds)
    night = Night(runs, 60.0)
    night.seconds = 0.0
    night.work()
    assert runs[0].state.status is Status.FINISHED and len(runs[0].state.rounds) == before
    assert runs[1].state.rounds == []
    assert morning(night.turns[1]).look_at == "It had no time: give the night more minutes."


def test_a_fault_of_one_operator_is_told_and_ends_no_other(tmp_path: Path) -> None:
    runs = [modelled(tmp_path / name, rounds=1) for name in "ab"]
    night = Night(runs, 300.0)
    broken = runs[0]
    work = broken.work

    def fail() -> object:
        raise EvolveError("No device.", "Find one.")

    broken.work = fail  # type: ignore[method-assign, assignment]
    found = night.work()
    assert found[0].look_at == "No device." and runs[1].state.status is Status.FINISHED
    broken.work = work  # type: ignore[method-assign]


def test_a_night_without_a_task_or_time_is_refused() -> None:
    with pytest.raises(EvolveError, match="needs task files and minutes"):
        Night([], 60.0)


def test_a_search_of_a_night_ends_by_its_plateau_unless_a_person_says_otherwise() -> None:
    assert (knobs_of_a_night(Knobs()).rounds, knobs_of_a_night(Knobs()).plateau) == (100_000, 4)
    said = knobs_of_a_night(Knobs(rounds=2, plateau=1))
    assert (said.rounds, said.plateau) == (2, 1)


def test_the_command_takes_files_and_writes_the_mornings_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernellab.toml").write_text('[evolve]\nscore = "model"\nrounds = 1\nparallel = 1\nislands = 1\n')
    (tmp_path / "soft.py").write_text(TASK)
    code = main(["evolve", "--night", "soft.py", "--minutes", "4", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert code == 1, "the cost model alone verifies nothing"
    (one,) = told["operators"]
    assert one["summary"]["status"] == "finished" and one["look_at"] == "Nothing is verified."
    assert (tmp_path / "morning.html").read_text().count("soft (cpp)") == 1
