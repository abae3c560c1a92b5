"""The quickstart as a reader walks through it: cells run one by one, the approval is a click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
from board import PATIENCE, Board
from lab import Lab, no_errors

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


def walk(lab: Lab, at: Callable[[str], None]) -> None:
    """Run the notebook at the server's root; ``at`` is called when the workbench shows "designed" and "asked"."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    board = Board(lab.page, "rms_norm")
    lab.open(NOTEBOOK.name)
    for index, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        if "approve" in tags:
            board.wait("waiting")
            at("asked")
            board.act("approve").click()
            board.wait("running finished")
            continue
        no_errors(lab.run(index, PATIENCE / 1000))
        if "design" in tags:
            board.wait("finished")
            at("designed")
