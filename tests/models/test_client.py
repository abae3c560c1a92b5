"""What is sent, what is read, and how a request waits, is repeated, and is broken off."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kernellab.models import (
    THINKING,
    ChatModel,
    ChatReply,
    ChatRequest,
    ModelError,
    ModelFault,
    ModelSettings,
    open_model,
)
from kernellab.models.chat import WAITING
from kernellab.models.dialect import is_strict
from kernellab.models.exchanges import ChatMessage, Finish
from kernellab.models.faults import asked_pause
from kernellab.records import Role
from tests.models.fake_server import Act, Connection, FakeServer, answer, endless, refusing, silent, status, whole
from tests.models.fault_cases import HELLO, QUICK, SCHEMA
from tests.waiting import until

ASK = ChatRequest(HELLO)


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[Any]:
    """``served(act, ..., setting=...) -> (server, model)``."""
    servers = []

    def serve(*acts: Act, **given: Any) -> tuple[FakeServer, ChatModel]:
        server = FakeServer(*acts).__enter__()
        servers.append(server)
        settings = ModelSettings.load(base_url=server.url, **{"model": request.node.name, **QUICK, **given})
        return server, open_model("model", Role.CODER, settings)

    yield serve
    for server in servers:
        server.__exit__()


def test_settings_of_an_endpoint_reach_it(served: Any) -> None:
    server, model = served(
        answer("hello"), top_p=0.9, reasoning_effort="low", extra_body={"top_k": 20}, headers={"X-Team": "kernels"},
        organisation="org-1",
    )  # fmt: skip
    model.ask(ASK)
    (asked,) = server.requests
    assert (asked.body["top_p"], asked.body["reasoning_effort"], asked.body["top_k"]) == (0.9, "low", 20)
    assert (asked.headers["x-team"], asked.headers["openai-organization"]) == ("kernels", "org-1")


def test_a_refused_system_role_is_folded_into_the_first_message_from_then_on(served: Any) -> None:
    refused = status(400, "System role not supported")
    server, model = served(refusing(lambda body: body["messages"][0]["role"] == "system", refused, answer("hello")))
    for _ in range(2):
        assert model.ask(ASK).text == "hello"
    roles = [[message["role"] for message in request.body["messages"]] for request in server.requests]
    assert roles == [["system", "user"], ["user"], ["user"]]
    assert server.requests[1].body["messages"][0]["content"] == "You are brief.\n\nSay hello."


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"headers": {"Authorization": "Bearer x"}}, "name the key's variable in key_env"),
        ({"headers": {"X-Api-Key": "x"}}, "name the key's variable in key_env"),
        ({"extra_body": {"messages": []}}, "may not replace messages"),
        ({"headers": {"X-Team": "k\u00e4rnel"}}, "is no header"),
        ({"headers": {"X-Team": "a\nX-B: c"}}, "is no header"),
        ({"headers": {"X Team": "a"}}, "is no header"),
        ({"organisation": "\u00f6rg"}, "ASCII"),
    ],
)
def test_a_header_holds_no_key_and_a_body_replaces_nothing_of_ours(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        ModelSettings.load(base_url="http://localhost:1/v1", **given)


def test_messages_are_sent_as_they_are_so_that_prefixes_are_cached(served: Any) -> None:
    server, model = served(answer("hello"))
    model.ask(ASK)
    assert server.requests[0].body["messages"] == [message.model_dump() for message in HELLO]
    assert server.requests[0].path == "/v1/chat/completions"


def test_usage_counts_cached_and_reasoning_tokens_and_money(served: Any) -> None:
    price = {"input": 10, "output": 100, "cached": 1}
    _, model = served(answer("hello"), prices={"*": price})
    usage = model.ask(ASK).usage
    assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens, usage.reasoning_tokens) == (100, 64, 20, 5)
    assert usage.usd == pytest.approx((36 * 10 + 64 * 1 + 20 * 100) / 1e6)
    assert not usage.estimated


def test_a_server_without_a_count_is_counted_by_length_and_says_so(served: Any) -> None:
    _, model = served(answer("x" * 400, usage=None))
    usage = model.ask(ASK).usage
    assert usage.estimated and usage.output_tokens == 100 and usage.input_tokens > 0


def test_deepseeks_cached_tokens_are_found(served: Any) -> None:
    _, model = served(answer("hello", usage={"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}))
    assert model.ask(ASK).usage.cached_tokens == 8


@pytest.mark.parametrize(
    "act",
    [
        answer("hello", reasoning="hmm"),
        answer("hello", reasoning="hmm", field="reasoning"),
        answer("<think>hmm</think>\nhello", pieces=7),
        answer("hmm</think>hello"),
        answer("\n<thinking>hmm</thinking>hello"),
        whole("<think>hmm</think>hello"),
    ],
)
def test_reasoning_is_kept_apart_however_it_comes(served: Any, act: Act) -> None:
    reply = served(act)[1].ask(ASK)
    assert (reply.text, reply.reasoning, reply.finish) == ("hello", "hmm", Finish.STOP)


def test_a_think_block_in_the_middle_of_an_answer_stays(served: Any) -> None:
    text = "The template begins with <think> and ends with </think>."
    assert served(answer(text))[1].ask(ASK).text == text


def test_text_is_shown_whole_from_its_beginning_and_reasoning_before_it(served: Any) -> None:
    step = threading.Event()

    def act(link: Connection) -> None:
        link.open_stream()
        for delta in ({"reasoning_content": "hmm"}, {"content": "hel"}, {"content": "lo"}):
            link.delta(**delta)
            assert step.wait(10)
            step.clear()
        link.delta(finish="stop")
        link.done()

    shown: list[tuple[str, int]] = []

    def see(text: str) -> None:
        shown.append((text, threading.get_ident()))
        step.set()

    _, model = served(act, stall_s=10)
    reply = model.ask(ASK, on_text=see)
    assert [text for text, _ in shown] == [f"{THINKING}hmm", "hel", "hello"]
    assert {thread for _, thread in shown} == {threading.get_ident()}, "on the caller's thread"
    assert reply.text == "hello"


def test_an_error_of_the_listener_ends_the_request(served: Any) -> None:
    def see(text: str) -> None:
        raise RuntimeError("the widget is gone")

    server, model = served(silent("hel"), answer("hello"), stall_s=60)
    with pytest.raises(RuntimeError, match="widget is gone"):
        model.ask(ASK, on_text=see)
    assert model.ask(ASK).text == "hello", "its slot is free again"
    assert len(server.requests) == 2


@pytest.mark.parametrize("act", [silent(), silent("half"), endless("x"), status(503, "busy")])
def test_a_request_is_cancelled_whatever_the_server_does(served: Any, act: Act) -> None:
    # nothing else would end these within the test's time
    patience = {"first_token_s": 600, "stall_s": 600, "total_s": 600, "retries": 99, "retry_s": 30}
    server, model = served(act, answer("hello"), concurrency=1, max_reply_chars=10**9, **patience)
    cancel = threading.Event()
    # the server has taken the request: one that was cancelled before would leave the act to the next
    threading.Thread(target=lambda: until(lambda: server.requests) and cancel.set(), daemon=True).start()
    with pytest.raises(ModelError) as caught:
        model.ask(ASK, cancel=cancel)
    assert caught.value.kind is ModelFault.CANCELLED and caught.value.resumable
    server.released.set()
    assert model.ask(ASK).text == "hello"


def test_a_cancelled_request_keeps_what_had_come(served: Any) -> None:
    cancel = threading.Event()
    _, model = served(silent("half a ker"), stall_s=600)
    with pytest.raises(ModelError) as caught:
        model.ask(ASK, cancel=cancel, on_text=lambda text: cancel.set())
    reply = caught.value.reply
    assert isinstance(reply, ChatReply)
    assert (reply.text, reply.finish) == ("half a ker", Finish.ERROR)
    assert reply.usage.estimated and reply.usage.output_tokens > 0


def test_no_more_requests_run_at_a_time_than_the_settings_say(served: Any) -> None:
    arrived = threading.Semaphore(0)
    go = threading.Event()

    def act(link: Connection) -> None:
        arrived.release()
        go.wait(10)
        answer("hello")(link)

    server, model = served(act, concurrency=2, first_token_s=60, total_s=60)
    with ThreadPoolExecutor(6) as pool:
        replies = [pool.submit(model.ask, ASK) for _ in range(6)]
        assert arrived.acquire(timeout=10) and arrived.acquire(timeout=10)
        assert not arrived.acquire(timeout=0.3), "the third waits"
        go.set()
        assert [reply.result().text for reply in replies] == ["hello"] * 6
    assert server.most_at_once == 2


def test_waiting_for_a_slot_can_be_cancelled(served: Any) -> None:
    server, model = served(silent(), concurrency=1, first_token_s=600, total_s=600)
    first, second = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        asking = pool.submit(model.ask, ASK, cancel=first)
        try:
            until(lambda: len(server.requests) == 1)
            waiting = pool.submit(model.ask, ASK, cancel=second)
            second.set()
            with pytest.raises(ModelError, match="cancelled"):
                waiting.result(20)
            assert not asking.done(), "the slot is still taken"
        finally:
            first.set()
        with pytest.raises(ModelError, match="cancelled"):
            asking.result(20)
    assert len(server.requests) == 1


def test_attempts_that_broke_are_counted_in_what_the_request_cost(served: Any) -> None:
    def half(link: Connection) -> None:
        link.open_stream()
        link.delta(content="x" * 400)
        link.reset()

    _, model = served(half, answer("hello"))
    reply = model.ask(ASK)
    assert (reply.text, reply.attempts) == ("hello", 2)
    assert reply.usage.output_tokens == 20 + 100 and reply.usage.estimated


def test_what_an_endpoint_refuses_is_left_out_from_then_on(served: Any) -> None:
    refuse = status(400, "response_format json_schema is unavailable now")
    server, model = served(refusing(lambda body: "response_format" in body, refuse, answer('{"route": "coder"}')))
    asking = ChatRequest(HELLO, SCHEMA, "route")
    model.ask(asking)
    model.ask(asking)
    forms = [asked.body.get("response_format", {}).get("type") for asked in server.requests]
    assert forms == ["json_schema", "json_object", None, None]


def test_a_refusal_that_has_another_cause_is_not_put_down_to_the_schema(served: Any) -> None:
    server, model = served(status(400, "top_k must be positive"))
    asking = ChatRequest(HELLO, SCHEMA, "route")
    with pytest.raises(ModelError, match="top_k must be positive"):
        model.ask(asking)
    server.acts = [answer('{"route": "coder"}')]
    model.ask(asking)
    assert server.requests[-1].body["response_format"]["json_schema"]["name"] == "route"


def test_a_limit_that_is_too_large_is_reported_not_dropped(served: Any) -> None:
    server, model = served(status(400, "max_tokens is too large: 99. At most 16 are possible."), max_tokens=99)
    with pytest.raises(ModelError, match="max_tokens is too large"):
        model.ask(ASK)
    assert len(server.requests) == 1


def test_the_request_overrides_the_settings(served: Any) -> None:
    server, model = served(answer("hello"), temperature=0.7, max_tokens=100)
    model.ask(ASK)
    model.ask(ChatRequest(HELLO, max_tokens=5, temperature=0.0))
    sent = [(asked.body["temperature"], asked.body["max_tokens"]) for asked in server.requests]
    assert sent == [(0.7, 100), (0.0, 5)]


def sockets() -> int:
    """The sockets that this process has open, both ends of those to a server of the test's own."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # closed while the list is read
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
def test_no_connection_outlives_its_requests(served: Any) -> None:
    _, model = served(answer("warm"))
    model.ask(ASK)
    before = sockets()
    for _ in range(4):
        _, model = served(answer("hello"), whole("hi"), status(400, "no"), answer("x", finish="length"))
        for _ in range(4):
            with suppress(ModelError):
                model.ask(ASK)
        before += 1  # the server listens until the test ends
    until = time.monotonic() + 5
    while sockets() > before and time.monotonic() < until:
        time.sleep(0.02)
    assert sockets() <= before


def test_only_a_closed_schema_is_sent_as_strict() -> None:
    assert is_strict(SCHEMA)
    assert not is_strict({**SCHEMA, "additionalProperties": True})
    assert not is_strict({**SCHEMA, "required": []})
    assert not is_strict({**SCHEMA, "properties": {"route": {"type": "object", "properties": {"a": {}}}}})
    assert is_strict({"type": "object", "properties": {}, "required": [], "additionalProperties": False})


def test_retry_after_is_read_in_all_its_forms() -> None:
    assert asked_pause({"retry-after": "7"}) == 7
    assert asked_pause({"retry-after": "7", "retry-after-ms": "250"}) == 0.25
    assert asked_pause({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    far = asked_pause({"retry-after": "Wed, 21 Oct 2065 07:28:00 GMT"})
    assert far is not None and far > 1e8
    assert asked_pause({"retry-after": "soon"}) is None
    assert asked_pause({}) is None


def test_a_wait_for_the_next_try_says_why_and_how_long(served: Any) -> None:
    _, model = served(status(429, "slow", {"Retry-After": "1.2"}), answer("hello"))
    shown: list[str] = []
    assert model.ask(ASK, on_text=shown.append).text == "hello"
    waited = [text for text in shown if text.startswith(WAITING)]
    assert len(waited) >= 2 and "in 1 s." in waited[0] and "in 0 s." in waited[-1], shown
    assert shown[-1] == "hello"


def test_a_rate_limit_holds_back_every_request_to_that_endpoint(served: Any) -> None:
    server, model = served(status(429, "slow", {"Retry-After": "0.5"}), answer("hello"), concurrency=4)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(model.ask, ASK)
        while not server.requests:
            threading.Event().wait(0.01)
        threading.Event().wait(0.1)  # the refusal has arrived
        other = pool.submit(model.ask, ChatRequest((ChatMessage(role="user", content="me too"),)))
        threading.Event().wait(0.1)
        assert len(server.requests) == 1, "nobody asks while the server wants silence"
        assert first.result().text == other.result().text == "hello"
    assert first.result().attempts == 2 and other.result().attempts == 1
