"""The magic of the lens: a session's kernel next to what the compiler made of it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.content import written
from kernellab.errors import SessionError
from kernellab.notebook.magics.base import ONE, KernelMagic, line_command

if TYPE_CHECKING:
    from kernellab.lens import Lens
    from kernellab.records import Source
    from kernellab.session import Session


@magics_class
class LensMagics(KernelMagic):
    """lens."""

    @line_command
    @argument("name", nargs="?", help=ONE)
    @argument("--turn", metavar="N", help="the kernel of this turn; default: the best, else the newest")
    @argument("--against", metavar="N", help="another turn's kernel, to see how the two differ at each level")
    @argument("--html", metavar="FILE", help="also write the page to this file")
    @argument("--counters", action="store_true", help="run it under ncu and read the GPU's counters")
    @argument("--unsandboxed", action="store_true", help="I trust this kernel: it may run with my own rights")
    def kernel_lens(self, args: argparse.Namespace) -> Any:
        """Show a kernel next to what the compiler made of it, line by line, and what that tells."""
        from kernellab.lens.page import as_text, framed, page
        from kernellab.notebook.saved.receipt import Shown
        from kernellab.notebook.views.facts import gather

        session = self.session(args.name)
        facts = gather(session)
        turns = [args.turn, *([args.against] if args.against else [])]
        chosen = [_kernel(session, turn) for turn in turns]
        views = [self._look(source, facts, args) for _, source in chosen]
        names = [f"turn {number}" for number, _ in chosen]
        title = f"{session.name}, {' and '.join(names)}"
        theme = "" if self.lab.theme == "auto" else self.lab.theme
        html = page(title, views, names, theme)
        if args.html:
            print(f"wrote {written(Path(args.html), html)}")
        return Shown(f"{title}\n{as_text(views[0])}", framed(html))

    def _look(self, source: Source, facts: Any, args: argparse.Namespace) -> Lens:
        from kernellab.notebook.views.artefacts import lens_of

        lens = lens_of(source, facts, args.unsandboxed)
        if not args.counters:
            return lens
        from kernellab.lens.counters.read import counters

        try:
            if facts.task is None:
                raise SessionError("Counters need a task, and its file could not be loaded.", "Correct the task file.")
            return replace(lens, facts=(*lens.facts, *counters(source, facts.task, args.unsandboxed)))
        except SessionError as error:
            return replace(lens, notes=(*lens.notes, f"{error.message} {error.remedy}"))


def _kernel(session: Session, turn: str | None) -> tuple[int, Source]:
    """The number of the turn that wrote the kernel, and its source."""
    state = session.state
    best = state.best() if turn is None else None
    wrote = state.source_turn(best.turn.id if best else state.turn(turn).id if turn else None)
    if wrote is None or wrote.candidate is None:
        raise SessionError(f"{session.name} has no kernel yet.", "Wait for the Coder.")
    return wrote.number, wrote.candidate.source
