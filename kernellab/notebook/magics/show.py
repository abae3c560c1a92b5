"""The magics that look: views, figures, export, replay, options, what this machine can do."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument
from traitlets import TraitError

from kernellab.content import written
from kernellab.errors import SessionError, counted
from kernellab.notebook.magics.base import ONE, KernelMagic, line_command

OUT = "the same as FILE"
#: parts of a session as text, and as figures; the live view is what is shown without one
TEXTS = ("sketch", "code", "verdict", "turns", "task", "brief", "ledger", "reproduction", "accesses")
FIGURES = ("roofline", "speedups", "stages", "calibration")


@magics_class
class ShowMagics(KernelMagic):
    """show, explain, compare, insert, export, replay, doctor, help, config."""

    @line_command
    @argument("name", nargs="?", help=ONE)
    @argument(
        "view", nargs="?", choices=(*TEXTS, *FIGURES), help="one part as text or figure; without it the live view"
    )
    @argument("--turn", metavar="N", help="as it was after this turn; default: the newest")
    def kernel_show(self, args: argparse.Namespace) -> Any:
        """Show a session: its live view, one part of it as text, or a figure."""
        from kernellab.notebook.saved.receipt import VIEWS, plain

        if args.view is None and args.name in (*TEXTS, *FIGURES):
            args.name, args.view = None, args.name
        session = self.session(args.name)
        if args.view is None:
            return self.show_live(session)
        if args.view in FIGURES:
            from kernellab.notebook.saved.figures import figure

            return figure(session, args.view, self.lab.theme)
        if args.view == "accesses":
            from kernellab.notebook.views.access_map import as_text, touches
            from kernellab.notebook.views.facts import gather

            turn = session.state.sketch_turn(session.state.turn(args.turn).id if args.turn else None)
            if turn is None or not turn.sketch:
                raise SessionError(f"{session.name} has no sketch yet.", "Wait for the Designer, or write one.")
            return plain(as_text(touches(turn.sketch, gather(session))))
        if args.view == "brief":
            return plain(session.brief())
        if args.view == "ledger":
            return plain(session.trace.ledger()["text"] or f"{session.name} has asked no model.")
        state = session.state
        return VIEWS[args.view](replace(state, head=state.turn(args.turn).id) if args.turn else state)

    @line_command
    @argument("name", nargs="?", help=ONE)
    @argument("what", nargs="?", choices=("verdict", "speed"), help="what the verdict means, or why it is slow")
    @argument("--turn", metavar="N", help="the verdict up to this turn; default: the newest")
    @argument("--model", action="store_true", help="ask the Analyst; its numbers are checked against the record")
    def kernel_explain(self, args: argparse.Namespace) -> Any:
        """Explain the newest verdict, or (`speed`) why the kernel is slow; by rules, or by the Analyst."""
        from kernellab.notebook.saved.receipt import plain
        from kernellab.notebook.views.explain import QUESTIONS

        if args.what is None and args.name in QUESTIONS:
            args.name, args.what = None, args.name
        session, what = self.session(args.name), args.what or "verdict"
        if not args.model:
            return plain(str(session.trace.explain(what, args.turn)))
        turn = session.analyse(QUESTIONS[what], wait=600)
        return plain(turn.rationale if turn is not None else "")

    @line_command
    @argument("name", help="the session")
    @argument("a", nargs="?", help="a turn's number")
    @argument("b", nargs="?", help="the other turn's number")
    @argument("--over", metavar="DIM", help="in place of turns: the best kernel's speed over the range of this Dim")
    @argument("--csv", metavar="FILE", help="write the figures to this file")
    def kernel_compare(self, args: argparse.Namespace) -> Any:
        """Two turns' candidates side by side: numbers, which is faster, and the difference of their texts; or the best
        kernel next to eager over the sizes of a Dim."""
        if args.over is not None:
            if args.a is not None or args.csv:
                raise UsageError("--over times the best kernel: leave out the turns and --csv")
            print(self.session(args.name).timings.over(args.over))
            return None
        if args.b is None:
            raise UsageError("name two turns, or a Dim with --over")
        from kernellab.notebook.saved.receipt import plain
        from kernellab.notebook.views.candidates import as_text, compared_csv, comparison, named

        state = self.session(args.name).state
        sides = comparison(state, args.a, args.b)
        one, other = (named(state, state.turn(which)) for which in (args.a, args.b))
        if args.csv:
            print(f"wrote {written(Path(args.csv), compared_csv(sides, one, other))}")
        return plain(as_text(sides, one, other))

    @line_command
    @argument("name", nargs="?", help="a session: the cell that reproduces its failure; default: what a button offered")
    def kernel_insert(self, args: argparse.Namespace) -> None:
        """Put a cell below this one: what the workbench offered last, or what reproduces a session's failure."""
        from kernellab.notebook.magics.insert import offered
        from kernellab.notebook.saved.receipt import reproduction_of

        text = offered() if args.name is None else reproduction_of(self.session(args.name).state)
        if not text:
            raise SessionError("Nothing was offered.", "Press Insert in the workbench, or name a session that failed.")
        self.next_cell(text)

    @line_command
    @argument("name", help="the session")
    @argument("file", nargs="?", help="the module to write")
    @argument("--out", metavar="FILE", help=OUT)
    def kernel_export(self, args: argparse.Namespace) -> None:
        """Write the best kernel as a module that needs torch and the DSL's runtime but not kernellab."""
        print(f"wrote {self.session(args.name).export(_file(args))}")

    @line_command
    @argument("name", nargs="?", help="the session or the search; may be left out when there is only one session")
    @argument("file", nargs="?", help="the HTML file; default: the name")
    @argument("--out", metavar="FILE", help=OUT)
    def kernel_share(self, args: argparse.Namespace) -> None:
        """Write a session or a search as one HTML file: what was recorded, to look through without a kernel.

        Prompts and replies of models are in it; keys are not.
        """
        from kernellab.evolve import Run
        from kernellab.notebook.saved.shared import share

        if args.name and args.file is None and args.name.endswith(".html"):
            args.name, args.file = None, args.name
        held = self.namespace.get(args.name) if args.name else None
        path, size = share(
            held if isinstance(held, Run) else self.session(args.name), _file(args, needed=False) or None
        )
        print(f"wrote {path} ({size / 1e6:.1f} MB)")

    @line_command
    @argument("name", help="the session")
    @argument("file", nargs="?", help="the file; a role `replay:FILE` answers from it")
    @argument("--out", metavar="FILE", help=OUT)
    def kernel_replay(self, args: argparse.Namespace) -> None:
        """Write what a session's models were asked and answered, so that it can be replayed without them."""
        from kernellab.models import write_replay

        session, file = self.session(args.name), _file(args)
        exchanges = session.trace.exchanges()
        if not exchanges:
            raise SessionError(f"{session.name} has asked no model.", "Give a role to one: --roles model.")
        print(f"wrote {counted(len(exchanges), 'exchange')} to {write_replay(Path(file), exchanges, note=session.id)}")

    @line_command
    def kernel_doctor(self, args: argparse.Namespace) -> None:
        """What this machine can do, and the one line that fixes what it cannot."""
        from kernellab.doctor import report

        print(report())

    @line_command
    @argument("option", nargs="?", help="NAME=VALUE, for example verbose=1")
    def kernel_config(self, args: argparse.Namespace) -> None:
        """Show the options, or set one; the same as %config KernelLab.NAME = VALUE."""
        if args.option:
            self._set(*args.option.partition("=")[::2])
            return
        for name, value, help_ in self.lab.options():
            print(f"{name}={value}  # {help_}")

    def _set(self, name: str, value: str) -> None:
        values = {option: given for option, given, _ in self.lab.options()}
        if name not in values:
            raise UsageError(f"there is no option {name!r}; choose one of {', '.join(values)}")
        trait = self.lab.traits()[name]
        try:
            setattr(self.lab, name, trait.from_string(value))
        except (TraitError, ValueError) as error:
            raise UsageError(f"{name} cannot be {value!r}: {trait.help} {error}") from None


def _file(args: argparse.Namespace, needed: bool = True) -> str:
    """The file that a command is to write. Raises UsageError: none is named, or two are."""
    if (args.file and args.out) or (needed and not args.file and not args.out):
        raise UsageError("name one file to write, with or without --out")
    return args.out or args.file or ""
