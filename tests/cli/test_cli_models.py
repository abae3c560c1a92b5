"""The command line with models behind the loopback server: budgets, replays, words, trajectories."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from session_parts import SKETCH, TASK, WRONG_SKETCH

from kernellab.cli import main
from tests.models.fake_server import Act, FakeServer, answer, status

RIGHT = answer(f"Rows.\n```sketch\n{SKETCH}```\n")
WRONG = answer(f"```sketch\n{WRONG_SKETCH}```\n")
DESIGN = ("design", "task.py", "--dsl", "cpp", "--level", "T1", "--roles", "designer=model", "--json")


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any, str]]:
    """``run("design", ...) -> (exit code, JSON, stderr)`` in a workspace that holds task.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task.py").write_text(TASK)
    for name in list(os.environ):
        if name.startswith(("KERNELLAB_MODEL", "OPENAI_")):
            monkeypatch.delenv(name)

    def command(*arguments: str) -> tuple[int, Any, str]:
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        return code, json.loads(printed.out) if printed.out.startswith("{") else printed.out, printed.err

    return command


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., FakeServer]]:
    servers: list[FakeServer] = []

    def make(*acts: Act) -> FakeServer:
        server = FakeServer(*acts)
        server.__enter__()
        servers.append(server)
        (tmp_path / "kernellab.toml").write_text(
            f'[models]\nbase_url = "{server.url}"\nmodel = "fake-1"\nretries = 0\n'
        )
        return server

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def test_design_with_a_model_tells_its_usage_and_leaves_replay_and_trajectories(
    run: Any, serve: Any, tmp_path: Path
) -> None:
    server = serve(WRONG, RIGHT)
    _, found, _ = run(*DESIGN)
    usage = found["usage"]
    assert (usage["model_calls"], usage["prompt_tokens"], usage["completion_tokens"]) == (2, 200, 40)
    assert usage["cost"] is None  # no price is known for it
    assert usage["total"]["cached_tokens"] == 128
    assert usage["roles"]["designer"]["requests"] == 2

    code, exported, _ = run("replay", "export", found["session"], "--out", "twice.jsonl", "--json")
    assert (code, exported["exchanges"]) == (0, 2)
    (tmp_path / "kernellab.toml").write_text("")
    _, again, _ = run(*DESIGN[:-2], "designer=replay:twice.jsonl", "--json")
    assert again["sketch"] == found["sketch"]
    assert len(server.requests) == 2

    code, rows, _ = run("export", found["session"], "--trajectories", "out.jsonl", "--licence", "CC0-1.0", "--json")
    assert (code, rows["rows"]) == (0, 2)
    first, second = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert [m["role"] for m in first["messages"]][-2:] == ["user", "assistant"]
    assert WRONG_SKETCH in first["messages"][-1]["content"]
    assert second["sketch"] == SKETCH
    assert second["verdict"]["passed"] is True
    assert second["task"] == TASK
    assert (second["licence"], second["provenance"]["session"]) == ("CC0-1.0", found["session"])
    assert first["provenance"]["replayed"] is False

    code, rows, _ = run("export", "--trajectories", "all.parquet", "--json")
    assert (code, rows["rows"]) == (0, 4)
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "all.parquet").to_pylist()
    assert [row["provenance"]["replayed"] for row in table] == [False, False, True, True]
    # a column of Parquet has one type, so that fields of calls of tools are empty where there is none
    messages = [{name: field for name, field in m.items() if field is not None} for m in table[1]["messages"]]
    assert messages == second["messages"]
    assert table[1]["verdict"]["passed"] is True


def test_a_budget_ends_the_command_and_a_raised_one_goes_on(run: Any, serve: Any) -> None:
    server = serve(WRONG, RIGHT)
    code, found, _ = run(*DESIGN, "--budget", "tokens=100")
    assert (code, found["status"]) == (1, "stopped")
    assert "100 of tokens=100 are left" in found["reason"]
    code, raised, _ = run(*DESIGN, "--budget", "tokens=30k", "--resume")
    assert raised["session"] == found["session"]
    assert raised["status"] == "finished"
    assert len(server.requests) == 2


def test_a_fault_is_exit_code_1_with_its_remedy_and_resume_asks_again(run: Any, serve: Any) -> None:
    server = serve(status(500, "It fell over"))
    code, found, _ = run(*DESIGN)
    assert (code, found["status"]) == (1, "waiting")
    assert "It fell over" in found["reason"]
    server.acts[:] = [RIGHT]
    _, again, _ = run(*DESIGN, "--resume")
    assert (again["session"], again["status"]) == (found["session"], "finished")


def test_what_no_model_answered_is_left_out_of_trajectories(run: Any, serve: Any, tmp_path: Path) -> None:
    server = serve(status(500, "It fell over"))
    _, found, _ = run(*DESIGN)
    code, rows, _ = run("export", found["session"], "--trajectories", "out.jsonl", "--json")
    assert (code, rows["rows"], rows["file"]) == (1, 0, None)
    failed = rows["left_out"]
    assert failed >= 1
    server.acts[:] = [RIGHT]
    run(*DESIGN, "--resume")
    code, rows, _ = run("export", found["session"], "--trajectories", "out.jsonl", "--json")
    assert (code, rows["rows"], rows["left_out"]) == (0, 1, failed)
    (row,) = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert (row["messages"][-1]["role"], row["finish"], row["error"], row["last_of_turn"]) == (
        "assistant",
        "stop",
        "",
        True,
    )
    _, told, err = run("export", found["session"], "--trajectories", "out.jsonl")
    assert f"{failed} left out that no model answered" in told + err


def test_words_become_a_task_that_a_person_approves(run: Any, serve: Any) -> None:
    reply = answer(f"```python\n{TASK}```\n")
    server = serve(reply, reply, RIGHT)
    words = ("design", "--words", "Twice a matrix, plus one", *DESIGN[2:])
    code, out, err = run(*words)
    assert (code, out["passed"], out["exit_code"]) == (2, False, 2)
    assert "return x * 2.0 + 1.0" in err
    assert "--yes" in err and "--yes" in out["remedy"]
    code, found, _ = run(*words, "--yes")
    assert found["session"].startswith("twice_matrix_plus-")
    assert found["status"] == "finished"
    assert found["usage"]["model_calls"] == 2  # the task's writing is in the ledger
    assert len(server.requests) == 3


def test_a_foreign_kernel_is_lifted_to_a_sketch(run: Any, serve: Any, tmp_path: Path) -> None:
    server = serve(RIGHT)
    (tmp_path / "foreign.py").write_text("import triton\n\ndef kernel(x):\n    return x * 2.0 + 1.0\n")
    _, found, err = run(*DESIGN, "--from", "foreign.py")
    assert found["status"] == "finished", err
    assert found["sketch"] == SKETCH
    assert "import triton" in json.dumps(server.requests[0].body)


def test_without_exchanges_there_is_nothing_to_export(run: Any) -> None:
    code, found, _ = run("export", "--trajectories", "none.jsonl", "--json")
    assert (code, found["rows"], found["file"]) == (1, 0, None)


def test_a_form_of_trajectories_writes_no_kernel(run: Any, tmp_path: Path) -> None:
    code, _, err = run("export", "any", "--form", "dpo", "--out", "out.jsonl")
    assert code == 2 and "--trajectories" in err and not (tmp_path / "out.jsonl").exists()
