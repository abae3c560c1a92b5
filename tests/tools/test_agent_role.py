"""Sessions whose roles are played by an agent's program: a scripted one that speaks the real protocols."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from session_parts import SKETCH, TASK, WRONG_SKETCH

from kernellab.doctor import agents_of
from kernellab.errors import SessionError
from kernellab.models import write_replay
from kernellab.models.exchanges import Exchange, Finish, Step
from kernellab.notebook.views.card import card
from kernellab.notebook.views.detail import exchange_head
from kernellab.notebook.views.head import ledger_figures
from kernellab.notebook.views.progress import upcoming
from kernellab.notebook.views.rows import turn_rows
from kernellab.notebook.views.texts import partial
from kernellab.records import Author, Role
from kernellab.session import QuestionKind, Session, SessionStatus, TurnState, design, open_session
from kernellab.session.record.trajectories import in_form, rows
from kernellab.tools import Context
from tests.waiting import until

AGENT = Path(__file__).with_name("scripted_agent.py")
ANSWER = f"Each row on its own.\n```sketch\n{SKETCH}```\n"
WRONG = f"```sketch\n{WRONG_SKETCH}```\n"
SUBMIT: dict[str, Any] = {"tool": "submit_answer", "with_": {"answer": ANSWER}}
GATE = {"tool": "gate_sketch", "with_": {"task": "twice", "sketch": SKETCH}}


def submit(sketch: str) -> dict[str, Any]:
    return {"tool": "submit_answer", "with_": {"answer": f"```sketch\n{sketch}```\n"}}


WRITES = """
import json
from pathlib import Path
def tried(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / "file").write_text("x")
        return "written"
    except OSError:
        return "refused"
print(json.dumps({p: tried(Path.home() / p) for p in (".agent", ".config/scripted")}))
"""

pytest.importorskip("acp")
pytest.importorskip("mcp")

Start = Callable[..., Session]
JUDGED = {"max_turns": 20}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(acts, ...)``: a session whose Designer is an agent that does ``acts`` at its prompts. It ends with that
    turn; ``**JUDGED`` has the sketch lowered and verified too."""
    started: list[Session] = []

    def make(*prompts: list[dict[str, Any]], stdio: bool = False, settings: str = "", **options: Any) -> Session:
        write_agent(tmp_path, *prompts, stdio=stdio, settings=settings)
        options = {"options": {"level": "T1"}, "roles": {"designer": "agent:scripted"}, "max_turns": 1, **options}
        session = design(TASK, dsl="cpp", name="twice", workspace=tmp_path, **options)
        started.append(session)
        return session

    yield make
    for session in started:
        end(session)


def end(session: Session) -> None:
    """Stop what has not ended, also what waits for a person: its agent ends with it."""
    if not session.status.ended:
        session.stop()
        until(lambda: session.status.ended or session.failure is not None, 60)


def write_agent(folder: Path, *prompts: list[dict[str, Any]], stdio: bool = False, settings: str = "") -> None:
    script = folder / "script.json"
    script.write_text(json.dumps(prompts))
    command = json.dumps([sys.executable, str(AGENT), str(script), *(["--stdio"] if stdio else [])])
    (folder / "kernellab.toml").write_text(f"[agents.scripted]\ncommand = {command}\n{settings}\n")


def started(exchange: Exchange) -> Step:
    """The step that says how the agent is held."""
    return next(step for step in exchange.steps if step.title.endswith(" started"))


def started_by_the_agent() -> list[psutil.Process]:
    """It, and what it started; others of this process may end meanwhile."""
    below = {p.pid for p in psutil.Process().children(recursive=True)}
    found = [p for p in psutil.process_iter(["name", "cmdline"]) if p.pid in below]
    return [p for p in found if "sleep" in (p.info["name"] or "") or "scripted" in str(p.info["cmdline"])]


def rested(session: Session) -> None:
    until(lambda: session.resting, 120)


@pytest.mark.parametrize("stdio", [False, True], ids=["http", "stdio"])
def test_an_agent_looks_and_submits_and_its_sketch_is_judged(start: Start, stdio: bool) -> None:
    acts = [
        {"plan": ["look", "write"]}, {"think": "rows are apart"}, GATE, {"edit": "notes.md", "text": "one\n"},
        {"say": "It is right."}, SUBMIT, {"usage": [1000, 50]},
    ]  # fmt: skip
    session = start(acts, stdio=stdio, **JUDGED)
    rested(session)
    turn = session.turns[0]
    assert (turn.role, turn.author, turn.state) == (Role.DESIGNER, Author.MODEL, TurnState.DONE), turn.error
    assert turn.sketch == SKETCH and session.state.verdict_of(session.source.hash) is not None
    exchange = session.state.exchanges(turn.id)[0]
    kinds = [step.kind for step in exchange.steps if step.kind != "note"]
    assert kinds == [
        "plan", "thought", "tool", "edit", "message", "tool"
    ]  # fmt: skip
    gate = exchange.steps[[s.title for s in exchange.steps].index("gate_sketch")]
    assert gate.result.startswith("right") and json.loads(gate.text)["task"] == "twice"
    assert (exchange.usage.input_tokens, exchange.usage.tool_calls) == (1000, 2)
    assert exchange.finish is Finish.STOP and exchange.reply.strip() == ANSWER.strip()


def test_an_agents_tools_judge_where_its_session_judges(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in ssh's place runs the command on this machine, and counts its connections."""
    program = tmp_path / "ssh"
    program.write_text('#!/bin/sh\necho >> "$0.said"\nfor last; do :; done\nsh -c "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    where = f"ssh://box{sys.executable}"
    kernel = {"task": "twice", "files": {"kernel.py": "def kernel(x):\n    return x\n"}, "dsl": "cpp"}
    acts = [
        {"tool": "describe_task", "with_": {"task": "twice"}}, {"tool": "rank_source", "with_": kernel},
        {"tool": "verify_source", "with_": {**kernel, "level": "T1"}},
        {"tool": "submit_answer", "with_": {"answer": ""}},
    ]  # fmt: skip
    session = start(acts, target=where, **JUDGED)
    until(lambda: (bool(session.turns) and session.turns[0].state is not TurnState.RUNNING) or session.resting, 120)
    exchange = session.state.exchanges(session.turns[0].id)[0]
    described, ranked, verified, _ = (step.result for step in exchange.steps if step.kind == "tool")
    assert f"at {where}" in described and ranked.startswith(f"Judged at {where}: failed")
    assert verified.startswith(f"Judged at {where}: failed")
    # the session's target, its judge and the tools' judge
    until(lambda: len((tmp_path / "ssh.said").read_text().splitlines()) == 3, 60)
    # a client of the workspace names the session, and gets its judge
    context = Context(tmp_path)
    assert context.target("cpp", session.name).host == where
    assert context.target("cpp", "").host == ""


def test_what_is_wrong_goes_back_to_the_same_agent(start: Start) -> None:
    wrong = {"tool": "submit_answer", "with_": {"answer": WRONG}}
    session = start([wrong], [{"heard": 0}, SUBMIT])
    rested(session)
    _, second = session.state.exchanges(session.turns[0].id)
    heard = next(step for step in second.steps if step.kind == "message")
    assert "Fix" in heard.text or "wrong" in heard.text
    assert session.turns[0].sketch == SKETCH


@pytest.mark.parametrize(
    ("told", "context", "tokens"),
    [
        (([1000, 50], [1800, 90]), (0, 0), (1800, 90)), (([1000, 50], [900, 40]), (0, 0), (1900, 90)),
        # as OpenCode 1.18 does: what is in its context grows from prompt to prompt, and so do figures of one prompt
        (([7765, 5], [7788, 6]), (7765, 7788), (15553, 11)), (([1000, 50], [2100, 90]), (1050, 1140), (2100, 90)),
    ],
    ids=["running totals", "each prompt alone", "the last request", "running totals and a context"],
)  # fmt: skip
def test_tokens_of_a_repaired_turn_count_once(
    start: Start, told: tuple[list[int], ...], context: tuple[int, int], tokens: tuple[int, int]
) -> None:
    wrong = {"tool": "submit_answer", "with_": {"answer": WRONG}}
    session = start(*(
        [act, {"used": used}, {"usage": usage}] for act, used, usage in zip((wrong, SUBMIT), context, told, strict=True)
    ))  # fmt: skip
    rested(session)
    used = [exchange.usage for exchange in session.state.exchanges(session.turns[0].id)]
    assert (sum(u.input_tokens for u in used), sum(u.output_tokens for u in used)) == tokens
    assert [u.untold for u in used] == [0, 0]


@pytest.mark.parametrize("acts", [[], [{"usage": [0, 0]}]], ids=["nothing", "zeros"])
def test_tokens_that_an_agent_does_not_report_are_not_told_as_none(start: Start, acts: list[dict[str, Any]]) -> None:
    """An agent whose model's server counts no tokens reports zeros."""
    session = start([SUBMIT, *acts])
    rested(session)
    (exchange,) = session.state.exchanges(session.turns[0].id)
    assert (exchange.usage.input_tokens, exchange.usage.untold) == (0, 1)
    assert "tokens not reported" in session.trace.ledger()["text"] and "0 tokens" not in session.trace.ledger()["text"]
    assert exchange_head(exchange)["tokens"] == "tokens not reported"
    told = ledger_figures(session.trace.ledger())
    assert (told["tokens"], told["cost"]) == ("tokens not reported", "cost not reported")


def test_what_an_agent_keeps_lies_in_the_workspace_unless_the_home_has_it(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".local/share/scripted").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / ".kernellab/agents/scripted/config/scripted"
    for found in ("new", "kept"):
        session = start([{"keep": "scripted"}, SUBMIT], fresh=True)
        rested(session)
        said = next(s.text for s in session.state.exchanges("t1")[0].steps if s.kind == "message")
        assert json.loads(said) == [f"{own}: {found}", f"{home / '.local/share/scripted'}: {found}"]
    assert not (home / ".config").exists()


def test_folders_that_the_settings_name_are_made_and_are_the_only_ones(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    session = start([{"try": WRITES}, SUBMIT], settings='writes = [".agent"]')
    rested(session)
    exchange = session.state.exchanges("t1")[0]
    said = json.loads(next(s.text for s in exchange.steps if s.kind == "message"))
    assert said[".agent"] == "written"
    assert exchange.shared_machine or said[".config/scripted"] == "refused"


def test_an_agent_as_coder_writes_the_first_code_from_what_the_rules_would_write(start: Start, tmp_path: Path) -> None:
    """Also where it is played again."""
    code = "from pathlib import Path; print(sorted(p.name for p in Path('kernel').iterdir()))"
    keep = {"tool": "submit_answer", "with_": {"answer": "KEEP"}}
    session = start([{"try": code}, keep], roles={"coder": "agent:scripted"}, max_turns=2)
    until(lambda: len(session.turns) > 1 and session.turns[1].state is not TurnState.RUNNING, 120)
    session.stop()
    turn = session.turns[1]
    assert (turn.role, turn.author, turn.state) == (Role.CODER, Author.MODEL, TurnState.DONE), turn.error
    (exchange,) = session.state.exchanges(turn.id)
    assert exchange.by_agent and not exchange.warning
    assert "kernel.cpp" in next(step.text for step in exchange.steps if step.kind == "message")
    recording = tmp_path / "coder.jsonl"
    write_replay(recording, [exchange])
    again = start(roles={"coder": f"replay:{recording}"}, max_turns=2)
    until(lambda: len(again.turns) > 1 and again.turns[1].state is not TurnState.RUNNING, 120)
    again.stop()
    assert again.turns[1].author is Author.MODEL and again.turns[1].candidate.source == turn.candidate.source


def test_a_pin_holds_against_an_agents_answer_which_is_told_the_line(start: Start, tmp_path: Path) -> None:
    broken = SKETCH.replace("-> x)", "-> x, pad=1)")
    pinned = SKETCH.replace("-> x)", "-> x)  #: pin")
    kept = pinned.replace("x * 2.0 + 1.0", "1.0 + x * 2.0")
    script = [[submit(broken)], [{"heard": 0}, submit(kept)]]
    session = start([SUBMIT], **JUDGED)
    rested(session)
    session.pin(9)
    write_agent(tmp_path, *script)
    session.redirect("designer", "another way round")
    rested(session)
    revised = next(turn for turn in reversed(session.turns) if turn.role is Role.DESIGNER)
    assert revised.sketch == kept and session.state.refusals == (revised,)
    (line,) = revised.refused
    assert "load(X[m, n:n+BLOCK] -> x)" in line
    _, second = session.state.exchanges(revised.id)
    heard = next(step for step in second.steps if step.kind == "message")
    assert "must stay" in heard.text and "load(X[m, n:n+BLOCK] -> x)" in heard.text


def test_the_last_message_answers_where_nothing_is_submitted(start: Start) -> None:
    session = start([{"say": "Let me see."}, GATE, {"say": ANSWER}])
    rested(session)
    assert session.turns[0].sketch == SKETCH


def test_stop_ends_the_agent_and_what_it_detached_within_a_second(start: Start, tmp_path: Path) -> None:
    session = start([{"spawn": "pid"}, {"sleep": 300}])
    until(lambda: "spawned" in session.to_dict()["partial"], 60)
    mine = started_by_the_agent()
    assert any(p.info["name"] == "sleep" for p in mine)
    began = time.monotonic()
    session.stop()
    until(lambda: not any(p.is_running() and p.status() != "zombie" for p in mine), 10)
    assert time.monotonic() - began < 3.0  # a second on a quiet machine
    assert session.turns[0].state is TurnState.STOPPED


def test_a_process_that_the_agent_leaves_behind_takes_it_not_along(start: Start) -> None:
    session = start([{"leave": 0.3}, {"sleep": 1.5}, SUBMIT])
    rested(session)
    assert session.turns[0].sketch == SKETCH, session.turns[0].error


def test_a_person_is_asked_and_the_answer_holds_for_the_turn(start: Start) -> None:
    session = start([{"ask": "run make"}, {"ask": "run more"}, SUBMIT], approve="routing")
    until(lambda: session.status is SessionStatus.WAITING, 120)
    assert session.wait(60).status is SessionStatus.WAITING, "who waits for the session is not kept waiting"
    question = session.state.question
    assert question is not None and question.kind is QuestionKind.PERMISSION and "run make" in question.text
    assert upcoming(session.state) == ""
    with pytest.raises(SessionError, match="is not answered 'maybe'"):
        session.approve(to="maybe")
    session.approve(to="turn")
    rested(session)
    steps = session.state.exchanges(session.turns[0].id)[0].steps
    assert [(s.title, s.result) for s in steps if s.kind == "permission"] == [
        ("run make", "turn"), ("run more", "turn")
    ]  # fmt: skip


def test_a_person_sees_what_an_edit_would_change(start: Start) -> None:
    session = start([{"ask": "notes.md", "writes": "".join(f"{n}\n" for n in range(20))}, SUBMIT], approve="routing")
    until(lambda: session.status is SessionStatus.WAITING, 120)
    shown = card(session.state, session.state.head)
    assert shown is not None and shown["text"] == "The designer's agent asks: edit notes.md"
    assert shown["evidence"][0] == "--- notes.md" and shown["evidence"][3:] == [f"+{n}" for n in range(20)]
    assert "approve(" not in shown["hint"]
    session.approve()
    rested(session)


def test_what_is_asked_at_once_is_asked_one_after_the_other(start: Start) -> None:
    session = start([{"ask_at_once": ["run make", "run lens"]}, SUBMIT], approve="routing")
    cards: list[str] = []
    for wanted in ("run make", "run lens"):
        until(lambda title=wanted: title in getattr(session.state.question, "text", ""), 120)
        assert session.state.question is not None
        for before in cards:
            with pytest.raises(SessionError, match="no longer open"):  # as a second click on the card before
                session.approve(to="never", card=before)
        cards.append(session.state.question.id)
        session.approve(card=cards[-1])
    rested(session)
    steps = session.state.exchanges(session.turns[0].id)[0].steps
    assert [(s.title, s.result) for s in steps if s.kind == "permission"] == [
        ("run make", "once"),
        ("run lens", "once"),
    ]
    assert session.turns[0].sketch == SKETCH


def test_an_agent_that_dies_while_it_asks_leaves_no_question(start: Start) -> None:
    session = start([{"ask_at_once": ["run make"], "dies": 1}], approve="routing")
    until(lambda: session.turns and session.turns[0].state is TurnState.FAILED, 120)
    until(lambda: session.resting, 60)
    question = session.state.question
    assert question is None or question.kind is not QuestionKind.PERMISSION


def test_a_person_who_takes_their_time_costs_the_agent_none(start: Start) -> None:
    session = start([{"ask": "run make"}, SUBMIT], approve="routing", settings="minutes = 0.1")
    until(lambda: session.status is SessionStatus.WAITING, 120)
    time.sleep(7)
    session.approve()
    rested(session)
    assert session.turns[0].sketch == SKETCH, session.turns[0].error


def test_never_refuses(start: Start) -> None:
    session = start([{"ask": "delete it"}, SUBMIT], approve="all")
    until(lambda: session.status is SessionStatus.WAITING, 120)
    session.approve(to="never")
    until(lambda: session.turns[0].state is TurnState.DONE, 60)
    told = str(session.state.exchanges(session.turns[0].id)[0].steps)
    assert "permission: n" in told


@pytest.mark.parametrize(
    ("settings", "granted"),
    [("", [False, True, False]), ('permission = "allow"', [True] * 3), ('permission = "never"', [False] * 3)],
    ids=["ask", "allow", "never"],
)  # fmt: skip
def test_where_no_one_is_asked_an_agent_may_change_its_own_folder_alone(
    start: Start, settings: str, granted: list[bool]
) -> None:
    outside = {"ask": "far.md", "writes": "x\n", "to": "../far.md"}
    acts = [{"ask": "run make"}, {"ask": "notes.md", "writes": "x\n"}, outside, SUBMIT]
    session = start(acts, settings=settings, max_turns=1)
    rested(session)
    steps = session.state.exchanges(session.turns[0].id)[0].steps
    asked = [step for step in steps if step.kind == "permission"]
    assert [not step.failed for step in asked] == granted
    heard = "".join(step.text for step in steps if step.kind == "message")
    assert [word == "y." for word in heard.split() if word in ("y.", "n.")] == granted
    if not settings:
        assert "no one is asked" in asked[0].result and "permission" in asked[0].result


@pytest.mark.parametrize("answers", [b"perhaps\nonce\n", b"\n"], ids=["once", "by default never"])
def test_a_person_at_a_terminal_is_asked_and_is_told_what_an_agent_is(tmp_path: Path, answers: bytes) -> None:
    write_agent(tmp_path, [{"ask": "run make"}, SUBMIT])
    (tmp_path / "twice.py").write_text(TASK)
    command = ["design", "twice.py", "--dsl", "cpp", "--roles", "designer=agent:scripted", "--max-turns", "1"]
    told = at_a_terminal([sys.executable, "-m", "kernellab", *command], tmp_path, b"once, turn or never", answers)
    assert "it may read what you may" in told and "agent asks: run make" in told
    session = open_session("twice", tmp_path, resume=False)
    (step,) = [s for s in session.state.exchanges("t1")[0].steps if s.kind == "permission"]
    assert step.result == ("once" if b"once" in answers else "never")
    assert ("is not answered 'perhaps'" in told) == (b"perhaps" in answers)
    assert f"run make: {step.result}" in told


def at_a_terminal(command: list[str], folder: Path, question: bytes, answers: bytes) -> str:
    """What a command writes to a terminal of its own, where each ``question`` is answered by a line."""
    import pty

    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(command[0], command, {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "dumb"})
    heard, lines = b"", answers.splitlines(keepends=True)
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the terminal's other end is closed
            break
        if not piece:
            break
        heard += piece
        if lines and heard.count(question) > len(answers.splitlines()) - len(lines):
            os.write(terminal, lines.pop(0))
    os.waitpid(pid, 0)
    return " ".join(heard.decode(errors="replace").split())


def test_a_shell_without_a_terminal_prints_what_was_asked_and_refused(tmp_path: Path) -> None:
    write_agent(tmp_path, [{"ask": "run make"}, SUBMIT])
    (tmp_path / "twice.py").write_text(TASK)
    command = ["design", "twice.py", "--dsl", "cpp", "--roles", "designer=agent:scripted", "--max-turns", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "kernellab", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert "it may read what you may" in done.stderr, done.stderr
    assert "run make: never, no one is asked" in " ".join(done.stderr.split())


def test_a_note_reaches_the_agent_with_the_next_result(start: Start) -> None:
    session = start([{"sleep": 1.5}, {**GATE, "loud": 1}, SUBMIT])
    until(lambda: session.turns and session.turns[0].state is TurnState.RUNNING, 30)
    session.note("designer", "keep BLOCK at 16")
    rested(session)
    (exchange,) = session.state.exchanges(session.turns[0].id)
    said = [s.text for s in exchange.steps if s.kind == "message"]
    assert any("A person says: keep BLOCK at 16" in text for text in said), said


def test_calls_beyond_the_limit_are_refused_and_the_answer_is_not(start: Start) -> None:
    session = start([GATE, GATE, {**GATE, "loud": 1}, SUBMIT], budget="tool_calls=2")
    rested(session)
    exchange = session.state.exchanges(session.turns[0].id)[0]
    assert [s.failed for s in exchange.steps if s.kind == "tool"] == [False, False, True, False]
    assert session.turns[0].sketch == SKETCH


def test_an_agent_that_takes_too_long_is_ended(start: Start) -> None:
    session = start([{"sleep": 300}], settings="minutes = 0.2")
    until(lambda: session.turns and session.turns[0].state is TurnState.FAILED, 60)
    assert session.turns[0].fault == "model:stalled" and "did not end its turn" in session.turns[0].error


def test_a_budget_that_the_agent_does_not_report_is_refused_at_the_start(start: Start) -> None:
    with pytest.raises(SessionError, match="limits tokens, which the agent scripted is not known to report"):
        start([SUBMIT], budget="tokens=1000")
    session = start([{"cost": 0.5}, {"sleep": 300}], budget="usd=0.1", settings='reports = ["usd"]')
    until(lambda: session.turns and session.turns[0].state is TurnState.FAILED, 60)
    assert session.turns[0].fault == "model:budget" and "spent 0.5 dollars" in session.turns[0].error
    session = start([{"cost": 0.05}, SUBMIT], budget="usd=0.1", settings='reports = ["usd"]', fresh=True)
    rested(session)
    assert session.turns[0].sketch == SKETCH and session.state.exchanges("t1")[0].usage.usd == 0.05


def test_a_cost_of_nothing_is_a_price_that_is_not_known(start: Start) -> None:
    """OpenCode says 0 for a model without a price, which is not what it cost."""
    session = start([{"cost": 0.0}, SUBMIT])
    rested(session)
    assert session.turns[0].sketch == SKETCH and session.state.exchanges("t1")[0].usage.usd is None


def test_an_agent_that_ends_by_itself_says_what_it_wrote(start: Start) -> None:
    session = start([{"exit": 3}])
    until(lambda: session.turns and session.turns[0].state is TurnState.FAILED, 60)
    assert "ended by itself (exit code 3)" in session.turns[0].error and "out of sorts" in session.turns[0].error


@pytest.mark.parametrize("replaced", ["os.symlink({key!r}, 'stderr.txt')", "os.mkfifo('stderr.txt')"])
def test_what_an_agent_puts_in_its_folder_is_not_taken_for_its_last_words(
    start: Start, tmp_path: Path, replaced: str
) -> None:
    """The notebook would read what is hidden from the agent, or wait for ever."""
    (tmp_path / "key").write_text("0123-key")
    put = "import os, contextlib\nwith contextlib.suppress(OSError): os.unlink('stderr.txt')\n"
    session = start([{"try": put + replaced.format(key=str(tmp_path / "key"))}, {"exit": 3}])
    until(lambda: session.turns and session.turns[0].state is TurnState.FAILED, 60)
    assert "out of sorts" in session.turns[0].error and "0123-key" not in session.turns[0].error


def test_doctor_says_how_an_agent_is_held_and_what_a_verdict_says_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernellab.tools.acp import confinement

    write_agent(tmp_path)
    monkeypatch.chdir(tmp_path)
    told = {"as it is": agents_of()[-1]}
    for name, script in (("without root", WITHOUT_ROOT), ("unconfined", UNCONFINED)):
        (tmp_path / "confine.py").write_text(script)
        monkeypatch.setattr(confinement, "CONFINE", tmp_path / "confine.py")
        told[name] = agents_of()[-1]
    shared = "Each verdict is made after the agent has ended, and has the condition 'agent shared the machine'"
    assert (
        shared in told["unconfined"] and "(nothing)" in told["unconfined"] and "user namespaces" in told["unconfined"]
    )
    if shared not in told["without root"]:
        assert "it has your user number" in told["without root"] and "+user" in told["without root"]
        assert shared not in told["as it is"]


def test_an_unknown_agent_and_a_missing_program_are_refused_at_the_start(start: Start, tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="There is no agent 'other'"):
        start([], roles={"designer": "agent:other"})
    (tmp_path / "kernellab.toml").write_text('[agents.scripted]\ncommand = ["no-such-program"]\n')
    with pytest.raises(SessionError, match="'no-such-program' is not found"):
        design(TASK, dsl="cpp", name="twice", workspace=tmp_path, roles={"designer": "agent:scripted"})


def test_doctor_says_which_agents_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_agent(tmp_path, settings='[agents.absent]\ncommand = ["no-such-program", "acp"]')
    monkeypatch.chdir(tmp_path)
    ready, absent, _ = agents_of()
    assert ready == f"scripted: {sys.executable} {AGENT} {tmp_path / 'script.json'}, found"
    assert absent.startswith("absent: not ready: ") and "'no-such-program' is not found" in absent


def test_a_workspaces_first_agent_says_what_an_agent_may_read_and_later_ones_do_not(
    start: Start, tmp_path: Path
) -> None:
    notices = []
    for _ in range(2):
        session = start([SUBMIT], fresh=True)
        rested(session)
        steps = session.state.exchanges(session.turns[0].id)[0].steps
        notices.append([step.title for step in steps if "it may read what you may" in step.title])
    assert [len(told) for told in notices] == [1, 0]


def test_an_agents_turn_is_replayed_and_exported_with_its_calls(start: Start, tmp_path: Path) -> None:
    session = start([GATE, SUBMIT, {"usage": [10, 5]}])
    rested(session)
    row = next(iter(rows(session.state)))
    calls = [m for m in row["messages"] if m.get("tool_calls")]
    assert [c["tool_calls"][0]["function"]["name"] for c in calls] == ["gate_sketch", "submit_answer"]
    results = [m for m in row["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == [c["tool_calls"][0]["id"] for c in calls]
    assert row["messages"][-1]["role"] == "assistant" and "```sketch" in row["messages"][-1]["content"]
    (one,) = in_form([row], "rl")
    assert [m["role"] for m in one["prompt"]] == ["system", "user"]
    assert [m["role"] for m in one["completion"]] == ["assistant", "tool"] * 2 + ["assistant"]
    file = write_replay(tmp_path / "agent.replay", session.state.exchanges())
    again = design(
        TASK, dsl="cpp", name="twice", workspace=tmp_path / "other", roles={"designer": f"replay:{file}"},
        options={"level": "T1"},
    )  # fmt: skip
    try:
        rested(again)
    finally:
        end(again)
    assert again.turns[0].sketch == SKETCH, again.turns[0].error
    assert [s.title for s in again.state.exchanges()[0].steps if s.kind == "tool"] == [
        "gate_sketch", "submit_answer"
    ]  # fmt: skip


KILLED = """
import os, sys, threading, time
ends = threading.Timer(240, os._exit, (1,))
ends.daemon = True
ends.start()
from kernellab.session import design
from session_parts import TASK
session = design(TASK, dsl="cpp", name="twice", workspace=sys.argv[1], roles={"designer": "agent:scripted"},
                 options={"level": "T1"})
from tests.waiting import until
until(lambda: any(s.title == "gate_sketch" for s in session.state.steps.get("t1", ())), 120)
import psutil
print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)
time.sleep(300)
"""


def test_a_killed_notebook_takes_the_agent_along_and_the_session_says_what_became_of_it(tmp_path: Path) -> None:
    write_agent(tmp_path, [GATE, {"sleep": 300}])
    parts = Path(__file__).parents[1] / "session"
    env = {**os.environ, "PYTHONPATH": f"{parts}{os.pathsep}{Path(__file__).parents[2]}"}
    notebook = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=env
    )
    assert notebook.stdout is not None
    try:
        pids = [int(word) for word in notebook.stdout.readline().split()]
        agents = [p for p in map(psutil.Process, pids) if "scripted_agent" in " ".join(p.cmdline())]
    finally:
        notebook.send_signal(signal.SIGKILL)
        notebook.wait(60)
    assert agents
    until(lambda: not any(p.is_running() and p.status() != "zombie" for p in agents), 10)
    looked = open_session("twice", tmp_path, resume=False)
    assert looked.status is SessionStatus.PAUSED and "Its process is gone" in looked.reason
    assert any(step.title == "gate_sketch" for step in looked.state.steps["t1"])
    (row,) = turn_rows(looked.state)
    assert (row["state"], row["note"]) == ("stopped", looked.reason)
    written = partial(looked.state, "")
    assert written["state"] == "cut off" and "gate_sketch" in written["text"]
    write_agent(tmp_path, [SUBMIT])
    assert open_session("twice", tmp_path) is looked, "what running the cell again does"
    try:
        rested(looked)
    finally:
        end(looked)
    titles = [step.title for step in looked.state.exchanges("t1")[0].steps]
    assert looked.turns[0].sketch == SKETCH and "submit_answer" in titles


ASKED = """
import sys
from kernellab.session import design
from session_parts import TASK
session = design(TASK, dsl="cpp", name="twice", workspace=sys.argv[1], roles={"designer": "agent:scripted"},
                 options={"level": "T1"}, approve="routing")
print(session.wait(120).state.question.kind.value, flush=True)
"""


def test_a_process_ends_while_an_agent_waits_for_a_persons_answer(tmp_path: Path) -> None:
    write_agent(tmp_path, [{"ask": "run make"}])
    parts = Path(__file__).parents[1] / "session"
    env = {**os.environ, "PYTHONPATH": f"{parts}{os.pathsep}{Path(__file__).parents[2]}"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED, str(tmp_path)], capture_output=True, text=True, env=env, timeout=180
    )
    assert (done.returncode, done.stdout.split()) == (0, ["permission"]), done.stderr
    assert "Traceback" not in done.stderr
    write_agent(tmp_path, [SUBMIT])
    again = open_session("twice", tmp_path)
    try:
        rested(again)
    finally:
        end(again)
    assert again.turns[0].sketch == SKETCH, again.turns[0].error


ATTACK = """
import ctypes, glob, json, os, socket
from pathlib import Path
import kernellab
libc = ctypes.CDLL(None, use_errno=True)
def tried(what):
    try:
        return repr(what())
    except Exception as error:
        return type(error).__name__
def called(*words):
    if os.uname().machine != "x86_64":
        return "not tried"
    return "done" if libc.syscall(*words) >= 0 else os.strerror(ctypes.get_errno())
notebook, workspace, runtime = {notebook}, Path({workspace!r}), Path({runtime!r})
def connected(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)
mine = {{os.getpid(), os.getppid()}}
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) not in mine]
def readable(name):
    return [pid for pid in others if tried(lambda: open(f"/proc/{{pid}}/{{name}}", "rb").read(1)).startswith("b'")]
piece = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
print(json.dumps({{
    "user": os.getuid(),
    "pids": len(others),
    "first": readable("environ")[:1],
    "named": [pid for pid in others if str(notebook) in tried(lambda: open(f"/proc/{{pid}}/cmdline").read())],
    "vm": [called(310, pid, piece, 1, piece, 1, 0) for pid in (notebook, 1)],
    "attached": [called(101, 16, pid, 0, 0) for pid in (notebook, 1)],
    "root": tried(lambda: os.listdir("/proc/1/root")),
    "memory": tried(lambda: open(f"/proc/{{notebook}}/mem", "rb")),
    "signal": tried(lambda: os.kill(notebook, 0)),
    "shared": os.listdir("/dev/shm"),
    "keys": [str(p) for p in runtime.glob("*")] if os.access(runtime, os.R_OK) else [],
    "sockets": [tried(lambda: connected(path)) for path in {sockets!r}],
    "handle": called(304, -100, ctypes.create_string_buffer(16), 0),
    "tokens": [name for name in os.environ if name.startswith(("JPY_", "JUPYTERHUB_", "KERNELLAB_", "DISPLAY"))],
    "package": tried(lambda: Path(kernellab.__file__).with_name("planted.py").write_text("x")),
    "workspace": tried(lambda: (workspace / "planted").write_text("x")),
    "settings": tried(lambda: (workspace / "kernellab.toml").write_text("x")),
    "home": tried(lambda: Path.home().joinpath(".planted").write_text("x")),
    "own": tried(lambda: Path("mine").write_text("x")),
    "devices": os.listdir("/dev"),
    "terminals": os.listdir("/dev/pts"),
    "terminal": tried(lambda: len(os.openpty())),
    "shares": tried(lambda: Path("/dev/shm/x").write_text("x")),
    "null": tried(lambda: Path("/dev/null").write_text("x")),
}}))
"""


#: the way of a person who is not root, also where root runs the tests: no namespace without one of users, no other user
WITHOUT_ROOT = """
from kernellab.tools.acp import confine
from kernellab.sandbox import sandbox
sandbox._unshare = lambda names, real=sandbox._unshare: "user" in names and real(names)
sandbox.user_of = lambda folders: False
confine.main()
"""


@pytest.mark.parametrize("root", [True, False], ids=["as it is", "without root"])
def test_a_confined_agent_reaches_neither_the_judge_nor_its_files(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: bool
) -> None:
    """Nor the notebook: with a kernel's key in Jupyter's runtime folder it would run code in the judge's own client."""
    from kernellab.tools.acp import confinement

    if not root:
        (tmp_path / "without_root.py").write_text(WITHOUT_ROOT)
        monkeypatch.setattr(confinement, "CONFINE", tmp_path / "without_root.py")
    home, runtime, session_folder = (tmp_path / name for name in ("home", "runtime", "run"))
    tmux, docker = tmp_path / "tmux-0", home / ".docker/run"
    for folder in (home, runtime, session_folder, tmux, docker):
        folder.mkdir(parents=True)
    (runtime / "kernel-1.json").write_text('{"key": "x"}')
    paths = [session_folder / "bus", tmux / "default", docker / "docker.sock", tmp_path / "remote.sock"]
    listening = [socket.socket(socket.AF_UNIX) for _ in paths]
    for one, path in zip(listening, paths, strict=True):
        one.bind(str(path))
        one.listen()
    for name, value in (
        ("HOME", home), ("JUPYTER_RUNTIME_DIR", runtime), ("XDG_RUNTIME_DIR", session_folder), ("JPY_API_TOKEN", "x"),
        ("KERNELLAB_MCP_TOKEN", "x"),
        ("TMUX_TMPDIR", tmp_path), ("DOCKER_HOST", f"unix://{paths[-1]}"), ("DISPLAY", ":7"),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    places = {"workspace": str(tmp_path), "runtime": str(runtime), "sockets": [str(path) for path in paths]}
    code = ATTACK.format(notebook=os.getpid(), **places)
    session = start([{"try": code}, {"think": "red"}, SUBMIT], **JUDGED)
    rested(session)
    for one in listening:
        one.close()
    assert session.turns[0].state is TurnState.DONE, session.turns[0].error
    exchange = session.state.exchanges("t1")[0]
    if exchange.shared_machine:
        verdict = next(turn.verdict for turn in session.turns if turn.verdict)
        assert "agent shared the machine" in verdict.label
        pytest.skip(f"this machine has no Landlock or no namespaces: {started(exchange).text.splitlines()[0]}")
    reached = json.loads(next(step.text for step in exchange.steps if step.kind == "message"))
    assert reached.pop("own") == "1" and reached.pop("pids") < 10
    held = started(exchange).text.splitlines()[0]
    assert root or ("+user" in held and "uid" not in held and reached["user"] == os.getuid())
    if os.getuid() == 0 and "uid" in held:
        assert reached["user"] != 0 and reached["handle"] != "Bad address"
        assert (tmp_path / ".kernellab/agents/scripted").stat().st_uid == 0
    del reached["user"]
    usual = {
        "null",
        "zero",
        "full",
        "random",
        "urandom",
        "tty",
        "fd",
        "stdin",
        "stdout",
        "stderr",
        "ptmx",
        "pts",
        "shm",
    }
    assert set(reached.pop("devices")) <= usual and reached.pop("terminals") == ["ptmx"]
    assert (reached.pop("terminal"), reached.pop("shares"), reached.pop("null")) == ("2", "1", "1")
    for name in ("first", "named", "shared", "keys", "tokens"):
        assert reached.pop(name) == [], name
    assert "done" not in [*reached.pop("vm"), *reached.pop("attached"), reached.pop("handle")]
    assert reached.pop("memory") == "FileNotFoundError" and reached.pop("signal") == "ProcessLookupError"
    assert set(reached.pop("sockets")) <= {"PermissionError", "FileNotFoundError", "ConnectionRefusedError"}
    assert set(reached.values()) == {"PermissionError"}, reached
    assert not (tmp_path / "planted").exists()


def test_what_is_hidden_below_a_folder_that_an_agent_may_write_to_stays_hidden(tmp_path: Path) -> None:
    """Under root such a folder is given to the agent's user, by a mount over it."""
    from kernellab.tools.acp import confinement

    hidden = tmp_path / "runtime"
    hidden.mkdir()
    (hidden / "key").write_text("x")
    told, report = os.pipe()
    done = subprocess.run(
        [sys.executable, str(confinement.CONFINE), str(report), json.dumps([str(tmp_path)]), json.dumps([str(hidden)]),
         "ls", "-a", str(hidden)],
        pass_fds=[report], capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    os.close(report)
    with os.fdopen(told) as words:
        held = words.read()
    if "mnt" not in held:
        pytest.skip(f"this machine hides nothing: {held or 'nothing holds'}")
    assert "key" not in done.stdout, held


def test_another_user_without_landlock_is_not_apart() -> None:
    from kernellab.tools.acp.process import AgentProcess

    run = object.__new__(AgentProcess)
    for run.held, apart in (
        ("pid+ipc+mnt, uid, landlock-7, nnp", True), ("pid+ipc+mnt+user, landlock-3, nnp", True),
        ("pid+ipc+mnt, uid, nnp", False), ("landlock-7, nnp", False), ("", False),
    ):  # fmt: skip
        assert run.apart is apart, run.held


UNCONFINED = """
from kernellab.tools.acp import confine
from kernellab.sandbox import sandbox
sandbox.enter = lambda network=False: ""
sandbox.hold = lambda *_: []
sandbox.user_of = lambda folders: False
confine.main()
"""


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != "zombie"
    except psutil.NoSuchProcess:
        return False


def test_an_agent_that_nothing_confines_has_ended_before_the_verdict_which_says_so(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without namespaces and Landlock a process of the same user can read the judge's memory."""
    from kernellab.tools.acp import confinement
    from kernellab.verifier import Verifier

    script = tmp_path / "unconfined.py"
    script.write_text(UNCONFINED)
    monkeypatch.setattr(confinement, "CONFINE", script)
    verify, alive = Verifier.verify, list[list[int]]()

    def judged(self: Verifier, *args: Any, **options: Any) -> Any:
        alive.append([pid for pid in pids if running(pid)])
        return verify(self, *args, **options)

    pids = list[int]()
    monkeypatch.setattr(Verifier, "verify", judged)
    session = start([{"spawn": "pid"}, {"leave": 300}, {"sleep": 2}, SUBMIT], **JUDGED)
    until(lambda: "spawned" in session.to_dict()["partial"], 60)
    pids += [p.pid for p in started_by_the_agent()]
    assert len(pids) > 2
    rested(session)
    assert alive and not any(alive)
    exchange, verdict = session.state.exchanges("t1")[0], next(t.verdict for t in session.turns if t.verdict)
    assert exchange.shared_machine and "held by: nothing" in started(exchange).text
    assert verdict.passed and "agent shared the machine" in verdict.label


def test_what_an_unconfined_agent_detached_ends_with_it(start: Start, tmp_path: Path, monkeypatch: Any) -> None:
    from kernellab.tools.acp import confinement

    script = tmp_path / "unconfined.py"
    script.write_text(UNCONFINED)
    monkeypatch.setattr(confinement, "CONFINE", script)
    session = start([{"spawn": "pid"}, {"leave": 300}, {"sleep": 1}, {"exit": 3}])
    until(lambda: "spawned" in session.to_dict()["partial"], 60)
    until(lambda: sum(p.name() == "sleep" for p in psutil.Process().children(recursive=True)) == 2, 10)
    mine = [p for p in psutil.Process().children(recursive=True) if p.name() == "sleep"]
    until(lambda: session.turns[0].state is TurnState.FAILED, 60)
    until(lambda: not any(p.is_running() and p.status() != "zombie" for p in mine), 10)


def test_a_thousand_verifies_in_a_turn_are_no_oracle(tmp_path: Path) -> None:
    from kernellab.task import load_task
    from kernellab.tools.context import Context
    from kernellab.tools.desk import Desk

    context = Context(tmp_path, bound=load_task(TASK, "twice"), folder=tmp_path)
    desk = Desk(context, 3)
    source = "def kernel(x):\n    return x * 2.0 + 1.0\n"
    told = [
        desk.text("verify_source", json.dumps({"task": "twice", "files": {"kernel.py": source}, "level": "T0"}))
        for _ in range(1000)
    ]
    context.close()
    assert sum("are used up" in text for text in told) == 997
    assert not any("seed" in text for text in told)
    (tmp_path / "link").symlink_to("/etc/passwd")
    for path, why in (("../x", "lies outside of"), ("/etc/passwd", "lies outside of"), ("link", "no link is followed")):
        assert why in Desk(context, 9).text("verify_source", json.dumps({"task": "twice", "path": path}))
    assert "is not the task of this turn" in Desk(context, 9).text("describe_task", '{"task": "other"}')
    assert "There is no tool 'search_memory'" in Desk(context, 9, memory=False).text("search_memory", '{"words": "x"}')
    assert "There is no tool 'session_state'" in Desk(context, 9).text("session_state", '{"session": "twice"}')
