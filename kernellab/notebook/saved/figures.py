"""Plotly figures of a session for analysis; each is made from the record, and titled with what its numbers mean.

``figure(session, "roofline" | "speedups" | "stages" | "calibration")`` gives a ``plotly.graph_objects.Figure``. The
live pictures of the workbench are its own: a FigureWidget weighs 5 MB a piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernellab.errors import SessionError
from kernellab.notebook.board.predictions import Predictions
from kernellab.notebook.views.facts import Facts, gather
from kernellab.notebook.views.roofline import history, reference_name, roofline
from kernellab.records import Stage
from kernellab.session.record.state import State
from kernellab.verifier.protocol.stats import one_line_each

if TYPE_CHECKING:
    import plotly.graph_objects as go  # type: ignore[import-untyped]

    from kernellab.session import Session

#: Okabe and Ito's colours: told apart by colour-blind readers, on white and on black
BLUE, ORANGE, GREEN, RED, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#888888"
_STAGE_COLOURS = dict(zip(Stage, (GREY, ORANGE, "#56b4e9", BLUE, "#cc79a7", GREEN, RED), strict=True))


def figure(session: Session, kind: str, theme: str = "auto") -> go.Figure:
    """``theme`` is light, dark, or auto: transparent, with colours that can be read on both.

    Raises:
        SessionError: there is no such figure, or nothing to draw yet.
    """
    if kind not in _KINDS:
        raise SessionError(f"There is no figure {kind!r}.", f"Choose one of {', '.join(_KINDS)}.")
    drawn = _KINDS[kind](session)
    if drawn is None:
        raise SessionError(f"{session.name} has nothing to draw for {kind} yet.", _WHEN[kind])
    return themed(drawn, theme)


def roofline_figure(state: State, facts: Facts) -> go.Figure | None:
    """Candidates under the chip's roofs, on logarithmic axes; None while nothing was timed."""
    import plotly.graph_objects as go

    data = roofline(state, facts)
    if not data["points"]:
        return None
    points, ridge, peak, bandwidth = data["points"], data["ridge"], data["peak_flops"], data["bandwidth"]
    low = min(ridge, *(p["intensity"] for p in points)) / 8
    high = max(ridge, *(p["intensity"] for p in points)) * 8
    drawn = go.Figure()
    roof = [low * bandwidth / 1e9, peak / 1e9, peak / 1e9]
    words = f"roofs: {bandwidth / 1e9:.3g} GB/s, {peak / 1e9:.3g} GFLOP/s<br>({data['source']})"
    drawn.add_scatter(x=[low, ridge, high], y=roof, mode="lines", name=words, line={"color": GREY})
    for is_best, name, colour in ((False, "candidates", BLUE), (True, "best", ORANGE)):
        some = [p for p in points if p["best"] is is_best]
        if some:
            drawn.add_scatter(
                x=[p["intensity"] for p in some],
                y=[p["rate"] / 1e9 for p in some],
                mode="markers+text",
                text=[str(p["number"]) for p in some],
                textposition="top center",
                hovertext=[p["label"] for p in some],
                name=name,
                marker={"color": colour, "size": 10, "symbol": "star" if is_best else "circle"},
            )
    for row in data["baselines"]:
        drawn.add_hline(y=row["rate"] / 1e9, line={"dash": "dot", "color": GREY})
        # plotly takes an annotation's place on a logarithmic axis as its exponent
        drawn.add_annotation(
            x=1, xref="x domain", xanchor="right", y=math.log10(row["rate"] / 1e9), yanchor="bottom",
            text=row["baseline"], showarrow=False,
        )  # fmt: skip
    drawn.update_xaxes(type="log", title="FLOP for each byte moved (the sketch's cost model)")
    drawn.update_yaxes(type="log", title="GFLOP/s, measured")
    return drawn.update_layout(title=f"{state.created.name}: roofline on {facts.chip.name if facts.chip else ''}")


def speedups_figure(state: State) -> go.Figure | None:
    """Speedups against eager with their 95 % intervals, by turn; None while nothing was timed."""
    import plotly.graph_objects as go

    rows = history(state)
    if not rows:
        return None
    drawn = go.Figure()
    drawn.add_scatter(
        x=[row["number"] for row in rows],
        y=[row["speedup"] for row in rows],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [row["high"] - row["speedup"] for row in rows],
            "arrayminus": [row["speedup"] - row["low"] for row in rows],
        },
        mode="lines+markers",
        marker={"color": BLUE},
        name="speedup, 95 % interval",
    )
    drawn.add_hline(y=1, line={"dash": "dot", "color": GREY}, annotation_text=reference_name(state))
    drawn.update_xaxes(title="turn")
    drawn.update_yaxes(title=f"times as fast as {reference_name(state)}", rangemode="tozero")
    return drawn.update_layout(title=f"{state.created.name}: speedup by turn")


def stages_figure(state: State) -> go.Figure | None:
    """Where the Verifier's seconds went, a bar a verification; None while nothing was verified."""
    import plotly.graph_objects as go

    turns = [t for t in sorted(state.turns.values(), key=lambda t: t.number) if t.verdict and t.reused is None]
    if not turns:
        return None
    drawn = go.Figure()
    for stage in Stage:
        took = [
            sum(s.seconds for s in one_line_each(turn.verdict.stages) if s.name is stage)
            for turn in turns
            if turn.verdict
        ]
        drawn.add_bar(
            x=[f"turn {turn.number}" for turn in turns],
            y=took,
            name=stage.value,
            marker={"color": _STAGE_COLOURS[stage]},
        )
    drawn.update_yaxes(title="seconds")
    return drawn.update_layout(barmode="stack", title=f"{state.created.name}: the Verifier's stages")


def calibration_figure(state: State, predictions: Predictions) -> go.Figure | None:
    """What was expected against what was measured; on the diagonal a prediction was right."""
    import plotly.graph_objects as go

    rows = predictions.measured(state)
    if not rows:
        return None
    expected, measured = [row.expected for row in rows], [row.measured for row in rows]
    ends = [0.8 * min(*expected, *measured), 1.25 * max(*expected, *measured)]
    drawn = go.Figure()
    drawn.add_scatter(x=ends, y=ends, mode="lines", name="as expected", line={"color": GREY, "dash": "dot"})
    drawn.add_scatter(
        x=expected,
        y=measured,
        mode="markers+text",
        text=[str(state.turns[row.prediction.turn].number) for row in rows],
        textposition="top center",
        hovertext=[row.prediction.reason for row in rows],
        marker={"color": BLUE, "size": 10},
        name="predictions",
    )
    drawn.update_xaxes(type="log", title="expected: times as fast as eager")
    drawn.update_yaxes(type="log", title="measured")
    return drawn.update_layout(title=f"{state.created.name}: predictions and measurements")


def _predictions(session: Session) -> Predictions:
    return Predictions(session.workspace, session.id)


_KINDS: Mapping[str, Callable[[Session], Any]] = {
    "roofline": lambda session: roofline_figure(session.state, gather(session)),
    "speedups": lambda session: speedups_figure(session.state),
    "stages": lambda session: stages_figure(session.state),
    "calibration": lambda session: calibration_figure(session.state, _predictions(session)),
}
_WHEN = {
    "roofline": "Wait for a kernel that was timed on a chip whose rates are known.",
    "speedups": "Wait for a kernel that was timed.",
    "stages": "Wait for a verification.",
    "calibration": "Predict first: %config KernelLab.teaching = True.",
}


def themed(drawn: go.Figure, theme: str = "auto") -> go.Figure:
    """The figure in a theme: light, dark, or auto, transparent with colours that can be read on both."""
    template = {"light": "plotly_white", "dark": "plotly_dark"}.get(theme, "plotly_white")
    drawn.update_layout(template=template, margin={"l": 60, "r": 20, "t": 48, "b": 48})
    if theme == "auto":
        clear = "rgba(0,0,0,0)"
        drawn.update_layout(paper_bgcolor=clear, plot_bgcolor=clear, font={"color": GREY})
        lines = {"gridcolor": "rgba(136,136,136,.25)", "zerolinecolor": "rgba(136,136,136,.4)"}
        drawn.update_xaxes(**lines)
        drawn.update_yaxes(**lines)
    return drawn
