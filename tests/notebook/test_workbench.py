"""The workbench on real sessions: decisions, questions, and everything that can go wrong with a message."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from notebook_parts import SKETCH, TASK, Page, played

from kernellab.errors import SessionError, TaskError
from kernellab.notebook.board.registry import workbench_of
from kernellab.notebook.board.workbench import Workbench
from kernellab.notebook.widget import by_page
from kernellab.session import Session, SessionStatus, design
from tests.waiting import until


def rows(bench: Any) -> list[dict[str, Any]]:
    """As the front end merges them."""
    changed = {row["id"]: row for row in bench.changed}
    known = {row["id"] for row in bench.turns}
    return [changed.get(r["id"], r) for r in bench.turns] + [r for r in bench.changed if r["id"] not in known]


# -- showing -----------------------------------------------------------------------------------------------------------


def test_the_design_cell_binds_its_name_and_shows_one_workbench(session: Session) -> None:
    bench = workbench_of(session)
    assert workbench_of(session) is bench is session.workbench()
    assert until(lambda: bench.head["status"] == "waiting")
    assert bench.head["card"]["kind"] == "brief" and bench.head["card"]["role"] == "designer"
    assert until(lambda: bench.head["operator"] == "x: f32 [64, 64] -> f32 [64, 64]")


def test_the_same_cell_run_again_is_the_same_session(shell: InteractiveShell, session: Session) -> None:
    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human,coder=human", TASK)
    assert shell.user_ns["add_one"] is session
    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human", TASK)
    other = shell.user_ns["add_one"]
    assert other is not session
    workbench_of(other).close()
    other.stop()


def test_another_process_shows_the_true_state_from_the_journal(session: Session, page: Page) -> None:
    assert page.act("sketch", text=SKETCH, base="") == ""
    session.wait(60)
    assert until(lambda: page.bench.head["card"] and page.bench.head["card"]["role"] == "coder")
    code = (
        "import json\n"
        "from kernellab.session import open_session\n"
        "from kernellab.notebook.board.workbench import Workbench\n"
        f"bench = Workbench(open_session({session.id!r}, resume=False))\n"
        "print(json.dumps([bench.head, bench.turns + bench.changed, bench.texts['sketch']]))\n"
        "bench.close()\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    head, there, sketch = json.loads(found.stdout)
    same = ("name", "status", "current", "card", "roles", "approval", "can")
    assert {key: head[key] for key in same} == {key: page.bench.head[key] for key in same}
    assert (there, sketch) == (rows(page.bench), page.bench.texts["sketch"])


def test_a_workbench_that_was_closed_is_made_anew_when_it_is_shown_again(session: Session) -> None:
    first = workbench_of(session)
    first.close()
    first.close()
    second = workbench_of(session)
    assert second is not first
    assert until(lambda: second.head["status"] == "waiting")


def test_each_page_that_one_process_serves_has_a_workbench_of_its_own(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as `marimo run` does: a thread for each page, and a page that is loaded again has another
    monkeypatch.setitem(sys.modules, "marimo", SimpleNamespace(running_in_notebook=lambda: True))
    with ThreadPoolExecutor(1) as page:
        first = page.submit(workbench_of, session).result()
        assert page.submit(workbench_of, session).result() is first
        with ThreadPoolExecutor(1) as other:
            assert other.submit(workbench_of, session).result() is not first
        assert not first.closed
    again = workbench_of(session)
    assert first.closed and not again.closed and until(lambda: again.head["status"] == "waiting")


def test_closing_leaves_no_thread_and_the_session_goes_on(session: Session) -> None:
    workbench_of(session).close()  # the cell's own, whose threads may start late
    before = set(threading.enumerate())
    bench = Workbench(session)
    Page(bench).ask("check", text=SKETCH)
    bench.close()
    names = ("kernellab-publisher", "kernellab-decisions", "kernellab-editor", "kernellab-questions")
    assert until(lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith(names)], 20)
    session.edit_sketch(SKETCH)
    session.wait(60)
    assert session.state.sketch_turn() is not None


def test_the_view_can_be_read_without_a_front_end(session: Session, page: Page) -> None:
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    bundle = page.bench._repr_mimebundle_()
    assert bundle is not None
    data = bundle[0]
    shown = re.sub(r"<[^>]+>", "", data["text/html"])  # the sketch is coloured: its words stand in spans
    assert "add_one" in data["text/plain"] and "for m in range(M)" in shown
    assert "application/vnd.jupyter.widget-view+json" in data


# -- deciding ----------------------------------------------------------------------------------------------------------


def test_an_edit_is_done_and_becomes_a_turn(session: Session, page: Page) -> None:
    assert page.act("sketch", text=SKETCH, base="") == ""
    assert until(lambda: "add_one" in page.bench.texts["sketch"])
    assert until(lambda: [row["state"] for row in rows(page.bench)] == ["done"])
    assert [(turn.role.value, turn.author.value) for turn in session.turns] == [("designer", "human")]


def test_an_edit_that_cannot_be_parsed_is_a_turn_with_its_line_named(session: Session, page: Page) -> None:
    assert page.act("sketch", text=SKETCH.replace("load(X[", "load(X[["), base="") == ""
    session.wait(60)
    assert until(lambda: page.bench.detail["gate"] and page.bench.detail["gate"]["state"] == "wrong")
    assert page.bench.detail["diagnostics"][0]["line"] == 8
    assert not session.status.ended


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"action": "explode"}, "'explode'"),
        ({"action": 3}, "3"),
        ({"action": "sketch", "base": ""}, "no 'text'"),
        ({"action": "source", "files": "x", "base": ""}, "no files"),
        ({"action": "fork", "turn": "t99"}, "no turn t99"),
        ({"action": "role", "role": "verifier", "value": "rules"}, "verifier"),
        ({"action": "role", "role": "coder", "value": "robot"}, "robot"),
        ({"action": "approval", "value": "sometimes"}, "sometimes"),
        ({"action": "pause"}, "Nothing is running"),
        ({"action": "pin", "line": "4", "on": True}, "no line"),
        ({"action": "note", "role": "coder", "text": "  "}, "empty"),
        ({"action": "budget", "value": "coffee=3"}, "coffee"),
        ({"action": "predict", "expected": 2, "reason": ""}, "Teaching mode is off"),
        ({"action": "approve", "card": "t1:route:conductor"}, "question is closed"),
        ({"action": "answer", "card": "brief-start-designer", "text": ""}, "empty"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_harms_nothing(
    quiet: tuple[Session, Page], body: dict[str, Any], sentence: str
) -> None:
    session, page = quiet
    before = session.state
    found = page.reply(page.post(body))
    assert found["kind"] == "done" and sentence in found["error"], found
    assert session.state == before
    assert until(lambda: page.bench.head["message"] == found["error"])


@pytest.mark.parametrize(
    "content", [None, 7, [], {}, {"id": "a"}, {"id": "b", "body": 5}, {"id": "c", "body": {"x": 1}}]
)
def test_what_is_no_message_is_answered_and_harms_nothing(session: Session, page: Page, content: Any) -> None:
    before = session.state
    page.bench._handle_custom_msg(content, [])
    assert page.ask("check", text=SKETCH)["diagnostics"] == []
    assert session.state == before


def test_a_double_click_is_carried_out_once(session: Session, page: Page) -> None:
    body = {"action": "sketch", "text": SKETCH, "base": ""}
    first = page.post(body)
    page.post(body, ident=first)
    assert "error" not in page.reply(first)
    again = page.reply(page.post(body))
    assert "has this text already" in again["error"]
    session.wait(60)
    assert len([turn for turn in session.turns if turn.sketch]) == 1


def test_an_answer_while_nothing_is_asked_is_refused(session: Session, page: Page) -> None:
    page.act("stop")
    assert "question is closed" in page.act("approve", card="brief-start-designer")
    assert "question is closed" in page.act("answer", card="brief-start-designer", text=SKETCH)
    assert session.status is SessionStatus.STOPPED


def test_of_two_browsers_that_answer_one_card_the_second_is_told(session: Session, page: Page) -> None:
    other = Page(page.bench)
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    assert until(lambda: page.bench.head["card"] and page.bench.head["card"]["role"] == "coder")
    card = page.bench.head["card"]["id"]
    assert page.act("source", files={"kernel.py": "def kernel(x): return x\n"}, base="") == ""
    refused = other.act("approve", card=card)
    assert "question is closed" in refused
    session.wait(60)
    page.act("note", role="coder", text="rows whole")
    assert until(lambda: page.bench.head["notes"].get("coder")) and page.bench.head["message"] == ""


def test_what_was_refused_is_not_said_of_a_session_that_has_moved_since(session: Session, page: Page) -> None:
    """By another way than this workbench, whose decisions each begin with nothing to say."""
    refused = page.act("approve", card="long ago")
    assert until(lambda: page.bench.head["message"] == refused)
    session.note("coder", "rows whole")
    assert until(lambda: page.bench.head["notes"].get("coder"))
    assert page.bench.head["message"] == ""


def test_an_edit_of_a_text_that_has_changed_since_is_refused_with_who_changed_it(session: Session, page: Page) -> None:
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    page.act("sketch", text=SKETCH.replace("= 16 in", "= 32 in"), base="t1")
    session.wait(60)
    turns = len(session.turns)
    refused = page.act("sketch", text=SKETCH.replace("x + 1", "1 + x"), base="t1")
    assert "has changed since you began" in refused and "(designer, human)" in refused
    assert len(session.turns) == turns


def test_an_edit_of_an_earlier_turn_that_is_looked_at_is_a_fork(session: Session, page: Page) -> None:
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    page.act("sketch", text=SKETCH.replace("= 16 in", "= 32 in"), base="t1")
    session.wait(60)
    page.bench.shown = "t1"
    assert page.act("sketch", text=SKETCH.replace("x + 1", "1 + x"), base="t1") == ""
    session.wait(60)
    newest = session.turns[-1]
    assert newest.parent == "t1" and "1 + x" in (newest.sketch or "")


def test_a_line_is_pinned_and_unpinned(session: Session, page: Page) -> None:
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    assert page.act("pin", line=8, on=True) == ""
    assert until(lambda: page.bench.detail["pins"] == [8])
    assert "#: pin" in session.sketch
    assert page.act("pin", line=8, on=False) == ""
    assert until(lambda: page.bench.detail["pins"] == [])
    assert "no statement" in page.act("pin", line=400, on=True)


def test_the_analyst_is_asked_and_the_budget_is_set(session: Session, page: Page) -> None:
    page.act("sketch", text=SKETCH, base="")
    session.wait(60)
    assert page.act("budget", value="tokens=1000") == ""
    assert until(lambda: page.bench.head["ledger"] and page.bench.head["ledger"]["budget"] == "tokens=1000")
    assert page.act("analyse", question="what came of it?") == ""
    assert until(lambda: [row for row in rows(page.bench) if row["role"] == "analyst" and row["state"] == "done"])
    assert session.head is not None and session.head.role.value == "designer"


def test_notes_and_roles_and_approval_are_set(session: Session, page: Page) -> None:
    assert page.act("note", role="designer", text="keep BLOCK <= 128") == ""
    assert page.act("role", role="conductor", value="human") == ""
    assert page.act("approval", value="all") == ""
    assert until(lambda: page.bench.head["approval"] == "all" and page.bench.head["roles"]["conductor"] == "human")
    assert "keep BLOCK <= 128" in str(session.state.notes)


def test_a_text_that_is_to_be_inserted_waits_for_the_magic(
    shell: InteractiveShell, session: Session, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = page.reply(page.post({"action": "insert", "text": "print('again')"}))
    assert "%kernel_insert" in found["note"]
    inserted: list[str] = []
    monkeypatch.setattr(shell, "set_next_input", inserted.append)
    shell.run_line_magic("kernel_insert", "")
    assert inserted == ["print('again')"]


# -- asking ------------------------------------------------------------------------------------------------------------


def test_the_brief_is_what_a_model_would_be_told(quiet: tuple[Session, Page]) -> None:
    brief = quiet[1].ask("brief")
    assert brief["expects"] == "sketch" and brief["role"] == "designer"
    assert "x + 1" in brief["text"]


def test_an_answer_to_the_brief_is_taken_as_a_models_reply(session: Session, page: Page) -> None:
    assert until(lambda: page.bench.head["card"])
    card = page.bench.head["card"]["id"]
    assert page.act("answer", card=card, text=f"Here it is.\n```sketch\n{SKETCH}```\n") == ""
    session.wait(60)
    assert session.sketch.strip() == SKETCH.strip()


def test_questions_that_have_no_answer_are_one_sentence(quiet: tuple[Session, Page]) -> None:
    page = quiet[1]
    for body, sentence in (
        ({"ask": "weather"}, "'weather'"),
        ({"ask": "check"}, "no 'text'"),
        ({"ask": "complete", "text": "", "line": "1", "col": 1}, "no number 'line'"),
        ({"ask": "exchange", "exchange": "e1"}, "no exchange e1"),
        ({"ask": "artefact", "name": "asm"}, "no code"),
        ({"ask": "compare", "a": "t1", "b": "t2"}, "no turn t1"),
    ):
        found = page.reply(page.post(body))
        assert found["kind"] == "answer" and sentence in found["error"], found


def test_a_check_that_was_overtaken_is_not_worked_out(quiet: tuple[Session, Page]) -> None:
    page = quiet[1]
    gate = threading.Event()
    page.bench._messages.submit_quick(gate.wait)
    old, other = page.post({"ask": "check", "text": SKETCH}), Page(page.bench)
    theirs = other.post({"ask": "check", "text": SKETCH})
    new = page.post({"ask": "check", "text": SKETCH + "\n"})
    gate.set()
    assert page.reply(old)["error"] == "superseded"
    assert "value" in page.reply(new) and "value" in other.reply(theirs)


# -- a whole session ---------------------------------------------------------------------------------------------------


def test_a_prediction_is_asked_for_before_the_measurement_and_compared_after(story: tuple[Any, Any]) -> None:
    session, bench = story
    shown = bench.head["prediction"]
    assert bench.head["teaching"] and not shown["asked"]
    assert (shown["turn"], shown["expected"], shown["reason"]) == ("t2", 2, "it is bound by memory")
    assert shown["measured"] == session.verdict.speedup
    assert [(row["turn"], row["expected"]) for row in shown["history"]] == [("t2", 2)]
    assert bench.head["approval"] == "none"


def test_a_story_ends_with_its_first_measurement_where_the_machine_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that was timed slower than eager by a loaded machine has the rules measure their designs."""
    monkeypatch.setattr("kernellab.agents.rules.slow.is_slow", lambda verdict: True)
    session, bench = played(tmp_path, options={"level": "T0"})
    bench.close()
    assert [turn.role.value for turn in session.turns] == ["designer", "coder", "verifier", "conductor"]


def test_the_head_names_the_best_with_its_baseline_and_trust(story: tuple[Any, Any]) -> None:
    bench = story[1]
    assert [row["state"] for row in rows(bench)] == ["done", "done", "passed", "done"]
    verdict = bench.detail["verdict"]
    assert verdict["passed"] and bench.detail["stages"][0]["name"] == "static"
    assert verdict["comparisons"][0]["baseline"] == "eager"
    assert "PyTorch eager" in verdict["comparisons"][0]["title"] and "T2" in verdict["comparisons"][0]["title"]
    best = bench.head["best"]
    assert (
        best["turn"] == "t3"
        and best["trust"] == "T2"
        and best["speedups"][0]["text"].startswith(f"{best['speedups'][0]['value']:.2f}x eager [")
    )
    assert "speed-of-light" in best["headroom"]["title"]


def test_library_headers_and_assembly_come_when_they_are_asked_for(story: tuple[Any, Any]) -> None:
    bench = story[1]
    page = Page(bench)
    assert bench.texts["main_file"] == "kernel.cpp" and "kl_tile.h" not in bench.texts["files"]
    assert {"asm", "kl_tile.h"} <= set(bench.texts["artefacts"])
    assembly = page.ask("artefact", name="asm")
    source = bench.texts["files"]["kernel.cpp"].splitlines()
    assert assembly["file"] == "kernel.cpp" and assembly["lines"]
    assert all(1 <= line <= len(source) for line in assembly["lines"].values())
    assert {"vector width", "hottest loop"} <= {fact["name"] for fact in assembly["facts"]}
    assert "namespace kl" in page.ask("artefact", name="kl_tile.h")["text"]


def test_where_the_time_goes_is_told_by_the_lines_of_the_code(story: tuple[Any, Any]) -> None:
    session, bench = story
    page = Page(bench)
    found = page.ask("heat")
    verdict = session.turns[2].verdict
    if verdict.hot is None or not verdict.hot.spots:  # a system without program counters
        assert found == {"file": "", "lines": [], "told": []}
        return
    text = session.source.files["kernel.cpp"].splitlines()
    shares = [line["share"] for line in found["lines"]]
    assert found["file"] == ("kernel.cpp" if shares else "") and shares == sorted(shares, reverse=True)
    assert 0 <= sum(shares) <= 1.0 and all(text[line["line"] - 1].strip() for line in found["lines"])
    others = set(found["told"]) - {line["text"] for line in found["lines"]}
    assert len(others) <= (sum(shares) < 0.95), "a line's sentence, or the share that is at no line"


def test_candidates_come_by_the_page(story: tuple[Any, Any]) -> None:
    bench = story[1]
    found = Page(bench).ask("candidates", offset=0, limit=10, sort="speedup")
    assert found["total"] == 1 and found["rows"][0]["turn"] == "t2"
    assert Page(bench).ask("candidates", offset=50, limit=10)["rows"] == []


# -- magics do what the buttons do -------------------------------------------------------------------------------------


def test_a_sketch_with_a_typo_says_so_in_its_own_cell(
    shell: InteractiveShell, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell_magic("kernel_sketch", "add_one", SKETCH.replace("load(", "laod(", 1))
    assert re.search(r"^line \d+: error SK\d+: .*laod", capsys.readouterr().out, re.MULTILINE)


def test_the_magics_do_what_the_buttons_do(
    shell: InteractiveShell, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.run_cell_magic("kernel_sketch", "add_one", SKETCH)
    session.wait(60)
    assert [turn.author.value for turn in session.turns if turn.sketch] == ["human"]
    shown = shell.run_line_magic("kernel_show", "add_one sketch")
    assert "for m in range(M)" in repr(shown) and "<pre" in shown._repr_html_()
    assert "designer" in repr(shell.run_line_magic("kernel_show", "turns"))
    assert "no verdict yet" in repr(shell.run_line_magic("kernel_show", "add_one verdict"))
    assert "x + 1" in repr(shell.run_line_magic("kernel_show", "add_one brief"))
    capsys.readouterr()
    shell.run_line_magic("kernel_note", "add_one coder keep it simple")
    assert "The coder reads this note" in capsys.readouterr().out
    shell.run_line_magic("kernel_note", "add_one conductor go on")
    assert "played by rules, which read no notes" in capsys.readouterr().out
    shell.run_line_magic("kernel_pin", "add_one 8 --reason the layout is fixed")
    assert "#: pin" in session.sketch
    with pytest.raises(SessionError, match="You are the Coder"):
        shell.run_line_magic("kernel_run", "add_one")
    with pytest.raises(SessionError, match="Teaching mode is off"):
        shell.run_line_magic("kernel_predict", "add_one 2 it is bound by memory")
    with pytest.raises(SessionError, match="No measurement waits"):
        shell.run_line_magic("config", "KernelLab.teaching = True")
        shell.run_line_magic("kernel_predict", "add_one 2")
    shell.run_line_magic("config", "KernelLab.teaching = False")
    shell.run_line_magic("kernel_stop", "add_one")
    assert session.status is SessionStatus.STOPPED


def test_a_cell_without_a_reference_is_one_sentence_and_binds_nothing(shell: InteractiveShell) -> None:
    with pytest.raises(TaskError, match="does not define a reference"):
        shell.run_cell_magic("kernel_design", "nothing --dsl cpp", "x = 1")
    assert "nothing" not in shell.user_ns


def test_a_note_is_listed_and_can_be_taken_back(session: Any, page: Page) -> None:
    assert page.act("note", role="coder", text="keep BLOCK small") == ""
    assert until(lambda: page.bench.head["notes"] == {"coder": ["keep BLOCK small"]})
    assert "no such note" in page.act("unnote", role="coder", text="something else")
    assert page.act("unnote", role="coder", text="keep BLOCK small") == ""
    assert until(lambda: page.bench.head["notes"] == {})


def test_the_best_kernel_and_the_candidates_can_be_downloaded(story: tuple[Any, Any]) -> None:
    _, bench = story
    page = Page(bench)
    module = page.reply(page.post({"ask": "export", "what": "module"}))["value"]
    assert module["name"] == "add_one.py"
    compile(module["text"], "add_one.py", "exec")
    assert "def kernel" in module["text"] and "kernellab" not in module["text"].split('"""')[2]
    table = page.reply(page.post({"ask": "export", "what": "candidates"}))["value"]["text"].splitlines()
    assert table[0].startswith("candidate,author,passed,best")
    assert table[1].startswith("2,rules,True,True,T2,")
    assert bench.head["call"] == "add_one.best(x)"


def test_a_pages_messages_go_to_the_subshell_that_it_names_not_to_that_of_another_page() -> None:
    """ipykernel sends them to the one that was at work when the widget last published, alive or not."""
    comms = pytest.importorskip("ipykernel.comm.comm")
    comm = comms.BaseComm(target_name="jupyter.widget")
    comm._reply_subshell_id = "ended"
    by_page(comm)
    assert comm._reply_subshell_for({"content": {"id": "1"}}, "mine") == "mine"
    assert comm._reply_subshell_for({}, None) is None
    by_page(None)


def test_a_ping_is_answered_at_once_whatever_else_is_under_way(quiet: tuple[Session, Page]) -> None:
    page, gate = quiet[1], threading.Event()
    for _ in range(3):
        page.bench._messages.submit(gate.wait)
    page.bench._messages.submit_quick(gate.wait)
    heard = page.reply(page.post({"ping": True}))
    gate.set()
    assert (heard["kind"], heard["value"]) == ("answer", True)


def test_a_person_who_is_the_conductor_sends_the_work_on_by_a_button(tmp_path: Path) -> None:
    session = design(TASK, dsl="cpp", name="led", roles="designer=human,conductor=human", workspace=tmp_path)
    session.wait(60)
    bench = Workbench(session)
    page = Page(bench)
    assert page.act("sketch", text=SKETCH.replace("x + 1 ", "x + 2 ")) == ""
    assert until(lambda: bench.head["card"] and bench.head["card"]["role"] == "conductor")
    card = bench.head["card"]
    assert (card["kind"], card["editable"], card["to"]) == ("brief", True, None)
    assert page.act("approve", card=card["id"], to="designer", suggestion="add one") == ""
    assert until(lambda: bench.head["card"] and bench.head["card"]["role"] == "designer")
    assert session.turns[-1].route is not None and session.turns[-1].route.suggestion == "add one"
    bench.close()
    session.stop()
