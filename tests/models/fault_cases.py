"""Every fault that an endpoint can have, and the state that it ends in. As a script it prints the table.

``.venv/bin/python tests/models/fault_cases.py`` plays each against the loopback server through a :class:`Talk`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernellab.models import Budget, ChatReply, ModelError, ModelSettings, Talk, open_model
from kernellab.models.exchanges import ChatMessage, Exchange
from kernellab.records import Role
from kernellab.session.turn.fallback import first_answer
from tests.models.fake_server import (
    Act,
    Asked,
    FakeServer,
    answer,
    cut,
    endless,
    events,
    raw,
    refusing,
    silent,
    status,
    whole,
)

QUICK = {"retries": 2, "retry_s": 0.01, "first_token_s": 5.0, "stall_s": 0.4, "total_s": 20.0}
#: for servers that say nothing; a busy machine may be slower than that with any other
IMPATIENT = {"first_token_s": 0.4}
SCHEMA = {
    "type": "object", "properties": {"route": {"enum": ["coder", "designer"]}}, "required": ["route"],
    "additionalProperties": False,
}  # fmt: skip
HELLO = (ChatMessage(role="system", content="You are brief."), ChatMessage(role="user", content="Say hello."))
KEY = "sk-loopback-0123456789abcdef"
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake-1"}


@dataclass
class Case:
    """``kind`` is "" where an answer comes after all; ``attempts`` counts the requests that the server saw."""

    fault: str
    acts: list[Act]
    kind: str
    attempts: int
    resumable: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    as_json: bool = False
    #: the role asks once more, in a second exchange
    repaired: bool = False
    #: applied to the server's address
    address: Callable[[str], str] = str
    #: what the talk may spend
    budget: str = ""


def _echo_key(asked: Any) -> None:
    """A server that quotes what it was sent."""
    sent = asked.handler.headers["authorization"]
    masked = f"{KEY[:8]}***************{KEY[-4:]}"
    status(401, f"Incorrect API key provided: {masked}; header was {sent}", {"X-Echo": sent})(asked)


FINE = answer("hello")
_SAID = {**_CHUNK, "choices": [{"index": 0, "delta": {"content": "half a ker"}, "finish_reason": None}]}
FILTERED = {
    "error": {"message": "The response was filtered by the content management policy", "code": "content_filter"}
}
QUOTA = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
BUSY = {"error": {"message": "Rate limit reached", "code": 429}}
ERROR = {"error": {"message": "upstream fell over", "code": 502}}
CASES = [
    Case("401 wrong key", [status(401, "Incorrect API key provided", code="invalid_api_key")], "auth", 1),
    Case("401 that quotes the key", [_echo_key], "auth", 1),
    Case("403 not allowed", [status(403, "Model not enabled for this project")], "auth", 1),
    Case("407 of a proxy", [status(407, "Proxy Authentication Required")], "auth", 1),
    Case("402 no credit", [status(402, "Insufficient Balance")], "rate-limit", 1),
    Case("429 quota used up", [status(429, "You exceeded your current quota")], "rate-limit", 1),
    Case("429, Retry-After 0.1, then fine", [status(429, "slow", {"Retry-After": "0.1"}), FINE], "", 2),
    Case("429, Retry-After 3600", [status(429, "slow", {"Retry-After": "3600"})], "rate-limit", 1, True),
    Case("429 for ever", [status(429, "slow")], "rate-limit", 3, True),
    Case("500 once, then fine", [status(500, "oops"), FINE], "", 2),
    Case("500 for ever", [status(500, "oops")], "server", 3, True),
    Case("503 with a web page", [raw("<html>busy</html>", "text/html", 503)], "server", 3, True),
    Case("400 context overflow", [status(400, "maximum context length is 8192")], "context", 1),
    Case("413 too large", [status(413, "payload too large")], "context", 1),
    Case("400 prompt filtered", [status(400, "content management policy", code="content_filter")], "filtered", 1),
    Case("403 of a proxy", [raw("<html>Access denied</html>", "text/html", 403)], "garbage", 1, True),
    Case("404 of a web server", [raw("<html>Not Found</html>", "text/html", 404)], "garbage", 1, True),
    Case("a stream without choices", [events([{**_CHUNK, "choices": []}] * 2)], "garbage", 1, True),
    Case("plain text instead", [raw("Welcome to the gateway", "text/plain")], "garbage", 1, True),
    Case("a completion without choices", [raw('{"choices": []}', "application/json")], "garbage", 1, True),
    Case("system role refused, then folded", [refusing(lambda body: body["messages"][0]["role"] == "system",
                                                       status(400, "System role not supported"), FINE)], "", 2),
    Case("system role refused by a template", [refusing(lambda body: body["messages"][0]["role"] == "system",
         status(500, "Conversation roles must alternate user/assistant/user"), FINE)], "", 2),
    Case("reasoning_effort refused", [refusing(lambda body: "reasoning_effort" in body,
         status(400, "Unrecognized request argument supplied: reasoning_effort"), FINE)],
         "", 2, False, {"reasoning_effort": "low"}),
    Case("400 unknown setting", [status(400, "top_k must be positive")], "config", 1),
    Case("400 wrong value", [status(400, "Invalid value: 'ultra'.", param="reasoning_effort")], "config", 1,
         settings={"reasoning_effort": "ultra"}),
    Case("422 extra_body", [status(422, "[{'loc': ('body', 'top_k'), 'msg': 'Extra inputs are not permitted'}]")],
         "config", 1, settings={"extra_body": {"top_k": 20}}),
    Case("401 no such organisation", [status(401, "No such organization: org-1.")], "auth", 1,
         settings={"organisation": "org-1"}),
    Case("404 no such model", [status(404, "The model does not exist")], "config", 1),
    Case("307 redirect elsewhere", [status(307, "", {"Location": "http://192.0.2.1/v1"})], "config", 1),
    Case("finish: length", [answer("half a ker", finish="length")], "truncated", 1),
    Case("finish: content_filter", [answer("I", finish="content_filter")], "filtered", 1),
    Case("refusal", [answer(refusal="I cannot help with that.")], "filtered", 1),
    Case("empty reply", [answer("")], "empty", 1, True),
    Case("blank reply", [answer(" \n")], "empty", 1, True),
    Case("reasoning and no answer", [answer("", reasoning="Let me think.")], "empty", 1, True),
    Case("only a <think> block", [answer("<think>Let me think.</think>\n")], "empty", 1, True),
    Case("a <think> block that does not end", [answer("<think>Let me", finish="length")], "truncated", 1),
    Case(
        "tool call that was not offered",
        [answer("hello", finish="tool_calls", tool_calls=[{"index": 0, "id": "t", "type": "function",
                                                          "function": {"name": "shell", "arguments": "{}"}}])],
        "garbage", 1, True,
    ),
    Case("finish: an unknown word", [answer("hello", finish="insufficient_system_resource")], "server", 3, True),
    Case("no first token", [silent()], "stalled", 2, True, IMPATIENT),
    Case("slow first token, then fine", [silent(), FINE], "", 2, False, IMPATIENT),
    Case("silence in the middle", [silent("half a ker")], "stalled", 2, True),
    Case("never done", [endless("x")], "stalled", 1, True, {"total_s": 0.6}),
    Case("huge reply", [endless("x" * 1000)], "truncated", 1, False, {"max_reply_chars": 50_000}),
    Case("stream without an end, then fine", [cut("half a ker"), FINE], "", 2),
    Case("stream without an end", [cut("half a ker")], "network", 3, True),
    Case("connection lost in the stream", [cut("half a ker", hard=True)], "network", 3, True),
    Case("no server listens", [FINE], "network", 0, True, address=lambda url: url.replace(url.split(":")[2], "9/v1")),
    Case("https where http is spoken", [FINE], "network", 0, True, address=lambda url: url.replace("http:", "https:")),
    Case("a web page instead", [raw("<html>Welcome</html>", "text/html")], "garbage", 1, True),
    Case("other JSON instead", [raw('{"hello": "world"}', "application/json")], "garbage", 1, True),
    Case("broken JSON instead", [raw('{"choices": [', "application/json")], "garbage", 1, True),
    Case("error as JSON with 200", [raw(json.dumps(ERROR), "application/json")], "server", 3, True),
    Case("stream of no JSON", [events(["not json at all"])], "garbage", 1, True),
    Case("stream of odd chunks", [events([{}, [], 7, "null", {"choices": None}])], "garbage", 1, True),
    Case("error inside the stream", [events([{**_CHUNK, "choices": []}, ERROR])], "server", 3, True),
    Case("filtered in the middle", [answer("half a ker", finish="content_filter")], "filtered", 1),
    Case("a filter's error inside the stream", [events([{**_CHUNK, "choices": []}, FILTERED])], "filtered", 1),
    Case("quota used up inside the stream", [events([_SAID, QUOTA])], "rate-limit", 1),
    Case("429 inside the stream, then fine", [events([_SAID, BUSY]), FINE], "", 2),
    Case("429 inside the stream for ever", [events([_SAID, BUSY])], "rate-limit", 3, True),
    Case("a budget that the request does not fit", [FINE], "budget", 0, budget="tokens=150"),
    Case("a budget reached in the middle", [answer("half a ker", finish="length")], "truncated", 1,
         budget="tokens=1000"),
    Case("a budget reached in the middle, limit ignored", [endless("x" * 100)], "truncated", 1, budget="tokens=1000"),
    Case("no usage field", [answer("hello", usage=None)], "", 1),
    Case("server that does not stream", [whole("hello")], "", 1),
    Case("JSON in prose", [answer('Sure!\n```json\n{"route": "coder",}\n```\nDone.')], "", 1, as_json=True),
    Case("wrong, then right JSON", [answer('{}'), answer('{"route": "coder"}')], "", 2, False, {}, True, True),
    Case("wrong JSON for ever", [answer('{"route": "pub"}')], "garbage", 2, True, {}, True, True),
    Case("no JSON for ever", [answer("I would say the coder.")], "garbage", 2, True, {}, True, True),
    Case(
        "response_format refused",
        [refusing(lambda body: "response_format" in body, status(400, "response_format is not supported"),
                  answer('{"route": "coder"}'))],
        "", 3, as_json=True,
    ),
    Case(
        "max_tokens refused for its newer name",
        [refusing(lambda body: "max_tokens" in body,
                  status(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."), FINE)],
        "", 2, False, {"max_tokens": 99},
    ),
    Case(
        "temperature refused",
        [refusing(lambda body: "temperature" in body,
                  status(400, "Unsupported value: 'temperature' does not support 0.2 with this model."), FINE)],
        "", 2, False, {"temperature": 0.2},
    ),
]  # fmt: skip


@dataclass
class Outcome:
    reply: ChatReply | None
    value: dict[str, Any] | None
    error: ModelError | None
    records: list[Exchange]
    requests: list[Asked]
    #: the same talk, after the server was fixed
    fixed: ChatReply | None


@contextmanager
def played(case: Case) -> Iterator[Outcome]:
    """Ask once through a Talk while the fault lasts, and once after it is fixed."""
    with FakeServer(*case.acts) as server:
        given = {**QUICK, **case.settings, "key_env": "KERNELLAB_MODEL_KEY"}
        settings = ModelSettings.load(base_url=case.address(server.url), model=f"model of {case.fault}", **given)
        records: list[Exchange] = []
        budget = Budget.parse(case.budget) if case.budget else None
        talk = Talk(open_model("model", Role.CODER, settings), Role.CODER, records.append, budget)
        reply = value = error = fixed = None
        try:
            if case.as_json:
                value, reply = talk.ask_json("route", HELLO, SCHEMA)
            else:
                reply = talk.ask("code", HELLO)
        except ModelError as raised:
            error = raised
        recorded, asked = list(records), list(server.requests)
        server.acts = [FINE]
        if case.address is str and budget is None:
            talk.model = open_model("model", Role.CODER, settings.model_copy(update={"total_s": 20.0}))
            fixed = talk.ask("code", HELLO)
        yield Outcome(reply, value, error, recorded, asked, fixed)


def in_general(case: Case, text: str) -> str:
    """A message without what differs from one run to the next: the address, the model's name, counts."""
    text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
    text = text.replace(f"model of {case.fault}", "MODEL").replace("fake-1", "MODEL")
    return re.sub(r"\b\d+(?= tokens| of tokens=)", "N", text).replace("|", "\\|")


def table() -> str:
    """What a user sees of each fault that no repeated request ends, as a Markdown table; for docs/how-to/models.md."""
    rows = ["| Fault | Message | What to do |", "|---|---|---|"]
    for case in CASES:
        with played(case) as outcome:
            if (error := outcome.error) is not None:
                rows.append(f"| {case.fault} | {in_general(case, error.message)} | {in_general(case, error.remedy)} |")
    return "\n".join(rows).replace("<think>", "`<think>`")


def answers_after(case: Case) -> str:
    """Who answers a role played by ``model:A>model:B`` where A's endpoint has the fault: A, B, or nobody."""
    with FakeServer(*case.acts) as faulty, FakeServer(answer('{"route": "coder"}')) as fine:
        addresses = {"model:A": case.address(faulty.url), "model:B": fine.url}

        def ask(player: str) -> str:
            given = {**QUICK, **(case.settings if player == "model:A" else {}), "key_env": "KERNELLAB_MODEL_KEY"}
            settings = ModelSettings.load(base_url=addresses[player], model=f"{player} {case.fault}", **given)
            budget = Budget.parse(case.budget) if case.budget and player == "model:A" else None
            talk = Talk(open_model("model", Role.CODER, settings), Role.CODER, lambda exchange: None, budget)
            talk.ask_json("route", HELLO, SCHEMA) if case.as_json else talk.ask("code", HELLO)
            return player

        try:
            return first_answer("model:A>model:B", ask).answer.removeprefix("model:")
        except ModelError:
            return "nobody"


def main() -> None:
    import os

    os.environ["KERNELLAB_MODEL_KEY"] = KEY
    print("| fault | requests | state | as expected | resumable | answers of A>B | sentence and remedy |")
    print("|---|---|---|---|---|---|---|")
    right, answered = 0, Counter[str]()
    for case in CASES:
        who = answers_after(case)
        answered[who] += 1
        with played(case) as outcome:
            error = outcome.error
            state = error.kind.value if error else "answered"
            again = ("yes" if error.resumable else "after a change") if error else ""
            good = state == (case.kind or "answered") and len(outcome.requests) == case.attempts
            right += good
            print(
                f"| {case.fault} | {len(outcome.requests)} | {state} | {'yes' if good else 'NO'} | {again} | {who} "
                f"| {error or ''} |"
            )
    said = ", ".join(f"{who} {count}" for who, count in sorted(answered.items()))
    print(f"\n{right} of {len(CASES)} faults end in their state; of a list of two models, who answers: {said}")


if __name__ == "__main__":
    main()
