"""A role's line to its model: every request is recorded, counted and checked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from kernellab.models import Budget, ChatReply, ModelError, ModelFault, ModelSettings, Talk, open_model
from kernellab.models.exchanges import ChatMessage, Exchange, Finish, Section
from kernellab.records import Role
from tests.models.fake_server import Act, FakeServer, answer, silent, status
from tests.models.fault_cases import HELLO, QUICK, SCHEMA


class Line:
    """A talk with a server behind it, until the test ends."""

    opened: ClassVar[list[FakeServer]] = []

    def __init__(
        self, *acts: Act, budget: Budget | None = None, cancel: threading.Event | None = None, **given: object
    ) -> None:
        self.server = FakeServer(*acts).__enter__()
        self.opened.append(self.server)
        settings = ModelSettings.load(base_url=self.server.url, model="fake", **{**QUICK, **given})
        self.records: list[Exchange] = []
        model = open_model("model", Role.DESIGNER, settings)
        self.talk = Talk(model, Role.DESIGNER, self.records.append, budget, cancel)

    def ask(self) -> ChatReply:
        return self.talk.ask("design", HELLO)


def test_a_prompt_that_had_to_be_made_smaller_is_told() -> None:
    line = Line(status(400, "maximum context length is 8192"), answer("yes"))
    with pytest.raises(ModelError):
        line.ask()
    line.ask()
    assert line.records[0].warning == ""
    assert "was too long for fake-1" in line.records[1].warning and "prompt_tokens" in line.records[1].warning
    fits = Line(answer("yes"))
    fits.ask()
    assert fits.records[0].warning == ""


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while Line.opened:
        Line.opened.pop().__exit__()


def test_an_exchange_holds_the_request_the_reply_and_why() -> None:
    line = Line(answer("hello", reasoning="hmm"), prices={"fake": {"input": 1, "output": 1}})
    sections = (Section(name="task", source="the cell", tokens=7),)
    line.talk.ask("design", HELLO, sections, SCHEMA, "route")
    (kept,) = line.records
    assert (kept.role, kept.purpose, kept.model) == (Role.DESIGNER, "design", "fake-1")
    assert (kept.messages, kept.sections, kept.schema_) == (HELLO, sections, SCHEMA)
    assert (kept.reply, kept.reasoning, kept.finish, kept.error) == ("hello", "hmm", Finish.STOP, "")
    assert kept.usage.usd == pytest.approx(120e-6) and kept.usage.seconds > 0 and kept.started > 1e9
    assert Exchange.model_validate_json(kept.model_dump_json()) == kept


@pytest.mark.parametrize(
    ("act", "finish", "reply"),
    [
        (answer("half", finish="length"), Finish.TRUNCATED, "half"),
        (answer("no", finish="content_filter"), Finish.FILTERED, "no"),
        (answer(""), Finish.EMPTY, ""),
        (status(401, "wrong key"), Finish.ERROR, ""),
        (silent("half"), Finish.ERROR, "half"),
    ],
)
def test_a_failed_exchange_is_recorded_with_what_had_come(act: Act, finish: Finish, reply: str) -> None:
    line = Line(act, retries=0)
    with pytest.raises(ModelError) as caught:
        line.ask()
    (kept,) = line.records
    assert (kept.finish, kept.reply) == (finish, reply)
    assert kept.error == f"{caught.value.kind.value}: {caught.value.message}"


def test_a_request_that_does_not_fit_is_not_sent() -> None:
    budget = Budget(tokens=440)
    line = Line(answer("hello"), budget=budget)
    line.ask()
    line.ask()
    with pytest.raises(ModelError, match=r"takes about 20\d tokens, and 200 of tokens=440 are left") as caught:
        line.ask()  # 240 were spent; a short reply to it takes 200
    assert caught.value.kind is ModelFault.BUDGET
    assert len(line.server.requests) == len(line.records) == 2, "what was not asked is not recorded"


def test_a_seed_reaches_the_endpoint_and_none_is_sent_unasked() -> None:
    for given in ({"seed": 7}, {}):
        line = Line(answer("hello"), **given)
        line.ask()
        assert line.server.requests[0].body.get("seed") == given.get("seed")


def test_a_failed_request_counts_what_it_cost() -> None:
    line = Line(answer("half", finish="length"), budget=Budget(tokens=300))
    for kind in (ModelFault.TRUNCATED, ModelFault.BUDGET):
        with pytest.raises(ModelError) as caught:
            line.ask()
        assert caught.value.kind is kind


def test_silence_after_the_first_token_is_a_stall_however_long_the_first_may_take() -> None:
    line = Line(silent("half a ker"), retries=0, first_token_s=300.0, stall_s=0.4, total_s=6.0)
    with pytest.raises(ModelError, match="sent nothing more") as caught:
        line.ask()
    assert caught.value.kind is ModelFault.STALLED


def test_a_budget_in_dollars_needs_a_price() -> None:
    line = Line(answer("hello"), budget=Budget(usd=1))
    with pytest.raises(ModelError, match=r"price of .* is not known"):
        line.ask()
    assert not line.server.requests, "no request is paid before that is said"


def test_a_server_that_counts_far_fewer_tokens_than_were_sent_is_warned_of() -> None:
    long = (ChatMessage(role="user", content="word " * 6_000),)
    counted = {"prompt_tokens": 2_048, "completion_tokens": 5, "total_tokens": 2_053}
    line = Line(answer("hello", usage=counted))
    line.talk.ask("design", long)
    assert "counted 2,048 tokens" in line.records[0].warning and "num_ctx" in line.records[0].warning
    whole = Line(answer("hello", usage={**counted, "prompt_tokens": 6_100}))
    whole.talk.ask("design", long)
    short = Line(answer("hello"))
    short.ask()
    unknown = Line(answer("hello", usage=None))
    unknown.talk.ask("design", long)
    assert not any(one.records[0].warning for one in (whole, short, unknown))


def test_budgets_stop_a_repair_too() -> None:
    line = Line(answer("no JSON here"), budget=Budget(tokens=300))
    with pytest.raises(ModelError) as caught:
        line.talk.ask_json("route", HELLO, SCHEMA)
    assert caught.value.kind is ModelFault.BUDGET and len(line.records) == 1


def test_a_cancelled_talk_asks_nothing_more() -> None:
    cancel = threading.Event()
    cancel.set()
    line = Line(answer("hello"), cancel=cancel)
    with pytest.raises(ModelError) as caught:
        line.ask()
    assert caught.value.kind is ModelFault.CANCELLED and line.server.requests == []


def test_a_cancelled_exchange_is_recorded_as_cancelled() -> None:
    cancel = threading.Event()
    line = Line(silent("half"), cancel=cancel, stall_s=600)
    line.talk._on_text = lambda text: cancel.set()
    with pytest.raises(ModelError):
        line.ask()
    assert [(kept.finish, kept.reply) for kept in line.records] == [(Finish.CANCELLED, "half")]


def test_what_breaks_off_for_another_reason_is_recorded_too() -> None:
    line = Line(silent("half"), stall_s=600)

    def gone(text: str) -> None:
        raise RuntimeError("the widget is gone")

    line.talk._on_text = gone
    with pytest.raises(RuntimeError):
        line.ask()
    assert [(kept.finish, kept.error) for kept in line.records] == [(Finish.ERROR, "RuntimeError: the widget is gone")]


def test_a_wrong_form_goes_back_with_its_fault_behind_the_same_prompt() -> None:
    line = Line(answer('{"route": "pub"}'), answer('{"route": "coder"}'))
    value, reply = line.talk.ask_json("route", HELLO, SCHEMA)
    assert value == {"route": "coder"} and reply.text == '{"route": "coder"}'
    first, second = line.records
    assert second.messages[: len(HELLO)] == first.messages == HELLO
    assert second.messages[-2].content == '{"route": "pub"}'
    assert "'pub' is not one of" in second.messages[-1].content and "coder" in second.messages[-1].content
