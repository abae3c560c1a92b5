"""The quickstart as a reader walks through it: cells run one by one, the approval is a click."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
from lab import Lab

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"

#: seconds for a verification, its timing against torch.compile included, on two busy cores
PATIENCE = 240


def walk(lab: Lab, at: Callable[[str], None]) -> None:
    """Run the notebook that lies at the server's root; ``at`` is called when the view shows "designed" and "asked"."""
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    view = lab.page.locator(".kl").first
    lab.open(NOTEBOOK.name)
    for index, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        tags = cell.metadata.get("tags", [])
        if "approve" in tags:
            view.locator(".kl-pill.kl-waiting").wait_for(timeout=PATIENCE * 1000)
            at("asked")
            view.locator("[data-action=approve]").click()
            view.locator(".kl-pill:not(.kl-waiting)").wait_for()
            continue
        faults = [o for o in lab.run(index, PATIENCE) if o["output_type"] == "error"]
        assert not faults, f"cell {index} failed: {faults[0]['ename']}: {faults[0]['evalue']}"
        if "design" in tags:
            view.locator(".kl-pill.kl-finished").wait_for(timeout=PATIENCE * 1000)
            at("designed")


def look(lab: Lab, tab: str) -> None:
    """Show one of the view's tabs, and the view whole."""
    view = lab.page.locator(".kl").first
    view.get_by_role("tab", name=tab).click()
    view.evaluate("element => element.scrollIntoView({block: 'end'})")
    lab.page.wait_for_timeout(200)
