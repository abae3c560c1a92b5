"""A reader's path through the quickstart in a real JupyterLab."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from lab import CHROMIUM, lab
from quickstart import NOTEBOOK, look, walk

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]


def test_the_reader_sees_the_view_and_approves_by_a_click(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(NOTEBOOK, root)
    seen: list[str] = []

    with lab(root, tmp_path / "home") as page:

        def at(moment: str) -> None:
            view = page.page.locator(".kl").first
            seen.append(moment)
            if moment == "designed":
                assert "x eager" in view.locator(".kl-headline").inner_text()
                look(page, "Sketch")
                assert "sketch" in view.get_by_label("sketch", exact=True).input_value()
            else:
                look(page, "Verdict")
                assert "edge-tile" in view.locator(".kl-pane").inner_text()
                assert (
                    "Coder" in view.locator(".kl-card").inner_text() or "coder" in view.locator(".kl-card").inner_text()
                )
            for theme in ("light", "dark"):
                page.theme(theme)
                page.page.screenshot(path=tmp_path / f"{moment}-{theme}.png")

        walk(page, at)
        assert page.outside == []
        assert page.faults == []

    assert seen == ["designed", "asked"]
    sizes = {shot.name: shot.stat().st_size for shot in tmp_path.glob("*.png")}
    assert len(sizes) == 4 and min(sizes.values()) > 20_000


HUMAN = """%%kernel_design add_one --dsl cpp --roles designer=human
import torch
def reference(x):
    return x + 1
def inputs():
    return torch.randn(64, 64)
"""


def test_the_view_survives_a_reload_of_the_page(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    cells = [nbformat.v4.new_code_cell(text) for text in ("%load_ext kernellab", HUMAN)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), root / "book.ipynb")

    with lab(root, tmp_path / "home") as page:
        page.open("book.ipynb")
        page.run(0)
        page.run(1)
        waiting = page.page.locator(".kl-pill.kl-waiting")
        waiting.wait_for(timeout=60_000)
        page.reload()
        waiting.wait_for(timeout=60_000)
        assert "You are the Designer" in page.page.locator(".kl-card").inner_text()
        assert page.faults == []
