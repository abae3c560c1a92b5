"""What ends with something verified is offered: a search, in the shell, in a notebook and in the monitor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from kernellab.cli import main, output
from kernellab.evolve.records import Ended, Evaluated, Evaluation, Proposal, Proposed, Status, Step, Verified
from kernellab.evolve.run import Run
from kernellab.evolve.stream import Stream
from kernellab.memory.memory import Memory
from kernellab.notebook.monitor.commands import Desk, carry_out
from kernellab.notebook.monitor.follow import Follower
from kernellab.notebook.monitor.head import head
from tests.evolve.runs import modelled, score, verdict

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


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A search that has ended with a verified candidate and one that failed."""
    (tmp_path / "kernellab.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    run = modelled(tmp_path)
    stream = Stream(tmp_path, run.id)
    stream.acquire()
    for number, passed in ((0, True), (1, False)):
        sketch = SKETCH.replace("soft", f"soft{number}")
        proposal = Proposal(number=number, round=0, island=0, operator="seed", sketch=sketch, why="rows whole")
        found = Evaluation(number=number, key=proposal.key, passed=True, step=Step.RANK, score=score(2.0))
        stream.append([Proposed(proposals=(proposal,)), Evaluated(evaluation=found)])
        stream.append([Verified(number=number, verdict=verdict(2.0, passed))])
    stream.append([Ended(status=Status.FINISHED, reason="All rounds are done.")])
    stream.release()
    return run


def test_an_ended_search_is_offered_and_what_failed_is_not_taken(
    ended: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evolve", "attach", ended.id]) == 0
    assert f"`kernellab memory add {ended.id}` remembers it" in capsys.readouterr().err
    assert main(["memory", "add", ended.id, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"kept": 1, "taken": {ended.id: 1}}
    assert main(["memory", "add", "soft", "--json"]) == 1, "by its task's name, nothing new"
    assert json.loads(capsys.readouterr().out)["taken"] == {"soft": 0}
    (row,) = Memory.open(tmp_path).store.kernels()
    made = row.kernel.provenance
    assert (made.origin, made.place, made.turn) == ("run", ended.id, "p0")
    assert row.kernel.sketch == SKETCH.replace("soft", "soft0")


def test_a_person_at_a_terminal_is_asked(
    ended: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def answered(question: str, **_: object) -> bool:
        asked.append(question)
        return len(asked) > 1

    monkeypatch.setattr(typer, "confirm", answered)
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(getattr(output.sys, stream), "isatty", lambda: True)
    output.ask_to_remember(ended.id, ended.remember)
    assert Memory.open_existing(tmp_path) is None
    output.ask_to_remember(ended.id, ended.remember)
    assert "1 kernel remembered" in capsys.readouterr().err
    assert asked == ["Remember it for later designs?"] * 2


def test_the_monitor_offers_it_by_a_button_and_nothing_where_the_memory_is_off(ended: Run, tmp_path: Path) -> None:
    assert ended.offers()
    assert head(Follower(tmp_path, ended.id), False)["can"]["remember"]
    desk = Desk(ended, str)
    assert carry_out(desk, {"action": "remember"}) == "1 kernel remembered."
    assert carry_out(desk, {"action": "remember"}).startswith("Nothing new")
    (tmp_path / "kernellab.toml").write_text('[memory]\noffer = "never"\n')
    assert not ended.offers()
    assert not head(Follower(tmp_path, modelled(tmp_path).id), False)["can"]["remember"]
