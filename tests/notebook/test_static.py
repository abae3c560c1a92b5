"""What a saved notebook keeps: executed by a real kernel, exported, and read without one."""

from __future__ import annotations

import copy
import html as html_
import math
import os
import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from notebook_parts import SKETCH, TASK, Page

from kernellab.errors import SessionError
from kernellab.notebook.saved.figures import figure

ROLES = "--dsl cpp --roles designer=human,coder=human"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A notebook of three cells after a run from top to bottom, as a reader gets it."""
    folder = tmp_path_factory.mktemp("saved")
    os.environ.setdefault("IPYTHONDIR", str(folder / "ipython"))
    book = nbformat.v4.new_notebook()
    book.cells = [
        nbformat.v4.new_code_cell(source)
        for source in (
            "%load_ext kernellab",
            f"%%kernel_design add_one {ROLES}\n{TASK}",
            f"%%kernel_sketch add_one\n{SKETCH}",
            "await add_one",
            "add_one.stop()",
            # its view is drawn in a thread, and only what comes while a cell runs is kept: the thread's next beat comes
            # after all that it has sent
            "import asyncio\nview = add_one.workbench()\nwhile not view.saved: await asyncio.sleep(0.05)\n"
            "beat = view.beat\nwhile view.beat == beat: await asyncio.sleep(0.05)",
        )
    ]
    client = NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return client.execute()


def data(book: Any, cell: int) -> list[dict[str, Any]]:
    return [output["data"] for output in book.cells[cell].outputs if "data" in output]


def test_the_design_cell_keeps_the_last_view_beside_the_widget(executed: Any) -> None:
    view, kept = data(executed, 1)
    assert "application/vnd.jupyter.widget-view+json" in view and "add_one" in view["text/plain"]
    # filled in when the session stopped for a person, after the cell had ended
    assert "for m in range(M)" in html_.unescape(re.sub(r"</?span[^>]*>", "", kept["text/html"]))


def test_a_session_at_a_cells_end_is_readable_as_html_and_as_text(executed: Any) -> None:
    (shown,) = data(executed, 3)
    assert "designer" in shown["text/plain"] and "waiting for you" in shown["text/html"]


def test_the_exported_notebook_reads_without_a_kernel_or_the_network(executed: Any) -> None:
    from nbconvert import HTMLExporter

    saved = copy.deepcopy(executed)
    del saved.metadata["widgets"]  # as JupyterLab saves it
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(saved)
    text = html_.unescape(re.sub(r"<[^>]+>", "", page))
    for words in ("add_one", "for m in range(M)", "designer", "waiting for you"):
        assert words in text
    assert "model_id" not in text


def test_a_receipt_is_small(executed: Any) -> None:
    assert len(nbformat.writes(executed)) < 60_000


def test_a_notebook_that_was_run_without_a_page_keeps_the_view_and_no_code_of_it(executed: Any) -> None:
    """The bundle, 645 kB, was in the state of each widget."""
    states = executed.metadata["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    (state,) = (s["state"] for s in states if s["model_name"] == "AnyModel")
    assert "for m in range(M)" in html_.unescape(re.sub(r"</?span[^>]*>", "", state["saved"]))
    assert len(state["_esm"]) < 4_000


@pytest.mark.parametrize("kind", ["roofline", "speedups", "stages", "calibration"])
def test_each_figure_is_drawn_from_the_record(story: tuple[Any, Any], kind: str) -> None:
    session = story[0]
    drawn = figure(session, kind)
    if kind == "roofline":
        # on a logarithmic axis the name stands beside its line, and does not stretch the picture
        (line, name) = drawn.layout.shapes[0], drawn.layout.annotations[0]
        assert name.y == pytest.approx(math.log10(line.y0))
    assert session.name in drawn.layout.title.text
    assert drawn.layout.paper_bgcolor == "rgba(0,0,0,0)"
    assert any(len(trace.y) for trace in drawn.data if trace.y is not None)
    assert figure(session, kind, "dark").layout.template.layout.paper_bgcolor != "white"


def test_figures_show_what_was_measured_and_predicted(story: tuple[Any, Any]) -> None:
    session = story[0]
    points = next(t for t in figure(session, "calibration").data if t.name == "predictions")
    assert (list(points.x), list(points.y)) == ([2], [session.verdict.speedup])
    assert list(figure(session, "speedups").data[0].y) == [session.verdict.speedup]


def test_a_figure_of_nothing_says_when_there_will_be_one(quiet: tuple[Any, Page]) -> None:
    with pytest.raises(SessionError, match="nothing to draw for roofline yet"):
        figure(quiet[0], "roofline")
    with pytest.raises(SessionError, match="Choose one of roofline, speedups"):
        figure(quiet[0], "weather")
