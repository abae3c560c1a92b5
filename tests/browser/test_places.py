"""The workbench in more than one place at once, and in other lights and widths."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, clean, lab, no_errors, notebook

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

#: a person is the Designer: nothing is judged until they have answered
DESIGN = """%%kernel_design {name} --dsl cpp --roles designer=human --approve all --baseline eager
import torch
def reference(x):
    return x * 2 + {add}
def inputs():
    return torch.randn(64, 64)
"""
SKETCH = """Row by row.
```sketch
sketch one {
    tensors: x[64, 64]: f32; y[64, 64]: f32 out;
    for m in range(64):
        load(x[m, 0:64] -> row)
        store(row * 2.0 + 1.0 -> y[m, 0:64])
}
```
"""


def test_two_notebooks_two_browsers_dark_and_narrow(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for add, name in enumerate(("one", "two"), 1):
        notebook(root, f"{name}.ipynb", "%load_ext kernellab", DESIGN.format(name=name, add=add))

    with lab(root, tmp_path / "home") as page:
        page.open("one.ipynb")
        one = _begun(page, "one")
        page.save()
        page.open_too("two.ipynb")
        two = _begun(page, "two")
        assert two.root.get_by_text("one", exact=True).count() == 0

        _an_answer_that_holds_nothing_is_refused(two)
        _is_legible_in_every_theme_and_width(page, two)

        page.front("one.ipynb")
        other = page.other("one.ipynb")
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


def _an_answer_that_holds_nothing_is_refused(board: Board) -> None:
    board.card.get_by_label("your answer as the designer").fill("I do not know.")
    board.act("answer").click()
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
        board.card.get_by_label("your answer as the designer").fill(SKETCH)
    # both buttons are at hand before the first is pressed, so the second press is late however quick the views are
    buttons = [board.act("answer").element_handle() for board in (one, other)]
    for button in buttons:
        button.evaluate("button => { button.click(); button.click(); }")
    for board in (one, other):
        board.wait_turn("designer by human, done", SOON)
        board.wait("waiting", SOON)
    assert one.turns() == other.turns()
    assert sum("designer" in turn for turn in one.turns()) == 1
    other.act("approve").click()
    for board in (one, other):
        board.wait_turn("^turn 2, coder by rules, done", SOON)
    assert one.turns() == other.turns()
