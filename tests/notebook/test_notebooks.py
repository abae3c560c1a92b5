"""The notebooks of the repository are kept executed, without widgets that need a kernel, and small."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_executed_and_readable_without_a_kernel(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    assert "widgets" not in book.metadata
    assert path.stat().st_size < 300_000
    for cell in book.cells:
        if cell.cell_type != "code":
            continue
        assert cell.execution_count is not None, cell.source
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert "application/vnd.jupyter.widget-view+json" not in output.get("data", {}), cell.source


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
