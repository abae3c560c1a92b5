"""An agent as an operator of a search: it gets the lineage, its share of the proposals, and the bandit's credit."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from kernellab.errors import EvolveError, SessionError
from kernellab.evolve import evolve
from kernellab.evolve.records import Exchanged
from kernellab.evolve.vary.bandit import arms, order
from kernellab.records import Author

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


def write_agent(folder: Path) -> None:
    assert importlib.util.find_spec("mcp")
    submit = {"tool": "submit_answer", "with_": {"answer": f"Wider.\n```sketch\n{SKETCH}```\n"}}
    status = {"tool": "search_status", "with_": {"run": "twice"}, "loud": 1}
    (folder / "script.json").write_text(json.dumps([[{"heard": 0}, status, submit]]))
    command = json.dumps([sys.executable, str(AGENT), str(folder / "script.json")])
    (folder / "kernellab.toml").write_text(f"[agents.scripted]\ncommand = {command}\n")


def test_an_agent_varies_candidates_by_their_lineage_and_is_credited(tmp_path: Path) -> None:
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
    # below its share it is the first to be asked, above it the bandit decides
    operators = ["rules:a", "agent:scripted/lineage"]
    assert order(run.state, operators, ["rules:a"] * 9)[0] == "agent:scripted/lineage"


@pytest.mark.parametrize("vary", ["agent:x", "agent:x=2", "rules=0.5", "agent:x=0.6,agent:y=0.6"])
def test_what_is_no_share_is_refused(tmp_path: Path, vary: str) -> None:
    with pytest.raises(EvolveError, match="vary"):
        evolve(TASK, "cpp", name="twice", workspace=tmp_path, vary=vary)


def test_an_unknown_agent_is_refused_before_the_search_begins(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="There is no agent 'absent'"):
        evolve(TASK, "cpp", name="twice", workspace=tmp_path, vary="agent:absent=0.5")
    assert not (tmp_path / ".kernellab" / "evolve").exists()
