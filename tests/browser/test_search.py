"""A search watched and steered in a real JupyterLab: rows arrive, pause, inject, protect, resume, open, stop."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed (pip install 'kernellab[dev]')")

from board import SOON, Board
from lab import CHROMIUM, Lab, clean, no_errors, notebook
from playwright.sync_api import TimeoutError

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(400),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (apt-get install chromium)"),
]

SEARCH = """%%kernel_evolve soft --dsl cpp --score model --rounds 200 --parallel 1
import torch

def reference(x):
    return torch.softmax(x, dim=-1)

def inputs(seed: int = 0):
    return torch.randn(64, 256, generator=torch.Generator().manual_seed(seed))
"""

SKETCH = """sketch soft {
    tensors: x[64, 256]: f32; y[64, 256]: f32 out;
    @llm_hint("parallel")
    for i in range(64):
        load(x[i, 0:256] -> row)
        top = reduce_max(row, axis=0)
        total = reduce_sum(exp(row - top), axis=0)
        store(exp(row - top) / total -> y[i, 0:256])
}
"""


class Monitor(Board):
    """The monitor of the run of the task ``name``."""

    def __init__(self, page: Any, name: str) -> None:
        super().__init__(page, name)
        self.root = page.locator(f".jp-NotebookPanel:visible .kl-mon[data-name={name}]").first

    def row(self, number: int) -> Any:
        return self.root.locator(f"[data-number='{number}']")

    def choose(self, number: int) -> None:
        """Until it is shown: rows that come or change places may move another one under the pointer."""
        for last in (False, False, True):
            self.row(number).click()
            with nullcontext() if last else suppress(TimeoutError):
                self.root.get_by_text(f"Candidate {number}", exact=True).wait_for(timeout=SOON / 4)
                return

    def tab(self, name: str) -> Any:
        self.root.get_by_role("tab", name=name).click()
        return self.root.locator(f".kl-mon-panel-{name.lower()}")


def test_watch_pause_inject_protect_resume_and_stop(page: Lab, workspace: Path) -> None:
    notebook(workspace, "book.ipynb", "%load_ext kernellab", SEARCH)
    page.open("book.ipynb")
    no_errors(page.run(0))
    outputs = page.run(1)
    no_errors(outputs)
    assert "At most" in str(outputs[0])
    monitor = Monitor(page.page, "soft")
    monitor.row(1).wait_for(timeout=SOON)
    monitor.act("pause").click()
    monitor.wait("paused", SOON)

    monitor.choose(0)
    monitor.act("protect").click()
    monitor.row(0).get_by_text("kept").wait_for(timeout=SOON)

    steer = monitor.tab("Steer")
    # with an error it is not sent: the checker says which, while it is typed, and what to put there
    monitor.paste(steer, SKETCH.replace("row - top", "row - tip", 1))
    findings = steer.get_by_label("findings of the checker")
    findings.get_by_text("error, line 7").wait_for(timeout=SOON)
    assert "tip" in steer.locator(".cm-lintRange-error").first.inner_text()
    assert monitor.act("inject").get_attribute("aria-disabled") == "true"
    findings.get_by_role("button", name="Change to top", exact=True).click()
    findings.wait_for(state="detached", timeout=SOON)
    assert "on chip" in steer.get_by_label("cost and footprint").inner_text()
    monitor.act("inject").click()
    # the page is loaded again: what is shown comes from the kernel
    page.reload()
    monitor.row(0).get_by_text("kept").wait_for(timeout=SOON)
    monitor.act("resume").click()
    monitor.root.locator("[data-number]", has_text="person").first.wait_for(timeout=SOON)

    for theme in ("dark", "light"):
        page.theme(theme)
        assert monitor.faint() == []
        assert monitor.too_wide() == []
    monitor.act("stop").click()
    monitor.wait("stopped", SOON)
    monitor.choose(0)
    monitor.act("open").click()
    # a session that begins with the candidate, in the same cell's output
    Board(page.page, "soft_0").root.wait_for(timeout=SOON)
    no_errors(page.say("soft_0.wait(60); assert soft_0.sketch; soft_0.stop()"))
    no_errors(page.say("assert soft_run.state.protected == {0}; soft_run"))
    clean(page)
