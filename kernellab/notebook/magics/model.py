"""``%%kernel_profile``: a model in the cell, and where a kernel would pay."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.model_integration.display import sentence
from kernellab.notebook.magics.base import KernelMagic, cell_command

if TYPE_CHECKING:
    from kernellab.model_integration import Profile
    from kernellab.model_integration.ranked import Row


@magics_class
class WholeMagics(KernelMagic):
    """Whole models."""

    @cell_command
    @argument("name", help="the variable that the profile is bound to")
    @argument("--train", action="store_true", help="profile a training step: forward, loss and backward")
    @argument("--device", help="cpu or cuda; default: a GPU where there is one")
    @argument(
        "--auto",
        metavar="minutes=30",
        help="design kernels row by row with the rules, install and measure them",
    )
    def kernel_profile(self, args: argparse.Namespace, cell: str = "") -> None:
        """Profile the model in the cell: `model` or Model, with inputs() or get_inputs(), as in a task's cell.

        The rows are ranked by what a kernel could gain; sliders say what that would do to the whole. `NAME.open(1)`
        designs a kernel for a row, `kernellab.install(NAME, 1, session)` puts it in.

            %%kernel_profile p
            import torch
            ...
        """
        from IPython.display import display

        from kernellab.model_integration import go_down, profile
        from kernellab.model_integration.auto import minutes_of

        self.check_name(args.name)
        minutes = minutes_of(args.auto) if args.auto else None
        report = profile(f"\n{cell}", train=args.train, device=args.device)
        self.namespace[args.name] = report
        print(report)
        if minutes is not None:
            go_down(report, minutes=minutes, tell=lambda step: print(step.text, flush=True))
        elif report.rows:
            display(sliders(report))


# -- a profile as sliders ----------------------------------------------------------------------------------------------
# A profile's rows as sliders: how many times as fast a kernel would make each, and what becomes of the whole.

#: rows with a slider; all others stay as they are
_ROWS = 6
#: where a region has no bound that is known, a slider ends here
_FASTEST = 10.0


def sliders(report: Profile) -> Any:
    """One slider for each of the first rows that share no operation; the sentence below them follows while one moves.

    Each goes from 1 (as it is) to the row's bound.
    """
    import ipywidgets as widgets  # type: ignore[import-untyped]

    rows = report.apart()[:_ROWS]
    controls = [
        widgets.FloatSlider(
            value=1.0, min=1.0, max=fastest(row), step=0.05, description=f"{row.number} {row.words}"[:40],
            readout_format=".2f", style={"description_width": "22em"}, layout={"width": "46em"},
            tooltip=f"{row.where}: {row.time_ms:.3g} ms, bound {row.bound_ms:.3g} ms",
        )
        for row in rows
    ]  # fmt: skip
    summary = widgets.HTML(sentence(report, {}))

    def moved(_: Any) -> None:
        summary.value = sentence(
            report, {row.number: control.value for row, control in zip(rows, controls, strict=True)}
        )

    for control in controls:
        control.observe(moved, names="value")
    return widgets.VBox([*controls, summary])


def fastest(row: Row) -> float:
    """How many times as fast a kernel at the bound is."""
    return min(_FASTEST, max(1.1, row.time_ms / row.bound_ms)) if row.bound_ms else _FASTEST
