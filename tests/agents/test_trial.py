"""The trial's parts: errors are the same in every arm, a player sees prompts alone, and files are a player."""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from pathlib import Path

import pytest

from kernellab.task import load_task
from tests.agents.model_parts import SKETCH, fenced
from tests.agents.play import play
from tests.agents.players import Filed, Scripted, mutated
from tests.agents.trial import ARMS, TASKS, Row, endpoint, session, table
from tests.models.fake_server import FakeServer


def test_a_reply_gets_one_slip_and_the_same_one_again() -> None:
    reply = fenced(SKETCH)
    slipped = {mutated(reply, random.Random(n)) for n in range(20)}
    assert len(slipped) > 1 and reply not in slipped
    assert mutated(reply, random.Random(3)) == mutated(reply, random.Random(3))
    for other in slipped:
        assert sum(a != b for a, b in zip(reply.splitlines(), other.splitlines(), strict=True)) == 1
    assert mutated("I see no task.", random.Random(0)) == "I see no task."


def test_the_operators_load_and_are_at_least_a_dozen() -> None:
    paths = sorted(TASKS.glob("*.py"))
    assert len(paths) >= 12
    assert all(load_task(path).outputs for path in paths)


def test_a_scripted_player_solves_an_operator_in_spite_of_errors_and_the_row_counts_them() -> None:
    given = argparse.Namespace(errors=1.0, seed=2, turns=2, improve=False, dsl="cpp", workspace=None)
    row = session("full", TASKS / "swiglu.py", Scripted(), given)
    assert not row.solved and row.wrong == row.requests > 1
    assert row.tokens > 1000 and set(ARMS) == {"full", "gate", "sketch", "intermediates", "memory"}
    assert f"| full | 0 of 1 | {row.turns} | {row.requests} |" in table([row])
    assert "| no gate | 1 of 1 | 3 |" in table([Row("gate", "x", True, 3, 1, 9, 0, 0, 0, 2.0, "")])


def test_a_folder_is_a_player_whose_answers_are_files(tmp_path: Path) -> None:
    player = Filed(tmp_path / "full" / "swiglu", patience_s=30)

    def write() -> None:
        prompt = player.folder / "001.prompt.md"
        while not prompt.exists():
            time.sleep(0.02)
        assert "<!-- user -->\nWhat now?" in prompt.read_text()
        (player.folder / "001.answer.md").write_text("An answer.")

    writing = threading.Thread(target=write)
    writing.start()
    assert player([{"role": "user", "content": "What now?"}]) == "An answer."
    writing.join()


def test_a_session_is_played_by_files_alone_and_says_what_came_of_it(tmp_path: Path) -> None:
    scripted, ended = Scripted(), threading.Event()

    def answer_all() -> None:
        while not ended.is_set():
            for prompt in tmp_path.glob("*.prompt.md"):
                reply = prompt.with_name(prompt.name.replace("prompt", "answer"))
                if not reply.exists():
                    told = prompt.read_text().split("-->\n", 1)[1]
                    text = (
                        '{"done": "It will do."}'
                        if "There is headroom" in told
                        else scripted([{"role": "user", "content": told}])
                    )
                    reply.with_suffix(".new").write_text(text)
                    reply.with_suffix(".new").rename(reply)
            time.sleep(0.05)

    writing = threading.Thread(target=answer_all)
    writing.start()
    asked = argparse.Namespace(
        dsl="cpp", turns=8, designer="model", coder="rules", conductor="rules", without=[], budget=0.05
    )
    try:
        session = play(str(TASKS / "swiglu.py"), tmp_path, asked, patience_s=60)
    finally:
        ended.set()
        writing.join()
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert session.state.best() is not None and summary["requests"] == len(list(tmp_path.glob("*.prompt.md"))) >= 1
    assert summary["speedup"] and summary["prompt_tokens"] > 1000
    assert "verifier" in (tmp_path / "turns.md").read_text()
    with pytest.raises(SystemExit, match="take another folder"):
        play(str(TASKS / "swiglu.py"), tmp_path, asked)
    with pytest.raises(SystemExit, match="There is no task nothing"):
        play("nothing", tmp_path / "other", asked)


def test_the_endpoint_counts_a_prompts_tokens_and_hands_the_reply_through() -> None:
    import urllib.request

    wrong: list[int] = []
    with FakeServer(endpoint(lambda messages: messages[0]["content"].upper(), "op", 0.0, 0, wrong)) as server:
        body = json.dumps({"messages": [{"role": "user", "content": "hello " * 100}]}).encode()
        request = urllib.request.Request(f"{server.url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            text = reply.read().decode()
    assert "HELLO" in text and '"prompt_tokens": ' in text and not wrong
