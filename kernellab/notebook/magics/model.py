"""``%%kernel_profile``: a model in the cell, and where a kernel would pay."""

from __future__ import annotations

import argparse

from IPython.core.magic import cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.notebook.magics.base import KernelMagic, command


@magics_class
class WholeMagics(KernelMagic):
    """Whole models."""

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the variable that the profile is bound to")
    @argument("--train", action="store_true", help="profile a training step: forward, loss and backward")
    @argument("--device", help="cpu or cuda; default: a GPU where there is one")
    @argument(
        "--auto",
        metavar="minutes=30",
        help="design kernels row by row with the rules, install and measure them",
    )
    @command
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
        from kernellab.notebook.views.amdahl import sliders

        self.check_name(args.name)
        minutes = minutes_of(args.auto) if args.auto else None
        found = profile(f"\n{cell}", train=args.train, device=args.device)
        self.namespace[args.name] = found
        print(found)
        if minutes is not None:
            go_down(found, minutes=minutes, tell=lambda step: print(step.text, flush=True))
        elif found.rows:
            display(sliders(found))
