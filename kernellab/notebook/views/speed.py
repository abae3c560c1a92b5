"""Where a kernel's time goes, line by line, and how fast it is at other sizes: ``Heat`` and ``SizePoint``."""

from __future__ import annotations

from kernellab.agents.rules.sampled import time_goes
from kernellab.lens.cpp.hot import hot_lines
from kernellab.notebook.answers import Heat, SizePoint
from kernellab.records import Source, Verdict
from kernellab.session.turn.sweeping import Sweep

#: a line with less of the samples is not marked
_LEAST = 0.01


def heat(source: Source | None, verdict: Verdict | None) -> Heat:
    """By the Verifier's samples, or in sentences by a GPU's counters; blocking: a compiler's seconds."""
    if source is None or verdict is None:
        return {"file": "", "lines": [], "told": []}
    lines = [line for line in hot_lines(source, verdict.hot) if line.share >= _LEAST]
    return {
        "file": lines[0].file if lines else "",
        "lines": [{"line": line.line, "share": line.share, "text": line.told} for line in lines],
        "told": time_goes(source, verdict),
    }


def size_point(sweep: Sweep, size: int) -> SizePoint:
    """Of a sweep that was asked for one size."""
    nothing: SizePoint = {"size": size, "ms": None, "speedup": None, "low": None, "high": None, "text": ""}
    if not sweep.points:
        why = "its tensors take too much memory" if size in sweep.left_out else "it is outside the declared range"
        return {**nothing, "text": f"{sweep.dim} = {size} was not timed: {why}."}
    ranking = sweep.points[0].ranking
    if not ranking.ranked or ranking.time is None:
        return {**nothing, "text": f"{sweep.dim} = {size} failed at {ranking.stage.value}: {ranking.reason}"}
    paired = ranking.paired
    return {
        "size": size, "ms": ranking.time.median_ms, "speedup": paired.speedup if paired else None,
        "low": paired.low if paired else None, "high": paired.high if paired else None, "text": ranking.text,
    }  # fmt: skip
