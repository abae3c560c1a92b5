"""A plain endpoint's model calls tools within its turn, and answers; its bounds; an endpoint that takes none."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from session_parts import SKETCH, TASK

from kernellab.models import Budget, ChatReply, ChatRequest, ModelSettings, Talk
from kernellab.models.client import EndpointModel
from kernellab.models.dialect import _DIALECTS
from kernellab.models.exchanges import ChatMessage, Finish
from kernellab.models.keys import read_key
from kernellab.models.partial_reply import CallPieces, Partial
from kernellab.records import Role
from kernellab.session import TurnState, design
from kernellab.task import load_task
from kernellab.tools.context import Context
from kernellab.tools.desk import Desk
from kernellab.tools.function_calls import ToolModel
from kernellab.tools.records import Result
from kernellab.verifier.judge import turns
from tests.models.fake_server import Act, FakeServer, answer, status
from tests.waiting import until

RIGHT = f"Each row on its own.\n```sketch\n{SKETCH}```\n"


def calling(name: str, arguments: Any, id: str = "c1") -> Act:
    """A reply that calls one tool, its arguments in two pieces as servers stream them."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    call = [{"index": 0, "id": id, "type": "function", "function": function}]
    return answer("Let me look. ", finish="tool_calls", tool_calls=call)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    context = Context(tmp_path, bound=load_task(TASK, "twice"), folder=tmp_path)
    yield Desk(context, 3)
    context.close()


def ask(server: FakeServer, desk: Desk, budget: str = "", **settings: Any) -> ChatReply:
    chosen = ModelSettings(base_url=server.url, model="fake-1", retries=0, **settings)
    model = ToolModel(EndpointModel(chosen.endpoint(Role.DESIGNER), chosen), desk, Budget.parse(budget))
    return model.ask(ChatRequest((ChatMessage(role="user", content="Design it."),)))


def test_a_model_looks_and_answers_and_each_call_is_on_the_record(desk: Desk) -> None:
    gate = calling("gate_sketch", {"task": "twice", "sketch": SKETCH})
    with FakeServer(gate, answer(RIGHT)) as server:
        reply = ask(server, desk)
        first, second = (asked.body for asked in server.requests)
    assert reply.text == RIGHT and reply.finish is Finish.STOP
    assert [(s.title, s.result.split(":")[0]) for s in reply.steps] == [("gate_sketch", "right")]
    assert (reply.usage.input_tokens, reply.usage.tool_calls) == (200, 1)
    names = [tool["function"]["name"] for tool in first["tools"]]
    assert "gate_sketch" in names and not {"submit_answer", "begin_session", "submit_source"} & set(names)
    call, result = second["messages"][-2:]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "c1" and '"state":"right"' in result["content"]


def test_wrong_arguments_and_unknown_tools_come_back_with_a_remedy(desk: Desk) -> None:
    with FakeServer(calling("gate_sketch", "{"), calling("rm", {}), answer(RIGHT)) as server:
        reply = ask(server, desk)
        told = [asked.body["messages"][-1]["content"] for asked in server.requests[1:]]
    assert "the arguments are no JSON" in told[0] and "There is no tool 'rm'" in told[1] and "gate_sketch" in told[1]
    assert reply.text == RIGHT and reply.usage.requests == 3
    assert [(step.title, step.failed) for step in reply.steps] == [("gate_sketch", True), ("rm", True)]


@pytest.mark.parametrize(
    ("settings", "budget", "said"),
    [({}, "", "The 3 tool calls"), ({"tool_s": 1e-6}, "", "s of this turn's tools"),
     ({"tool_tokens": 100}, "", "tokens"), ({}, "tokens=150", "of the 150 tokens")],
)  # fmt: skip
def test_a_bound_ends_the_looking_and_the_model_answers(
    desk: Desk, settings: dict[str, Any], budget: str, said: str
) -> None:
    look = [calling("list_documents", {"folder": "language/"}) for _ in range(3 if not (settings or budget) else 1)]
    with FakeServer(*look, answer(RIGHT)) as server:
        reply = ask(server, desk, budget, **settings)
        last = server.requests[-1].body
    assert reply.text == RIGHT and "tools" not in last
    assert said in last["messages"][-1]["content"] and said in reply.steps[-1].title


def test_a_reply_of_any_number_of_calls_leaves_few_steps(desk: Desk) -> None:
    """Each is kept in the journal."""
    many = [
        {"index": n, "id": f"c{n}", "type": "function", "function": {"name": "list_documents", "arguments": "{}"}}
        for n in range(2000)
    ]
    with FakeServer(answer("", finish="tool_calls", tool_calls=many), answer(RIGHT)) as server:
        reply = ask(server, desk)
        sent = server.requests[-1].body["messages"]
    assert reply.text == RIGHT and len([s for s in reply.steps if s.kind == "tool"]) == desk.most + 1
    asked = next(one["tool_calls"] for one in sent if one.get("tool_calls"))
    assert [c["id"] for c in asked] == [one["tool_call_id"] for one in sent if one["role"] == "tool"]


def test_an_endpoint_without_tools_answers_at_once_and_it_is_noted(desk: Desk) -> None:
    refusal = status(400, "tools is not supported by this model", param="tools")
    with FakeServer(refusal, answer(RIGHT)) as server:
        reply = ask(server, desk)
        assert "tools" not in server.requests[-1].body
    _DIALECTS.clear()
    assert reply.text == RIGHT and "takes no tools for fake-1" in reply.steps[0].title


def test_a_session_with_tools_keeps_the_calls_in_its_journal(tmp_path: Path) -> None:
    check = calling("check_sketch", {"sketch": SKETCH})
    with FakeServer(check, answer(RIGHT)) as server:
        table = f'[models]\nbase_url = "{server.url}"\nmodel = "fake-1"\n'
        (tmp_path / "kernellab.toml").write_text(table)
        session = design(
            TASK, dsl="cpp", name="twice", workspace=tmp_path, tools=True, roles={"designer": "model"},
            options={"level": "T1"}, ablation=("gate",),
        )  # fmt: skip
        until(lambda: session.turns and session.turns[0].state is not TurnState.RUNNING, 120)
        session.stop()
    (exchange,) = session.state.exchanges("t1")
    assert session.turns[0].sketch == SKETCH and [s.title for s in exchange.steps] == ["check_sketch"]


def test_a_fault_of_a_tool_and_a_key_stay_out_of_the_turn(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = "a-key-of-nobody-1234567890"
    monkeypatch.setenv("DESK_KEY", key)
    assert read_key("DESK_KEY", None) == key

    def broken(*_: Any) -> Any:
        raise RuntimeError(f"it broke with {key}")

    monkeypatch.setattr("kernellab.tools.desk.call", broken)
    told = desk.text("gate_sketch", "{}")
    assert "it broke" in told and key not in told
    (step,) = desk.steps
    assert step.failed and "it broke" in step.result and key not in step.result
    desk.text("gate_sketch", "{")
    assert desk.used == 2


def test_the_longest_prompt_holds_with_tools_too(desk: Desk) -> None:
    chosen = ModelSettings(base_url="http://localhost:1", model="fake-1", prompt_tokens=3000)
    model = ToolModel(EndpointModel(chosen.endpoint(Role.DESIGNER), chosen), desk, Budget())
    assert Talk(model, Role.DESIGNER, lambda exchange: None).prompt_tokens == 3000


def test_calls_that_a_server_gives_one_place_are_told_apart_by_their_ids() -> None:
    partial = Partial(offered=True)
    for id, name, arguments in (("a", "lens", '{"x"'), (None, None, ": 1}"), ("b", "lens", "{}"), (None, None, " ")):
        call = SimpleNamespace(index=0, id=id, function=SimpleNamespace(name=name, arguments=arguments))
        partial.add(SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(tool_calls=[call]))]))
    assert list(partial.calls.values()) == [CallPieces("a", "lens", '{"x": 1}'), CallPieces("b", "lens", "{} ")]
    without, with_results = (partial.spent((), called) for called in ((), ({"role": "tool", "content": "y" * 4000},)))
    assert with_results.estimated and with_results.input_tokens > without.input_tokens + 900


def test_the_clock_is_free_for_the_judge_while_a_model_works_with_tools(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(turns.VARIABLE, f"all:{tmp_path / 'turns'}")
    free: list[bool] = []

    def look(*_: Any) -> Any:
        with (tmp_path / "turns").open() as other:
            try:
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free.append(False)
            else:
                free.append(True)
        return Result(summary="seen", next="")

    monkeypatch.setattr("kernellab.tools.desk.call", look)
    with FakeServer(calling("lens", {}), answer(RIGHT)) as server, turns.working(designing=True):
        look()
        ask(server, desk)
        look()
    assert free == [False, True, False]


def test_answers_of_a_turn_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is kept in the journal, and judged."""
    monkeypatch.setattr("kernellab.tools.desk.MOST_ANSWERS", 2)
    desk.several = True
    for words in ("one", "two", "two"):
        desk.text("submit_answer", json.dumps({"answer": words}))
    assert "which is the limit" in desk.text("submit_answer", '{"answer": "three"}')
    assert "at most 1000000 characters" in desk.text("submit_answer", json.dumps({"answer": "x" * 1_000_001}))
    assert "no Unicode text" in desk.text("submit_answer", '{"answer": "\\ud800"}')
    assert desk.answers == ["one", "two"]
