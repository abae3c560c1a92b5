"""The stages of a cell's verification as they end: a table that a notebook updates in place, a line in a terminal."""

from __future__ import annotations

import contextvars
from collections.abc import Sequence
from html import escape
from typing import Any

from kernellab.notebook.saved.snapshot import CELL, verdict_html
from kernellab.notebook.views.verdict import seconds, stage_rows, verdict_text
from kernellab.records import StageResult, StageState, Verdict
from kernellab.verifier.protocol.stats import one_line_each


class StagesView:
    """Called with each stage's result by the thread that verifies."""

    def __init__(self) -> None:
        self.results: list[StageResult] = []
        #: The output that is updated; None in a terminal.
        self._handle: Any = None
        #: How many stages a terminal shows.
        self._printed = 0

    def begin(self) -> None:
        from IPython import get_ipython

        if hasattr(get_ipython(), "kernel"):  # a terminal has no display ids
            from IPython.display import DisplayHandle

            self._handle = DisplayHandle()
            self._handle.display(self._stages_bundle(is_running=True), raw=True)

    def __call__(self, result: StageResult) -> None:
        self.results.append(result)
        if self._handle is not None:
            self._update(self._stages_bundle(is_running=True))
        elif result.state is not StageState.RUNNING:
            self._print(self._ended())

    def end(self, reason: str = "", verdict: Verdict | None = None) -> None:
        """``reason``: why there is no verdict. A ``verdict`` is shown here, for a cell that has already ended."""
        if self._handle is None:
            self._print(one_line_each(self.results))
            print(reason)
        elif verdict is not None:
            self._update({"text/plain": verdict_text(verdict), "text/html": verdict_html(verdict)})
        else:
            self._update(self._stages_bundle(is_running=False, reason=reason))

    def _update(self, bundle: dict[str, str]) -> None:
        # in a separate context it belongs to no cell that runs now: works from any thread, also after the cell
        contextvars.Context().run(self._handle.update, bundle, raw=True)

    def _stages_bundle(self, is_running: bool, reason: str = "") -> dict[str, str]:
        text = "; ".join(_line(stage) for stage in one_line_each(self.results)) or "starting"
        return {"text/plain": f"{text} {reason}".rstrip(), "text/html": stages_html(self.results, is_running, reason)}

    def _ended(self) -> Sequence[StageResult]:
        """Whole stages only: a stage is known to be at its end when the next begins."""
        return one_line_each(self.results)[:-1]

    def _print(self, stages: Sequence[StageResult]) -> None:
        for stage in stages[self._printed :]:
            print(_line(stage), end="; ", flush=True)
            self._printed += 1


def stages_html(results: Sequence[StageResult], is_running: bool, reason: str = "") -> str:
    """Stage, outcome, time and note in a table: open while it runs, then folded away."""
    rows = "".join(
        f"<tr><td {CELL}>{row['name']}</td><td {CELL}>{row['state']}</td>"
        f"<td {CELL}>{seconds(row['seconds'])}</td><td {CELL}>{escape(row['note'])}</td></tr>"
        for row in stage_rows(results, is_running)
    )
    title = reason or ("verifying; interrupt the kernel to stop" if is_running else "stages")
    opened = " open" if is_running else ""
    return f"<details{opened}><summary>{escape(title)}</summary><table>{rows}</table></details>"


def _line(stage: StageResult) -> str:
    return f"{stage.name.value} {stage.state.value} {seconds(stage.seconds)}".rstrip()
