"""A person's whole way through a session, in a real JupyterLab: clicks and keys only, and cells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, clean, no_errors, notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(900),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

DESIGN = """%%kernel_design rms_norm --dsl cpp --approve routing --baseline eager
import torch
from kernellab import Dim

def reference(x, w, eps: float = 1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w

M, N = Dim("M", 1, 4096), Dim("N", 16, 2048)
def inputs(M=512, N=512):
    return torch.randn(M, N), torch.rand(N)
"""

#: where the design's cell is, when the palette has put one before it
CELL = 2
#: the row in blocks; three names in it are misspelt
BLOCKS = """sketch rms_norm {
    symbols: M, N;
    tensors: x[M, N]: f32; w[N]: f32; y[M, N]: f32 out;
    constexpr: eps = 1e-6; BLOCK = 64 in {64, 256};

    @llm_hint("parallel")
    for m in range(M):
        acc = alloc([BLOCK], f32, llm_hint=["accumulator", "init_zero"])
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> tile)
            acc = acc + tile * tille
        scale = rsqrt(reduce_sum(acc, axis=0) / N + eps)
        for n in range(0, N, BLOCK):
            load(x[m, n:n+BLOCK] -> again)
            load(w[n:n+BLOCK] -> weight)
            store(agian * scale * wieght -> y[m, n:n+BLOCK])
}
"""
#: the line of each, and what the checker proposes
WRONG = {"tille": (11, "tile"), "agian": (16, "again"), "wieght": (16, "weight")}
PINNED_LINE = 6  # the hint, and with it the loop's header

#: an agent that does not keep the pin: its revision runs the rows one after another
CARELESS = """
from kernellab.agents.briefs import DesignReply

class Careless:
    author = "model"
    def design(self, brief):
        return DesignReply(brief.previous.replace('    @llm_hint("parallel")\\n', "").replace("  #: pin", ""))

rms_norm.set_role("designer", Careless())
rms_norm.set_role("conductor", "human")
rms_norm.redirect("designer", "one row after another")
"""


def test_design_redirect_edit_pin_fork_and_export(page: Lab, workspace: Path) -> None:
    notebook(workspace, "book.ipynb", "%load_ext kernellab", DESIGN)
    page.open("book.ipynb")
    _loads_from_the_palette(page)
    no_errors(page.run(CELL))
    board = Board(page.page, "rms_norm")
    _designs(board)
    _stops_during_a_verdict(board)
    _asks_and_is_redirected(board)
    page.reload()
    _edits_the_sketch(board)
    turns = board.turns()
    _continues_after_a_restart(page, board, turns)
    _pins_a_line(page, board)
    _forks(board)
    _takes_it_along(board)
    clean(page)


def _loads_from_the_palette(page: Lab) -> None:
    """Control, Shift and C, some letters, Enter: there is a second cell, which has run."""
    page.page.keyboard.press("ControlOrMeta+Shift+c")
    page.page.keyboard.type("load kernellab")
    page.page.keyboard.press("Enter")
    cell = "window.jupyterapp.shell.currentWidget.content.widgets[1]?.model"
    loaded = f"{cell}?.sharedModel.source === '%load_ext kernellab' && {cell}.executionCount"
    page.page.wait_for_function(loaded, timeout=SOON)


def _designs(board: Board) -> None:
    board.wait("finished")
    board.wait_turn("verifier by rules, passed")
    assert "x eager" in board.headline
    assert "T2" in board.headline


def _stops_during_a_verdict(board: Board) -> None:
    """Stop ends the judge at once: the turn says so, and nothing is recorded afterwards."""
    code = board.panel("code")
    board.to_end_of(code, "const float scale = ")
    board.page.keyboard.insert_text("  // mine")
    board.act("apply").click()
    board.wait_turn("verifier by rules, running", SOON)
    board.act("stop").click()
    board.wait("stopped", SOON)
    stopped = board.turns()
    assert re.search("verifier by rules, stopped.*[Ss]topped by you", stopped[-1])
    board.page.wait_for_timeout(2_000)
    assert board.turns() == stopped


def _asks_and_is_redirected(board: Board) -> None:
    """A person's broken code is refused; the Conductor asks; its proposal is sent to the Designer in other words."""
    code = board.panel("code")
    board.to_end_of(code, "const float scale = ")
    line = board.editor(code).locator(".cm-activeLine").inner_text()
    assert "1e-06f)" in line
    board.page.keyboard.press("Home")
    board.page.keyboard.insert_text("// ")
    board.page.keyboard.press("End")
    board.page.keyboard.press("Enter")
    board.page.keyboard.insert_text("const float scale = 1.0f;")
    board.act("apply").click()
    board.wait("waiting")
    verdict = board.panel("verdict")
    verdict.get_by_text("Failed at").wait_for(timeout=SOON)
    assert "First failing case" in verdict.inner_text()
    card = board.card
    card.wait_for(timeout=SOON)
    card.get_by_label("suggestion for the next role").fill("start again from the reference")
    board.act("to-designer").dblclick()  # a hasty one: the second click does nothing more
    board.wait_turn("conductor by human")
    board.wait("finished")
    assert sum("conductor by human" in turn for turn in board.turns()) == 1
    board.wait_turn("start again from the reference")


def _edits_the_sketch(board: Board) -> None:
    """Wrong names are marked at their lines, all at once; one is fixed by hand, the others by what is proposed. Applied
    it is a turn, with a new time."""
    sketch = board.panel("sketch")
    board.paste(sketch, BLOCKS)
    findings = sketch.get_by_label("findings of the checker")
    findings.get_by_text(f"error, line {WRONG['tille'][0]}", exact=False).wait_for(timeout=SOON)
    for wrong, (line, _) in WRONG.items():
        assert f"line {line}" in findings.inner_text() and wrong in findings.inner_text()
    mark = sketch.locator(".cm-lintRange-error").first
    assert "tille" in mark.inner_text()
    assert board.act("apply").get_attribute("aria-disabled") == "true"
    board.to_end_of(sketch, "tille")
    for _ in "lle":
        board.page.keyboard.press("Backspace")
    board.page.keyboard.type("le")
    board.page.keyboard.press("Escape")  # the list of completions
    for wrong in ("agian", "wieght"):
        board.checked(sketch)
        sketch.get_by_role("button", name=f"Change to {WRONG[wrong][1]}", exact=True).click()
    board.checked(sketch)
    findings.wait_for(state="detached", timeout=SOON)
    assert "on chip" in sketch.get_by_label("cost and footprint").inner_text()
    before = sum("verifier" in turn for turn in board.turns())
    board.act("apply").click()
    board.wait_turn("designer by human, done, sketch right")
    board.wait("finished")
    judged = [turn for turn in board.turns() if "verifier" in turn]
    assert len(judged) == before + 1
    assert re.search(r"passed: [\d.]+x eager \[[\d., ]+\](, no difference)?, [\d.]+ ms", judged[-1])
    code = board.panel("code")
    assert "BLOCK" in board.text(code)


def _continues_after_a_restart(page: Lab, board: Board, turns: list[str]) -> None:
    """The widget of a kernel that is gone says so; the cell run again shows the same tree, from the journal."""
    page.restart()
    board.root.get_by_text("kernel gone").wait_for(timeout=SOON)
    assert "Run the cell again" in board.root.inner_text()
    no_errors(page.run(0))
    no_errors(page.run(CELL))
    board.wait("finished")
    assert board.turns() == turns


def _pins_a_line(page: Lab, board: Board) -> None:
    """A click in the gutter pins; an agent's revision that changes the line is refused, with the line named."""
    sketch = board.panel("sketch")
    # the new kernel has read the task again by itself
    sketch.get_by_label("cost and footprint").get_by_text("on chip").wait_for(timeout=SOON)
    before = len(board.turns())
    # the gutter's first element only gives it its width
    sketch.locator(".kl-pins .cm-gutterElement").nth(PINNED_LINE).click()
    sketch.locator("[data-pinned]").wait_for(timeout=SOON)
    board.wait_turn(rf"^turn {before + 1}, designer by human, done", SOON)
    no_errors(page.say(CARELESS))
    board.wait("waiting")
    refused = board.wait_turn("designer by model")
    assert "pinned" in refused
    assert "parallel" in refused


def _forks(board: Board) -> None:
    count = len(board.turns())
    board.look(3)
    board.act("fork").click()
    board.wait("paused", SOON)
    assert len(board.turns()) == count
    board.act("fork").wait_for()


def _takes_it_along(board: Board) -> None:
    board.act("take").click()
    assert "rms_norm.best(" in board.root.get_by_role("toolbar", name="use the best kernel").inner_text()
    with board.page.expect_download(timeout=SOON) as saved:
        board.act("export").click()
    assert saved.value.suggested_filename == "rms_norm.py"
    assert "def kernel" in Path(saved.value.path()).read_text()
