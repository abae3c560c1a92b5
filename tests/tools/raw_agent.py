"""An agent that keeps to no protocol: ``python raw_agent.py FAULT``. It speaks JSON lines itself."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

UPDATE = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}\n'
COST = UPDATE % '{"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":%s,"currency":"USD"}}'
ABLE = {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}}
#: what each fault sends without end at a prompt
FLOODS = {
    "requests": '{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file"}\n',
    "notifications": '{"jsonrpc":"2.0","method":"x/\\u001b[31m"}\n',
    "no JSON": "not json \x1b[2J\n",
    "unknown updates": UPDATE % '{"sessionUpdate":"another"}',
    "a line without an end": "x" * 50,
    "empty lines": "\n",
    "answers": '{"jsonrpc":"2.0","id":99999,"result":{}}\n',
}
#: what is sent once, before a proper end of the turn
ONCE = {
    "a list": "[1, 2]\n",
    "an id that is a list": '{"jsonrpc":"2.0","id":[1],"result":1}\n',
    "levels": '{"a":' * 200_000 + "1" + "}" * 200_000 + "\n",
    "a notification": '{"jsonrpc":"2.0","method":"x/\\u001b[31mred","params":{}}\n{{{\n',
    "a cost of -5": COST % "-5.0",
    "no cost": COST % "NaN",
    "an endless cost": COST % "1e999",
}
#: the answer to a method in another form than the protocol's
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "greets with a list": ("initialize", {"result": [1, 2]}),
    "greets with an error of another form": ("initialize", {"error": "\x1b[2Jboom"}),
    "refuses in escapes": ("initialize", {"error": {"code": -32000, "message": "\x1b[2J" + "no" * 10_000}}),
    "speaks another version": ("initialize", {"result": {**ABLE, "protocolVersion": 99}}),
    "has no session": ("session/new", {"result": {"sessionId": None}}),
    "stops for no reason": ("session/prompt", {"result": {"stopReason": "tired"}}),
}


def say(text: str) -> None:
    os.write(1, text.encode())


def at_a_prompt(fault: str, answer: Callable[[dict[str, Any]], None]) -> None:
    while fault in FLOODS:
        say(FLOODS[fault] * 1000)
    if fault == "errors":
        while True:
            os.write(2, b"e" * 100_000)
    say(ONCE.get(fault, ""))
    say(UPDATE % '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"the answer"}}')
    answer({"result": {"stopReason": "end_turn"}})


def main(fault: str) -> None:
    method, wrong = ANSWERS.get(fault, ("", {}))
    for line in sys.stdin:
        asked = json.loads(line)

        def answer(words: dict[str, Any], number: Any = asked.get("id")) -> None:
            say(json.dumps({"jsonrpc": "2.0", "id": number, **words}) + "\n")

        if asked.get("method") == method:
            answer(wrong)
        elif asked.get("method") == "initialize":
            answer({"result": ABLE})
        elif asked.get("method") == "session/new":
            answer({"result": {"sessionId": "s"}})
        elif asked.get("method") == "session/prompt":
            at_a_prompt(fault, answer)
    time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1])
