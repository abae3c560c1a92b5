"""An agent as an operator of a search: it gets the lineage, its share of the proposals, and the bandit's credit."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from kernellab.cli import main
from kernellab.errors import EvolveError, SessionError
from kernellab.evolve import evolve
from kernellab.evolve.assembly import assembled
from kernellab.evolve.begin import open_run
from kernellab.evolve.fold import apply_event
from kernellab.evolve.policies import Request
from kernellab.evolve.records import Exchanged, Plan, RoundEnded
from kernellab.evolve.run import Run
from kernellab.evolve.summary import summary, words
from kernellab.evolve.vary.bandit import arms, order
from kernellab.evolve.vary.mix import Mix
from kernellab.evolve.vary.models import ModelOperator
from kernellab.evolve.vary.prompt_variants import LINEAGE
from kernellab.models import ChatRequest, ReplayModel, read_replay, write_replay
from kernellab.notebook.monitor.head import ledger
from kernellab.records import Author
from tests.waiting import until

pytest.importorskip("acp")
AGENT = Path(__file__).parents[1] / "tools" / "scripted_agent.py"
TASK = """
import torch

def reference(x):
    return x * 2.0 + 1.0

def inputs():
    return torch.randn(64, 128)
"""
SKETCH = """sketch twice {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 64;

    @llm_hint("parallel", "coreidx")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x * 2.0 + 1.0 -> Y[m, n:n+BLOCK])
}
"""


def submit(sketch: str) -> dict[str, Any]:
    return {"tool": "submit_answer", "with_": {"answer": f"Wider.\n```sketch\n{sketch}```\n"}}


STATUS = {"tool": "search_status", "with_": {"run": "twice"}, "loud": 1}


def write_agent(folder: Path, *acts: dict[str, Any]) -> None:
    assert importlib.util.find_spec("mcp")
    (folder / "script.json").write_text(json.dumps([list(acts) or [{"heard": 0}, STATUS, submit(SKETCH)]]))
    command = json.dumps([sys.executable, str(AGENT), str(folder / "script.json")])
    (folder / "kernellab.toml").write_text(f"[agents.scripted]\ncommand = {command}\n")


def test_an_agent_varies_candidates_by_their_lineage_and_is_credited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_agent(tmp_path)
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off", wait=True,
    )  # fmt: skip
    made = [p for p in run.state.proposals.values() if p.operator == "agent:scripted/lineage"]
    assert made and made[0].author is Author.MODEL and made[0].parents and made[0].sketch == SKETCH
    assert "agent:scripted/lineage" in arms(run.state)
    (exchange,) = (event.exchange for _, event in run._stream.read() if isinstance(event, Exchanged))
    heard = "".join(message.content for message in exchange.messages)
    assert "Look at its lineage" in heard and f"The search is {run.id}." in heard
    assert [s.title for s in exchange.steps if s.kind == "tool"] == ["search_status", "submit_answer"]
    # where others gained is shown, with the change; without a gain nothing is
    number, parent = made[0].number, made[0].parents[0]
    for worth, gained in ((2.0, True), (1.0, False)):
        monkeypatch.setattr(run.state, "worth", lambda n, worth=worth: worth if n == number else 1.0)
        shown = "\n".join(LINEAGE.instructions(run.state, Request(0, (parent,))).evidence)
        assert (f"Candidate {number} is 2.00 times as fast as candidate {parent}" in shown) is gained
    monkeypatch.undo()
    # below its share it is the first to be asked, above it the bandit decides
    operators = ["rules:a", "agent:scripted/lineage"]
    assert order(run.state, operators, ["rules:a"] * 9)[0] == "agent:scripted/lineage"


def test_each_of_several_answers_is_a_candidate(tmp_path: Path) -> None:
    wrong = SKETCH.replace("2.0", "3.0")
    other = SKETCH.replace("BLOCK = 64", "BLOCK = 32")
    write_agent(tmp_path, submit(other), submit("no sketch"), submit(wrong), submit(other), submit(SKETCH))
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off", wait=True,
    )  # fmt: skip
    made = [p for p in run.state.proposals.values() if p.operator == "agent:scripted/lineage"]
    assert [p.sketch for p in made[:4]] == [SKETCH, other, "", wrong]
    assert len({p.parents for p in made[:4]}) == 1 and made[0].seconds > 0 and made[1].seconds == 0
    told = [run.state.evaluations[p.number] for p in made[:4]]
    assert told[2].reason.startswith("The agent gave no sketch") and not told[3].passed
    said = words(summary(run.id, run.state))
    assert "tokens not reported; 1 gave nothing, the last: The agent gave no sketch" in said
    assert arms(run.state)["agent:scripted/lineage"].tries >= 4
    (exchange, *_) = (event.exchange for _, event in run._stream.read() if isinstance(event, Exchanged))
    assert len(exchange.others) == 3
    again = ReplayModel(read_replay(write_replay(tmp_path / "agent.replay", [exchange])))
    assert again.ask(ChatRequest(exchange.messages)).others == exchange.others


def _agent_works() -> bool:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may end meanwhile
            found.append("scripted" in str(process.cmdline()))
    return any(found)


KILLED = """
import sys
import time
from pathlib import Path
from kernellab.dsls import rates
from kernellab.evolve import evolve
rates.measure_rates = lambda cores: rates.Rates(1e10, 1e11, 5e10, "said by a test")
text = Path(sys.argv[1], "twice.py").read_text()
run = evolve(text, "cpp", name="twice", workspace=sys.argv[1], rounds=1, parallel=2, islands=1, score="model",
             vary="agent:scripted=0.5", memory="off")
while not (len(run.state.evaluations) > 1 and run.state.doing):
    time.sleep(0.01)
print("asked", flush=True)
run.wait(100)
"""


def test_an_agent_whose_turn_a_kill_cut_off_is_asked_again(tmp_path: Path) -> None:
    write_agent(tmp_path, {"sleep": 100})
    (tmp_path / "twice.py").write_text(TASK)
    search = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert search.stdout is not None and search.stdout.readline() == "asked\n"
    search.kill()
    search.wait(60)
    run = open_run("twice", tmp_path)
    assert not any(p.operator.startswith("agent") for p in run.state.proposals.values())
    write_agent(tmp_path, submit(SKETCH))
    until(lambda: not run.worker, 60)
    state = run.work().wait(100).state
    made = [p for p in state.proposals.values() if p.operator == "agent:scripted/lineage"]
    assert [p.sketch for p in made] == [SKETCH] and state.evaluations[made[0].number].passed


def test_a_direction_that_a_person_edits_reaches_an_agent_that_works(tmp_path: Path) -> None:
    write_agent(tmp_path, {"sleep": 3}, STATUS, submit(SKETCH))
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off",
    )  # fmt: skip
    until(_agent_works, 60)
    run.direct("vectors along n only")
    run.wait(60)
    (exchange, *_) = (event.exchange for _, event in run._stream.read() if isinstance(event, Exchanged))
    assert any("A person says: vectors along n only" in s.text for s in exchange.steps if s.kind == "message")


def test_the_monitor_shows_what_an_agent_does_while_it_works(tmp_path: Path) -> None:
    write_agent(tmp_path, STATUS, {"sleep": 6}, submit(SKETCH))
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off",
    )  # fmt: skip

    def shown() -> list[str]:
        return [
            row["text"] for row in ledger(run.state) if row["name"].startswith("agent:scripted/lineage on candidate")
        ]

    until(lambda: any(text.startswith("search_status: ") for text in shown()), 60)
    run.wait(60)
    assert not shown() and run.state.evaluations


def player_of(run: Run) -> ModelOperator:
    """The agent that takes part in a run."""
    mix = assembled(run._stream, run.workspace, "", lambda: None, threading.Event()).vary
    assert isinstance(mix, Mix)
    player = mix.model("agent:scripted")
    assert player is not None
    return player


def test_an_agent_whose_answers_gain_nothing_is_redirected_by_the_plan(tmp_path: Path) -> None:
    write_agent(tmp_path)
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off", wait=True,
    )  # fmt: skip
    state, seed = run.state, next(iter(run.state.population()))
    apply_event(state, 10**6, RoundEnded(round=1, plan=Plan(text="Wide loads paid.")))
    player = player_of(run)
    ask = partial(player.brief, state, Request(0, (seed,)), "agent:scripted/lineage")
    assert "change course" not in ask().route.suggestion
    for number in (900, 901):
        state.proposals[number] = state.proposals[seed].model_copy(
            update={"number": number, "operator": "agent:scripted/lineage", "parents": (seed,)}
        )
        state.evaluations[number] = state.evaluations[seed].model_copy(update={"number": number, "passed": False})
    told = ask().route.suggestion
    assert "900 and 901 gained nothing" in told and "Wide loads paid." in told
    state.direction = "Try one row a core."
    assert "A person's notes say where to look" in ask().route.suggestion and "Try one row a core." in ask().notes


def test_a_pin_of_a_given_sketch_holds_in_each_answer_of_an_agent(tmp_path: Path) -> None:
    pinned = SKETCH.replace("load(X[m, n:n+BLOCK] -> x)", "load(X[m, n:n+BLOCK] -> x)  #: pin")
    broken, kept = SKETCH.replace("-> x)", "-> x, pad=0)"), pinned.replace("BLOCK = 64", "BLOCK = 32")
    write_agent(tmp_path, submit(broken), submit(kept))
    run = evolve(
        TASK, "cpp", name="twice", workspace=tmp_path, rounds=1, parallel=2, islands=1, score="model",
        vary="agent:scripted=0.5", memory="off", sketches=(pinned,), wait=True,
    )  # fmt: skip
    state = run.state
    given = next(number for number, proposal in state.proposals.items() if "#: pin" in proposal.sketch)
    player = player_of(run)
    asked = player.ask(state, Request(0, (given,)), "agent:scripted/lineage")()
    assert [design.sketch for design in asked.designs] == [kept, ""]
    assert "must stay" in asked.designs[1].why and "load(X[m, n:n+BLOCK] -> x)" in asked.designs[1].why


def test_a_shell_says_what_an_agent_is_and_what_it_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_agent(tmp_path, {"ask": "run make"}, {"ask": "run make"}, submit(SKETCH))
    (tmp_path / "twice.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    options = "--rounds 1 --parallel 2 --islands 1 --score model --vary agent:scripted=0.5"
    main(["evolve", "twice.py", "--dsl", "cpp", *options.split()])
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("it may read what you may") == 1 and "held by: " in told
    assert told.count("run make: never, no one is asked") == 1


@pytest.mark.parametrize("vary", ["agent:x", "agent:x=2", "rules=0.5", "agent:x=0.6,agent:y=0.6"])
def test_what_is_no_share_is_refused(tmp_path: Path, vary: str) -> None:
    with pytest.raises(EvolveError, match="vary"):
        evolve(TASK, "cpp", name="twice", workspace=tmp_path, vary=vary)


def test_an_unknown_agent_is_refused_before_the_search_begins(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="There is no agent 'absent'"):
        evolve(TASK, "cpp", name="twice", workspace=tmp_path, vary="agent:absent=0.5")
    assert not (tmp_path / ".kernellab" / "evolve").exists()
