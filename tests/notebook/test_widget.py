"""The live view and the magics on real sessions: people play the roles, so that nothing waits for a compiler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from kernellab.errors import SessionError, TaskError
from kernellab.notebook.widget import SessionWidget, widget_of
from kernellab.session import Session, SessionStatus

TASK = """
import torch
def reference(x):
    return x + 1
def inputs():
    return torch.randn(64, 64)
"""
SKETCH = """
sketch add_one {
    symbols: M, N;
    tensors: X[M, N]: f32; Y[M, N]: f32 out;
    constexpr: BLOCK = 16;
    @llm_hint("parallel")
    for m in range(M):
        for n in range(0, N, BLOCK):
            load(X[m, n:n+BLOCK] -> x)
            store(x + 1 -> Y[m, n:n+BLOCK])
}
"""


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not condition():
        time.sleep(0.02)
    return condition()


def click(widget: SessionWidget, action: str, **payload: Any) -> None:
    """As a message of the front end arrives."""
    widget._handle_custom_msg({"id": f"{action}-click", "action": action, **payload}, [])
    assert until(lambda: widget.ack == f"{action}-click")


@pytest.fixture
def session(shell: InteractiveShell) -> Iterator[Session]:
    """A session that waits for a person's sketch."""
    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human,coder=human", TASK)
    session = shell.user_ns["add_one"]
    assert isinstance(session, Session)
    session.wait(60)
    yield session
    widget_of(session).close()
    if not session.status.ended:
        session.stop()


def test_the_design_cell_binds_its_name_and_shows_one_view(shell: InteractiveShell, session: Session) -> None:
    assert session.name == "add_one" and session.status is SessionStatus.WAITING
    widget = widget_of(session)
    assert widget_of(session) is widget
    assert until(lambda: widget.state["status"] == "waiting")
    assert widget.state["card"]["kind"] == "brief"


def test_the_same_cell_run_again_is_the_same_session(shell: InteractiveShell, session: Session) -> None:
    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human,coder=human", TASK)
    assert shell.user_ns["add_one"] is session
    shell.run_cell_magic("kernel_design", "add_one --dsl cpp --roles designer=human", TASK)
    other = shell.user_ns["add_one"]
    assert other is not session
    other.stop()


def test_a_click_is_acknowledged_and_becomes_a_turn(session: Session) -> None:
    widget = widget_of(session)
    click(widget, "sketch", text=SKETCH)
    assert until(lambda: "add_one" in widget.texts["sketch"])
    assert until(lambda: [turn["state"] for turn in widget.state["turns"]] == ["done"])
    assert [(turn.role.value, turn.author.value) for turn in session.turns] == [("designer", "human")]


def test_a_click_that_cannot_be_done_becomes_a_sentence_in_the_view(session: Session) -> None:
    widget = widget_of(session)
    click(widget, "fork", turn="t99")
    assert until(lambda: "no turn t99" in widget.error)
    click(widget, "explode")
    assert until(lambda: "'explode'" in widget.error)
    click(widget, "approval", value="all")
    assert until(lambda: session.state.approval == "all")
    assert widget.error == ""


def test_the_magics_do_what_the_buttons_do(shell: InteractiveShell, session: Session) -> None:
    shell.run_cell_magic("kernel_sketch", "add_one", SKETCH)
    session.wait(60)
    assert [turn.author.value for turn in session.turns if turn.sketch] == ["human"]
    shown = shell.run_line_magic("kernel_show", "add_one sketch")
    assert "for m in range(M)" in repr(shown) and "<pre>" in shown._repr_html_()
    assert "designer" in repr(shell.run_line_magic("kernel_show", "turns"))
    assert "no verdict yet" in repr(shell.run_line_magic("kernel_show", "add_one verdict"))
    with pytest.raises(SessionError, match="You are the Coder"):
        shell.run_line_magic("kernel_run", "add_one")


def test_the_only_session_needs_no_name(shell: InteractiveShell, session: Session) -> None:
    assert shell.find_line_magic("kernel_show") is not None
    assert "no sketch yet" in repr(shell.run_line_magic("kernel_show", "sketch"))


def test_a_cell_without_a_reference_is_one_sentence_and_binds_nothing(shell: InteractiveShell) -> None:
    with pytest.raises(TaskError, match="does not define a reference"):
        shell.run_cell_magic("kernel_design", "nothing --dsl cpp", "x = 1")
    assert "nothing" not in shell.user_ns


def test_the_view_can_be_read_without_a_front_end(session: Session) -> None:
    bundle = widget_of(session)._repr_mimebundle_()
    assert bundle is not None
    data = bundle[0]
    assert "add_one" in data["text/plain"] and "add_one" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data


def test_what_travels_is_small_and_plain(session: Session) -> None:
    widget = widget_of(session)
    click(widget, "sketch", text=SKETCH)
    assert until(lambda: [turn["state"] for turn in widget.state["turns"]] == ["done"])
    assert len(json.dumps(widget.state)) < 10_000
