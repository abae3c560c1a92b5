"""OpenCode itself, by MCP alone and as a role; its model is a script behind the loopback.

``make prove`` runs it where ``opencode`` is on the path (``npm install -g opencode-ai``) or ``OPENCODE`` names it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from session_parts import SKETCH, TASK, WRONG_SKETCH

from kernellab.records import Author, Role
from kernellab.session import design
from kernellab.tools.skill import write_skill
from tests.models.fake_server import Act, Connection, FakeServer, answer

OPENCODE = os.environ.get("OPENCODE") or shutil.which("opencode")
pytestmark = pytest.mark.skipif(OPENCODE is None, reason="OpenCode is not installed: npm install -g opencode-ai.")

Step = Sequence[tuple[str, dict[str, Any]]]


def playing(*steps: Step, last: str = "Done.") -> Act:
    """A model that calls the tools of each step in turn, and then says ``last``. A request without those tools, such as
    that for a title, gets a word."""

    def act(link: Connection) -> None:
        offered = [tool["function"]["name"] for tool in link.body.get("tools") or []]
        at = sum(message["role"] == "assistant" for message in link.body["messages"])
        if not any(name.endswith(steps[0][0][0]) for name in offered):
            answer("Twice")(link)
            return
        if at >= len(steps):
            answer(last)(link)
            return
        calls = [
            {"index": n, "id": f"c{at}_{n}", "type": "function",
             "function": {"name": next(o for o in offered if o.endswith(name)), "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(steps[at])
        ]  # fmt: skip
        answer("", finish="tool_calls", tool_calls=calls)(link)

    return act


def results(server: FakeServer) -> list[str]:
    """What the tools answered, as the model saw it, in order."""
    longest = max((asked.body["messages"] for asked in server.requests), key=len)
    return [str(message["content"]) for message in longest if message["role"] == "tool"]


def provider(server: FakeServer) -> dict[str, Any]:
    """OpenCode's setting for a custom endpoint."""
    model = {"name": "m", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}
    options = {"baseURL": server.url, "apiKey": "none"}
    entry = {"npm": "@ai-sdk/openai-compatible", "name": "loop", "options": options, "models": {"m": model}}
    return {"provider": {"loop": entry}, "model": "loop/m"}


def test_a_coding_agent_verifies_a_kernel_by_the_server_alone(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(TASK)
    (tmp_path / "kernellab.toml").touch()
    write_skill("opencode", tmp_path)
    task = {"task": "twice.py", "dsl": "cpp"}
    steps: list[Step] = [
        [("describe_task", task)],
        [("gate_sketch", {**task, "sketch": WRONG_SKETCH})],
        [("gate_sketch", {**task, "sketch": SKETCH})],
        [("verify_source", {**task, "sketch": SKETCH})],
    ]
    with FakeServer(playing(*steps)) as server:
        setting = tmp_path / "opencode.json"
        setting.write_text(json.dumps(json.loads(setting.read_text()) | provider(server)))
        home = tmp_path / "home"
        home.mkdir()
        # OpenCode takes its project's folder from PWD
        words = "Write a fast kernel for twice.py with kernellab's tools, and verify it."
        run = subprocess.run(
            [str(OPENCODE), "run", words], cwd=tmp_path, env={**os.environ, "HOME": str(home), "PWD": str(tmp_path)},
            capture_output=True, text=True, timeout=480, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr[-2000:]
        described, wrong, right, verdict = (json.loads(text) for text in results(server))
    assert described["name"] == "twice"
    assert wrong["state"] == "wrong" and right["state"] == "right"
    assert verdict["passed"] and verdict["trust"] == "T2", verdict


def test_a_coding_agent_designs_as_a_role_and_its_turn_is_on_the_record(tmp_path: Path) -> None:
    steps: list[Step] = [
        [("gate_sketch", {"task": "twice", "sketch": WRONG_SKETCH})],
        [("gate_sketch", {"task": "twice", "sketch": SKETCH})],
    ]
    with FakeServer(playing(*steps, last=f"Each row by itself.\n```sketch\n{SKETCH}```\n")) as server:
        config = tmp_path / "opencode.json"
        config.write_text(json.dumps(provider(server)))
        (tmp_path / "kernellab.toml").write_text(
            f'[agents.opencode]\ncommand = ["{OPENCODE}", "acp"]\nminutes = 6\nenv = {{OPENCODE_CONFIG = "{config}"}}\n'
        )
        session = design(
            TASK, dsl="cpp", name="twice", workspace=tmp_path, roles={"designer": "agent:opencode"}, approve="none"
        )
        session.wait(480)
    turn = next(t for t in session.turns if t.role is Role.DESIGNER)
    assert turn.author is Author.MODEL and turn.sketch == SKETCH
    assert session.verdict.passed
    (exchange,) = session.state.exchanges(turn.id)
    assert exchange.usage.tool_calls == 2
