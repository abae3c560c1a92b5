"""What an agent tries against its own turn: the folder that it shares, the tools' server, a question after Stop."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernellab.errors import SessionError
from kernellab.session import TurnState
from kernellab.session.record.records import QuestionKind
from kernellab.tools.acp import agent as acp_agent
from tests.tools.test_agent_role import GATE, SKETCH, SUBMIT, Start, rested, started_by_the_agent
from tests.tools.test_agent_role import start as start  # a fixture
from tests.waiting import until

#: each file that the notebook writes to an agent's folder is made a link to what is the person's, the folder's own
#: place is filled with links, and a process waits to put them back
LINKS = """
import os, pathlib
victim = {victim!r}
for name in ("BRIEF.md", "AGENTS.md", "DOCUMENTS.md"):
    pathlib.Path(name).unlink(missing_ok=True)
    os.symlink(victim, name)
os.symlink(os.path.dirname(victim), "folder")
os.symlink("/", "root")
print(sorted(p.name for p in pathlib.Path(".").iterdir() if p.is_symlink()))
"""


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "dies"])
def test_links_in_its_folder_lead_no_write_and_no_removal_to_the_persons_files(
    start: Start, tmp_path: Path, ends: bool
) -> None:
    victim = tmp_path / "mine" / "victim.txt"
    victim.parent.mkdir()
    victim.write_text("the person's")
    link = {"try": LINKS.format(victim=str(victim))}
    session = start([link, {"exit": 3}] if ends else [link, GATE, SUBMIT], [link, SUBMIT])
    rested(session)
    told = str(session.state.exchanges(session.turns[0].id)[0].steps)
    assert "BRIEF.md" in told, "the links were made"
    session.stop()
    until(lambda: not started_by_the_agent(), 30)
    assert victim.read_text() == "the person's" and [p.name for p in victim.parent.iterdir()] == ["victim.txt"]


def test_an_agent_whose_tools_server_it_has_killed_ends_in_a_sentence(start: Start) -> None:
    """Over the standard streams the server is a process below the agent, which may end it."""
    kill = (
        "import os, psutil; me = psutil.Process().parents()[0]\n"
        "found = [p for p in me.children() if p.pid != os.getpid()]\n"
        "[p.kill() for p in found]; print('killed', len(found))"
    )
    session = start([GATE, {"try": kill}, GATE, {"say": "no answer"}], stdio=True)
    rested(session)
    turn = session.turns[0]
    told = str(session.state.exchanges(turn.id)[0].steps)
    assert "killed 1" in told
    assert turn.state in (TurnState.FAILED, TurnState.DONE) and "Traceback" not in (turn.error or "")
    if turn.state is TurnState.FAILED:
        assert turn.error and turn.error.endswith((".", "?"))
    until(lambda: not started_by_the_agent(), 30)


def test_who_asks_after_stop_is_not_heard(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent does not hear that its turn is cancelled and asks; it has been ended, and no question is left."""
    asked: list[str] = []
    real = acp_agent.Client.request_permission

    async def request(self: acp_agent.Client, *given: object, **named: object) -> object:
        asked.append("asked")
        return await real(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(acp_agent.Client, "request_permission", request)
    session = start([{"think": "now"}, {"sleep": 0.5}, {"ask": "run make"}, SUBMIT], approve="routing")
    until(lambda: "now" in session.to_dict()["partial"], 60)
    session.stop()
    time.sleep(2.0)
    assert session.turns[0].state is TurnState.STOPPED and not started_by_the_agent()
    question = session.state.question
    assert question is None or question.kind is not QuestionKind.PERMISSION
    assert not asked or session.turns[0].sketch != SKETCH


def test_an_answer_to_a_question_of_a_stopped_turn_permits_nothing(start: Start) -> None:
    session = start([{"ask": "run make"}, SUBMIT], approve="routing")
    until(lambda: session.state.question is not None, 120)
    assert session.state.question is not None and session.state.question.kind is QuestionKind.PERMISSION
    card = session.state.question.id
    session.stop()
    until(lambda: session.turns[0].state is TurnState.STOPPED, 30)
    with pytest.raises(SessionError):
        session.approve(card=card)
    assert session.turns[0].state is TurnState.STOPPED and session.turns[0].sketch != SKETCH
    until(lambda: not started_by_the_agent(), 5)
