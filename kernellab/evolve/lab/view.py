"""The lab's curves as a figure, as a page without a server, and as a widget with knobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kernellab.evolve.lab.curves import ALONE, CONTENDERS, TUNER, USUAL, Band, band, standing, table
from kernellab.evolve.lab.pool import load, names
from kernellab.options.search import Knobs

if TYPE_CHECKING:
    import ipywidgets  # type: ignore[import-untyped]
    import plotly.graph_objects as go  # type: ignore[import-untyped]

#: One colour per contender, readable on white and on black.
COLOURS = dict(
    zip(
        CONTENDERS,
        ("#2f7ed8", "#d8762f", "#3f9b3f", "#c0392b", "#b04fb0", "#7f8c8d", "#17a2b8", "#a08a10", "#5b4fb0"),
        strict=True,
    )
)
_DASHES = {ALONE: "dash", TUNER: "dot"}
#: Knobs of the widget: name, least, most.
_SLIDERS = (("rounds", 1, 16), ("parallel", 1, 8), ("islands", 1, 6), ("elites", 1, 8), ("migrate_every", 0, 6))


def figure(bands: Sequence[Band]) -> go.Figure:
    """Speedups over the first design against evaluations; the band covers the seeds."""
    import plotly.graph_objects as go

    chart = go.Figure()
    chart.add_traces(_traces(bands))
    chart.update_layout(
        xaxis_title="evaluations", yaxis_title="geometric mean of the best,<br>over the first design", height=420,
        template="plotly_white", legend={"orientation": "h", "y": -0.25}, margin={"l": 60, "r": 20, "t": 20, "b": 40},
    )  # fmt: skip
    return chart


def page(bands: Sequence[Band]) -> str:
    """The figure and the table as one HTML page that includes its script."""
    text = table([standing(line_band) for line_band in bands])
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Search policies, replayed</title></head>"
        f"<body><h1>Search policies, replayed</h1>{figure(bands).to_html(full_html=False, include_plotlyjs=True)}"
        f"<pre>{text}</pre></body></html>"
    )


def lab(spaces: Sequence[str] = ()) -> ipywidgets.VBox:
    """Policies, knobs and their curves; each replay runs once and is cached.

    Raises:
        EvolveError: one of ``spaces`` is not recorded.
    """
    import ipywidgets as w
    import plotly.graph_objects as go

    for name in spaces:
        load(name)
    sliders = [
        w.IntSlider(getattr(USUAL, name), min=low, max=high, description=name, continuous_update=False)
        for name, low, high in _SLIDERS
    ]
    policies = w.SelectMultiple(options=CONTENDERS, value=("islands", "greedy", "random"), description="policies")
    spaces_input = w.SelectMultiple(options=names(), value=tuple(spaces or names()), description="spaces")
    seeds = w.IntSlider(5, min=1, max=20, description="seeds", continuous_update=False)
    noise = w.FloatSlider(1.0, min=0.0, max=4.0, step=0.5, description="noise", continuous_update=False)
    chart, table_view = go.FigureWidget(figure([])), w.HTML()

    def redraw(_: Any = None) -> None:
        knobs = Knobs.model_validate({**USUAL.model_dump(), **{s.description: s.value for s in sliders}})
        bands = [band(name, knobs, range(seeds.value), spaces_input.value, noise.value) for name in policies.value]
        with chart.batch_update():
            chart.data = []
            chart.add_traces(_traces(bands))
        table_view.value = f"<pre>{table([standing(shown_band, spaces_input.value) for shown_band in bands])}</pre>"

    for control in (*sliders, policies, spaces_input, seeds, noise):
        control.observe(redraw, names="value")
    redraw()
    return w.VBox([w.HBox([policies, spaces_input, w.VBox([*sliders, seeds, noise])]), chart, table_view])


def _traces(bands: Sequence[Band]) -> list[Any]:
    import plotly.graph_objects as go

    traces = []
    for policy_band in bands:
        steps, colour = list(range(1, len(policy_band.middle) + 1)), COLOURS[policy_band.name]
        edge = {"x": steps, "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False,
                "legendgroup": policy_band.name}  # fmt: skip
        traces += [
            go.Scatter(y=policy_band.low, **edge),
            go.Scatter(y=policy_band.high, fill="tonexty", fillcolor=_faint(colour), **edge),
            go.Scatter(
                x=steps, y=policy_band.middle, mode="lines", name=policy_band.name, legendgroup=policy_band.name,
                line={"color": colour, "dash": _DASHES.get(policy_band.name, "solid")},
            ),
        ]  # fmt: skip
    return traces


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, 0.15)"
