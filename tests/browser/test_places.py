"""The workbench in more than one place at once, and in other lights and widths."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, clean, no_errors, notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

#: a person is Designer and Coder: nothing is judged until they have answered
DESIGN = """%%kernel_design {name} --dsl cpp --roles designer=human,coder={coder} --approve all --baseline eager
import torch
def reference(x):
    return x * 2 + {add}
def inputs():
    return torch.randn(64, 64)
"""
SKETCH = """Row by row.
```sketch
sketch one {{
    tensors: x[64, 64]: f32; y[64, 64]: f32 out;
    for m in range(64):
        load(x[m, 0:64] -> row)
        store(row * 2.0 + {add}.0 -> y[m, 0:64])
}}
```
"""
#: the session "one" in another notebook, whose kernel only looks on
AGAIN = """from kernellab.session import open_session
one = open_session("one", resume=False)
%kernel_show one"""
#: what the focus is on, by its spoken name; null outside of the workbench
FOCUS = """(root) => {
    const at = document.activeElement;
    if (!root.contains(at)) return null;
    const labels = [...(at.labels ?? [])].map((one) => one.textContent);
    return at.getAttribute("aria-label") || labels.join(" ") || at.textContent || at.title || "nameless";
}"""


def test_two_notebooks_two_browsers_dark_and_narrow(page: Lab, workspace: Path) -> None:
    for add, (name, coder) in enumerate((("one", "rules"), ("two", "human")), 1):
        notebook(workspace, f"{name}.ipynb", "%load_ext kernellab", DESIGN.format(name=name, add=add, coder=coder))
    notebook(workspace, "again.ipynb", "%load_ext kernellab", AGAIN)
    page.open("one.ipynb")
    one = _begun(page, "one")
    page.save()
    page.open_too("two.ipynb")
    two = _begun(page, "two")
    assert two.root.get_by_text("one", exact=True).count() == 0

    _walks_through_by_keys(two)
    _an_answer_that_holds_nothing_is_refused(two)
    _is_legible_in_every_theme_and_width(page, two)

    page.front("one.ipynb")
    other = page.other("one.ipynb")
    _two_browsers_answer_one_question(one, Board(other.page, "one"))
    _another_notebook_follows(page, Board(other.page, "one"))
    page.front("two.ipynb")
    _a_human_coder_is_told_what_is_wrong(two)
    clean(page)
    clean(other)


def test_with_shared_editing_two_browsers_work_on_one_notebook(page: Lab, workspace: Path) -> None:
    pytest.importorskip("jupyter_server_ydoc", reason="documents are not shared (pip install jupyter-collaboration)")
    notebook(workspace, "one.ipynb", "%load_ext kernellab", DESIGN.format(name="one", add=1, coder="rules"))
    page.open("one.ipynb")
    one = _begun(page, "one")
    other = page.other("one.ipynb")
    source = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells[0].source"
    page.page.evaluate(f"{source} = '%load_ext kernellab  # typed'")
    other.page.wait_for_function(f"{source}.endsWith('typed')")
    _two_browsers_answer_one_question(one, Board(other.page, "one"))
    clean(page)
    clean(other)


def _begun(page: Lab, name: str) -> Board:
    no_errors(page.run(0))
    no_errors(page.run(1))
    board = Board(page.page, name)
    board.wait("waiting", SOON)
    board.card.get_by_role("heading", name="You are the Designer").wait_for(timeout=SOON)
    return board


def _walks_through_by_keys(board: Board) -> None:
    """Every part has a key, and Tab goes through all that can be used, by name, and out again."""
    keys = board.page.keyboard
    board.root.evaluate("root => root.focus()")
    keys.press("t")
    assert board.root.evaluate(FOCUS) == "timeline of turns"
    keys.press("?")
    board.root.get_by_role("dialog").wait_for(timeout=SOON)
    keys.press("Escape")
    board.root.get_by_role("dialog").wait_for(state="detached", timeout=SOON)
    keys.press("3")
    board.root.locator(".kl-panel-verdict").wait_for(state="visible", timeout=SOON)
    board.root.evaluate("root => root.focus()")
    names = []
    for _ in range(80):
        keys.press("Tab")
        name = board.root.evaluate(FOCUS)
        if name is None:
            break
        names.append(name)
    assert name is None, f"Tab does not leave the workbench: {names[-6:]}"
    assert "nameless" not in names
    for wanted in ("Verdict", "Answer", "Run", "Stop", "your answer as the designer", "Coder"):
        assert any(wanted in found for found in names) or board.root.get_by_label(wanted).count() == 0, wanted


def _an_answer_that_holds_nothing_is_refused(board: Board) -> None:
    """Without a mouse: the key q goes to the question, and Control and Enter send."""
    board.root.evaluate("root => root.focus()")
    board.page.keyboard.press("q")
    board.card.get_by_label("your answer as the designer").focus()
    board.page.keyboard.insert_text("I do not know.")
    board.page.keyboard.press("ControlOrMeta+Enter")
    board.card.locator(".kl-bad").wait_for(timeout=SOON)
    assert "sketch" in board.card.locator(".kl-bad").inner_text()
    board.wait("waiting", SOON)
    assert board.card.get_by_label("your answer as the designer").input_value() == "I do not know."


def _is_legible_in_every_theme_and_width(page: Lab, board: Board) -> None:
    for theme in ("dark", "light"):
        page.theme(theme)
        assert board.faint() == []
    page.page.evaluate("window.jupyterapp.commands.execute('application:toggle-left-area')")
    for width in (1400, 700, 480):
        page.page.set_viewport_size({"width": width, "height": 1000})
        for panel in ("sketch", "code", "verdict", "roofline", "prompt", "candidates", "accesses"):
            board.panel(panel)
            assert board.too_wide() == [], f"{panel} at {width}"
    page.page.set_viewport_size({"width": 1400, "height": 1000})
    board.panel("sketch")


def _two_browsers_answer_one_question(one: Board, other: Board) -> None:
    """Both have the same question open and answer it at once: one answer counts, and both see the same."""
    other.card.get_by_role("heading", name="You are the Designer").wait_for(timeout=SOON)
    for board in (one, other):
        board.card.get_by_label("your answer as the designer").fill(SKETCH.format(add=1))
    # both buttons are at hand before the first is pressed, so the second press is late however quick the views are
    buttons = [board.act("answer").element_handle() for board in (one, other)]
    for button in buttons:
        button.evaluate("button => { button.click(); button.click(); }")
    for board in (one, other):
        board.wait_turn("designer by human, done", SOON)
        board.wait("waiting", SOON)
    _agree(one, other)
    assert sum("designer" in turn for turn in one.turns()) == 1
    other.act("approve").click()
    for board in (one, other):
        board.wait_turn("^turn 2, coder by rules, done", SOON)
    _agree(one, other)


def _agree(one: Board, other: Board) -> None:
    """Two views come to show the same turns; a message may be under way to one of them."""
    end = time.monotonic() + SOON / 1000
    while one.turns() != other.turns() and time.monotonic() < end:
        one.page.wait_for_timeout(100)
        other.page.wait_for_timeout(100)
    assert one.turns() == other.turns()


def _another_notebook_follows(page: Lab, other: Board) -> None:
    """A kernel that only looks on shows what another one's session does, soon after."""
    page.open_too("again.ipynb")
    no_errors(page.run(0))
    no_errors(page.run(1))
    again = Board(page.page, "one")
    again.wait("waiting", SOON)
    _agree(again, other)
    other.act("approve").click()
    again.wait_turn("^turn 3, verifier by rules", SOON)


def _a_human_coder_is_told_what_is_wrong(board: Board) -> None:
    board.card.get_by_label("your answer as the designer").fill(SKETCH.format(add=2))
    board.act("answer").click()
    # who plays the next role is asked by its brief, and by no question before it
    board.wait_turn("designer by human, done", SOON)
    board.card.get_by_role("heading", name="You are the Coder").wait_for(timeout=SOON)
    board.card.get_by_label("your answer as the coder").fill("FILE: kernel.py\n```python\ndef kernel(x:\n```\n")
    board.act("answer").click()
    board.card.locator(".kl-bad").wait_for(timeout=SOON)
    assert "kernel.py:1:" in board.card.locator(".kl-bad").inner_text()
