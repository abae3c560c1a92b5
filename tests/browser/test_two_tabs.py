"""One notebook in two pages of JupyterLab, and in one whose kernel has ended: both stay of use."""

from __future__ import annotations

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, no_errors, notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

DESIGN = """%%kernel_design one --dsl cpp --roles designer=human --approve all --baseline eager
import torch
def reference(x):
    return x * 2 + 1
def inputs():
    return torch.randn(64, 64)
"""
_PANEL = "window.jupyterapp.shell.currentWidget"
#: a subshell of the kernel that ends while a page still sends to it
_END_SUBSHELL = f"""async () => {{
    const kernel = {_PANEL}.sessionContext.session.kernel;
    const own = () => [...kernel._comms.values()].filter(comm => comm.subshellId);
    for (let n = 0; n < 100 && !own().length; n++) await new Promise(done => setTimeout(done, 100));
    const comms = own();
    await kernel.requestDeleteSubshell({{subshell_id: comms[0].subshellId}}, true).done;
    return comms.length;
}}"""


def test_a_page_whose_subshell_has_ended_still_takes_decisions_and_save(page: Lab, workspace: Path) -> None:
    notebook(workspace, "one.ipynb", "%load_ext kernellab", DESIGN)
    page.open("one.ipynb")
    no_errors(page.run(0))
    no_errors(page.run(1))
    board = Board(page.page, "one")
    board.wait("waiting", SOON)

    _is_in_sight_and_leads_to_the_editor(page, board)
    _control_s_saves(page, board)
    page.save()
    saved = workspace / "one.ipynb"
    assert saved.stat().st_size < 150_000 and "widgets" not in json.loads(saved.read_text())["metadata"]
    other = page.other("one.ipynb")
    Board(other.page, "one").wait("waiting", SOON)
    # JupyterLab ends one when a page has asked for all widgets' states; here at a moment that the test knows
    assert other.page.evaluate(_END_SUBSHELL) > 0
    assert page.page.evaluate(_END_SUBSHELL) > 0
    if find_spec("jupyter_server_ydoc") is None:  # a shared notebook's outputs would be written again, and mixed up
        _untrusted_is_shown_on_a_word(other)
    board.root.get_by_role("button", name="Stop", exact=True).click()
    board.wait("stopped", 20_000)
    Board(other.page, "one").wait("stopped", 20_000)
    assert board.root.get_by_text("Kernel busy").count() == 0


def test_a_page_whose_kernel_has_ended_shows_what_was_recorded(page: Lab, workspace: Path) -> None:
    notebook(
        workspace,
        "one.ipynb",
        "%load_ext kernellab",
        DESIGN,
        "%kernel_show one",
        "import ipywidgets\nipywidgets.Button()",
    )
    page.open("one.ipynb")
    for cell in range(4):
        no_errors(page.run(cell))
    board = Board(page.page, "one")
    board.wait("waiting", SOON)
    page.save()
    page.restart()
    board.root.locator("[data-action=stop][aria-disabled=true]").wait_for(timeout=SOON)
    board.root.get_by_text("it is gone or was restarted").first.wait_for(timeout=3_000)
    assert board.root.get_by_text("Cannot send").count() == 0

    page.reload()
    page.page.locator(".kernellab-ended").nth(1).wait_for(timeout=SOON)
    assert page.page.get_by_text("waiting for you").first.is_visible()
    # another's widget is not ours to replace
    assert page.page.get_by_text("Error displaying widget").count() == 1
    no_errors(page.run(0))
    no_errors(page.run(1))
    Board(page.page, "one").wait("waiting", SOON)


def test_a_kernel_that_was_killed_is_told_without_a_click(page: Lab, workspace: Path) -> None:
    """The server looks at its kernels every 3 s, and says so; what was recorded stands until the cell is run again."""
    notebook(workspace, "one.ipynb", "%load_ext kernellab", DESIGN, "import os\nos.getpid()")
    page.open("one.ipynb")
    no_errors(page.run(0))
    no_errors(page.run(1))
    pid = int(page.run(2)[0]["data"]["text/plain"])
    board = Board(page.page, "one")
    board.wait("waiting", SOON)
    os.kill(pid, signal.SIGKILL)
    board.root.get_by_text("it is gone or was restarted").first.wait_for(timeout=9_000)
    board.wait("waiting", 1_000)
    assert page.page.get_by_text("Error displaying widget").count() == 0


def _is_in_sight_and_leads_to_the_editor(page: Lab, board: Board) -> None:
    """A new session is shown whole, to its buttons, though its cell is above it; a question's first answer is typed."""
    inside = "root => root.getBoundingClientRect().bottom <= innerHeight"
    page.page.wait_for_function(inside, arg=board.root.element_handle(), timeout=5_000)
    board.act("answer-in-panel").click(timeout=SOON)
    page.page.wait_for_function("document.activeElement?.closest('.kl-panel-sketch .cm-content')", timeout=5_000)


def _control_s_saves(page: Lab, board: Board) -> None:
    page.say("x = 1")
    page.page.wait_for_function(f"{_PANEL}.context.model.dirty")
    board.root.evaluate("root => root.focus()")
    page.page.keyboard.press("ControlOrMeta+s")
    page.page.wait_for_function(f"{_PANEL}.context.model.dirty === false", timeout=5_000)
    # an editor keeps its keys from the notebook, but not this one
    page.say("x = 2")
    page.page.wait_for_function(f"{_PANEL}.context.model.dirty")
    board.panel("sketch").locator(".cm-content").first.focus()
    page.page.keyboard.press("ControlOrMeta+s")
    page.page.wait_for_function(f"{_PANEL}.context.model.dirty === false", timeout=5_000)


def _untrusted_is_shown_on_a_word(page: Lab) -> None:
    """Of a cell that another person runs in a shared notebook, JupyterLab shows no view by itself."""
    page.page.evaluate(f"{_PANEL}.content.widgets[1].model.trusted = false")
    page.page.get_by_role("button", name="Trust and show it").click(timeout=SOON)
    Board(page.page, "one").wait("waiting", SOON)
