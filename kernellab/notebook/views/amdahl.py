"""A profile's rows as sliders: how many times as fast a kernel would make each, and what becomes of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernellab.model_integration.display import sentence

if TYPE_CHECKING:
    from kernellab.model_integration import Profile
    from kernellab.model_integration.ranked import Row

#: rows with a slider; all others stay as they are
_ROWS = 6
#: where a region has no bound that is known, a slider ends here
_FASTEST = 10.0


def sliders(found: Profile) -> Any:
    """One slider for each of the first rows that share no operation; the sentence below them follows while one moves.

    Each goes from 1 (as it is) to the row's bound.
    """
    import ipywidgets as widgets  # type: ignore[import-untyped]

    rows = found.apart()[:_ROWS]
    controls = [
        widgets.FloatSlider(
            value=1.0, min=1.0, max=fastest(row), step=0.05, description=f"{row.number} {row.words}"[:40],
            readout_format=".2f", style={"description_width": "22em"}, layout={"width": "46em"},
            tooltip=f"{row.where}: {row.time_ms:.3g} ms, bound {row.bound_ms:.3g} ms",
        )
        for row in rows
    ]  # fmt: skip
    told = widgets.HTML(sentence(found, {}))

    def moved(_: Any) -> None:
        told.value = sentence(found, {row.number: control.value for row, control in zip(rows, controls, strict=True)})

    for control in controls:
        control.observe(moved, names="value")
    return widgets.VBox([*controls, told])


def fastest(row: Row) -> float:
    """How many times as fast a kernel at the bound is."""
    return min(_FASTEST, max(1.1, row.time_ms / row.bound_ms)) if row.bound_ms else _FASTEST


__all__ = ["fastest", "sentence", "sliders"]
