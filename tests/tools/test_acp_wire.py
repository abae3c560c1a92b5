"""An agent that keeps to no protocol ends in a sentence: it fills neither the notebook's memory nor its output."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from session_parts import TASK

from kernellab.errors import ModelError, ModelFault
from kernellab.models import Budget, ChatReply, ChatRequest
from kernellab.models.exchanges import ChatMessage
from kernellab.options.agents import AgentOptions
from kernellab.task import load_task
from kernellab.tools.acp.agent import AgentModel
from kernellab.tools.context import Context
from kernellab.tools.desk import Desk
from tests.tools.raw_agent import ANSWERS, FLOODS, ONCE

pytest.importorskip("acp")
pytest.importorskip("mcp")

AGENT = Path(__file__).with_name("raw_agent.py")
#: bytes by which the notebook's process may grow while an agent floods it
MOST = 300 << 20


class Turn:
    """One prompt to an agent with a fault, the reply or the error, and by how many bytes the process grew."""

    def __init__(self, folder: Path, fault: str, seconds: float = 60, budget: Budget | None = None) -> None:
        own = folder / "agent"
        own.mkdir()
        desk = Desk(Context(folder, bound=load_task(TASK, "twice"), folder=own), 10)
        options = AgentOptions(command=(sys.executable, str(AGENT), fault), minutes=seconds / 60)
        self.reply: ChatReply | None = None
        self.error: ModelError | None = None
        ended, before = threading.Event(), psutil.Process().memory_info().rss
        self.grown = 0

        def watch() -> None:
            while not ended.wait(0.05):
                self.grown = max(self.grown, psutil.Process().memory_info().rss - before)

        watching = threading.Thread(target=watch)
        watching.start()
        model = AgentModel("raw", options, desk, budget or Budget(), lambda title, detail: "once")
        began = time.monotonic()
        try:
            self.reply = model.ask(ChatRequest(messages=(ChatMessage(role="user", content="Design it."),)))
        except ModelError as error:
            self.error = error
        finally:
            model.close()
            ended.set()
            watching.join()
            self.seconds = time.monotonic() - began


@pytest.mark.parametrize("fault", FLOODS)
def test_a_flood_fills_neither_memory_nor_output(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # who asks and reads no answer waits for its own end; all else is too much after some seconds
    waits = fault == "requests"
    turn = Turn(tmp_path, fault, seconds=4 if waits else 60)
    assert turn.error is not None
    assert turn.error.kind is (ModelFault.STALLED if waits else ModelFault.BUDGET), str(turn.error)
    assert turn.grown < MOST and turn.seconds < 40
    assert caplog.text == ""


@pytest.mark.parametrize("fault", [name for name in ONCE if "cost" not in name])
def test_what_is_no_message_is_left_out(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(tmp_path, fault)
    assert turn.error is None, str(turn.error)
    assert turn.reply is not None and turn.reply.text == "the answer"
    assert caplog.text == ""


@pytest.mark.parametrize("fault", ANSWERS)
def test_an_answer_in_another_form_is_a_sentence(fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turn = Turn(tmp_path, fault)
    assert turn.error is not None and turn.error.kind in (ModelFault.SERVER, ModelFault.CONFIG)
    told = str(turn.error)
    assert "agent raw" in told and "pydantic" not in told and "\x1b" not in told and len(told) < 600
    assert turn.seconds < 40 and caplog.text == ""


@pytest.mark.parametrize("fault", [name for name in ONCE if "cost" in name])
def test_a_cost_that_is_none_frees_no_budget(fault: str, tmp_path: Path) -> None:
    turn = Turn(tmp_path, fault, budget=Budget(usd=1))
    assert turn.error is not None and turn.error.kind is ModelFault.BUDGET
    assert turn.error.reply is not None and turn.error.reply.usage.usd is None
