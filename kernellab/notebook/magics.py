"""The magics: a person's words for what a session does. Each is one call on a Session.

They are synchronous and return at once; only asking for a result waits. Wrong arguments raise UsageError with the
usage line; everything else that can go wrong is a KernellabError, shown as a sentence and a remedy.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import MagicArgumentParser, argument, magic_arguments, parse_argstring
from traitlets import Int

from kernellab.errors import KernellabError, SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from IPython.core.interactiveshell import InteractiveShell

    from kernellab.session import Session

APPROVALS = ("none", "routing", "all")
VIEWS = ("sketch", "code", "verdict", "turns")
DSLS = ("cpp", "triton")
BASELINES = ("eager", "compile")


def command(body: Callable[..., Any]) -> Callable[..., Any]:
    """``body(self, args[, cell])`` gets parsed arguments; ``--help`` prints them; errors come without a traceback."""

    @functools.wraps(body)
    def run(self: KernelMagics, line: str, cell: str | None = None) -> Any:
        if "--help" in line.split():
            print(run.parser.format_help())  # type: ignore[attr-defined]
            return None
        try:
            args = parse_argstring(run, line)
        except UsageError as error:
            raise UsageError(f"{error}\n{run.parser.format_usage().strip()}") from None  # type: ignore[attr-defined]
        with self.errors():
            return body(self, args) if cell is None else body(self, args, cell)

    return run


@magics_class
class KernelMagics(Magics):
    """kernellab's magics; ``%kernel_config`` lists and sets their options."""

    verbose = Int(0, help="1 shows the Python traceback of an error, 0 one sentence and the remedy.").tag(config=True)

    # -- start ---------------------------------------------------------------------------------------------------------

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the variable that the session is bound to")
    @argument("--dsl", choices=DSLS, help="what the kernel is written in; default: triton with a GPU, else cpp")
    @argument("--roles", help='who does what: "rules", "model", or "designer=human,coder=rules"; default rules')
    @argument("--approve", choices=APPROVALS, help="where the session stops and asks; default none")
    @argument(
        "--baseline",
        choices=BASELINES,
        action="append",
        help="time against it; may be repeated; default eager, and torch.compile when the session has ended",
    )
    @argument("--max-turns", type=int, metavar="N", help="stop after N turns")
    @argument("--chip", help="the chip to design for, by a name of knowledge/hardware; default: this machine's")
    @command
    def kernel_design(self, args: argparse.Namespace, cell: str = "") -> None:
        """State an operator in the cell: a reference and its inputs, or a KernelBench file as it is.

        The cell returns at once; NAME is the Session, and its live view appears below.

            %%kernel_design rms_norm --dsl cpp --approve routing
            import torch
            ...
        """
        if not args.name.isidentifier():
            raise UsageError(f"{args.name!r} is no name for a variable")
        # before the session starts: its thread imports torch at once, and would keep the view waiting
        from kernellab.notebook import widget  # noqa: F401
        from kernellab.session import design

        options = {"roles": args.roles, "max_turns": args.max_turns, "chip": args.chip}
        if args.baseline:
            options["options"] = {"baselines": args.baseline}
        session = design(
            cell,
            dsl=args.dsl,
            approve=args.approve,
            name=args.name,
            # torch.compile's first call takes many seconds: it must not keep the first verdict waiting
            compare=not args.baseline,
            **{key: value for key, value in options.items() if value is not None},
        )
        self.namespace[args.name] = session
        self.show_live(session)

    # -- turns ---------------------------------------------------------------------------------------------------------

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="the session; may be left out when there is only one")
    @command
    def kernel_step(self, args: argparse.Namespace) -> None:
        """Take one more turn."""
        self.session(args.name).step()

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="the session; may be left out when there is only one")
    @command
    def kernel_run(self, args: argparse.Namespace) -> None:
        """Take turns until the session ends or its approval policy stops it."""
        self.session(args.name).run()

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="the session; may be left out when there is only one")
    @command
    def kernel_pause(self, args: argparse.Namespace) -> None:
        """Stop after the turn that is running."""
        self.session(args.name).pause()

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", help="the session")
    @argument("--turn", required=True, help="the turn to continue from, a number of %%kernel_show NAME turns")
    @command
    def kernel_fork(self, args: argparse.Namespace) -> None:
        """Continue from an earlier turn; what came after it stays in the tree."""
        self.session(args.name).fork(turn=args.turn)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="the session; may be left out when there is only one")
    @argument("--to", choices=("coder", "designer", "finish", "stop"), help="send the work elsewhere than proposed")
    @argument("--suggestion", nargs="+", help="what the next role should do instead of the proposed suggestion")
    @command
    def kernel_approve(self, args: argparse.Namespace) -> None:
        """Approve what the Conductor proposes, as it is or changed."""
        suggestion = " ".join(args.suggestion).strip("\"'") if args.suggestion else None
        self.session(args.name).approve(to=args.to, suggestion=suggestion)

    # -- edits ---------------------------------------------------------------------------------------------------------

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the session")
    @command
    def kernel_sketch(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new sketch: a turn of yours."""
        self.session(args.name).edit_sketch(cell)

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the session")
    @argument("--file", default=None, help="the file of the source that the cell replaces; default: its main file")
    @command
    def kernel_code(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new kernel code: a turn of yours, verified like any other."""
        self.session(args.name).edit_source({args.file: cell} if args.file else cell)

    # -- looking -------------------------------------------------------------------------------------------------------

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("name", nargs="?", help="the session; may be left out when there is only one")
    @argument("view", nargs="?", choices=VIEWS, help="one part as text; without it the live view")
    @command
    def kernel_show(self, args: argparse.Namespace) -> Any:
        """Show a session: its live view, or one part of it as text."""
        from kernellab.notebook.receipt import show

        if args.view is None and args.name in VIEWS:
            args.name, args.view = None, args.name
        session = self.session(args.name)
        return self.show_live(session) if args.view is None else show(session, args.view)

    @no_var_expand
    @line_magic
    @magic_arguments()
    @command
    def kernel_doctor(self, args: argparse.Namespace) -> None:
        """What this machine can do, and the one line that mends what it cannot."""
        from kernellab.doctor import report

        print(report())

    @no_var_expand
    @line_magic
    @magic_arguments()
    @argument("option", nargs="?", help="NAME=VALUE, for example verbose=1")
    @command
    def kernel_config(self, args: argparse.Namespace) -> None:
        """Show the options, or set one."""
        if args.option:
            name, _, value = args.option.partition("=")
            if name not in self.trait_names(config=True):
                raise UsageError(f"there is no option {name!r}; there is {', '.join(self.trait_names(config=True))}")
            if not re.fullmatch(r"\d+", value):
                raise UsageError(f"{name} takes a number, not {value!r}; for example {name}=1")
            setattr(self, name, int(value))
            return
        for name, trait in self.traits(config=True).items():
            print(f"{name}={getattr(self, name)}  # {trait.help}")

    # -- what they share -----------------------------------------------------------------------------------------------

    @property
    def namespace(self) -> dict[str, Any]:
        return cast("dict[str, Any]", cast("InteractiveShell", self.shell).user_ns)

    def session(self, name: str | None) -> Session:
        """The session bound to ``name``; without a name the only one.

        Raises:
            SessionError: there is none, or there are several; the sentence names those there are.
        """
        from kernellab.session import Session

        names = self.session_names(cast("InteractiveShell", self.shell))
        if name is None and len(names) == 1:
            name = names[0]
        found = self.namespace.get(name) if name else None
        if isinstance(found, Session):
            return found
        there = f"There are {', '.join(names)}." if names else "Design one with %%kernel_design NAME."
        wanted = f"There is no session {name!r} here." if name else "Say which session."
        raise SessionError(wanted, there)

    def show_live(self, session: Session) -> None:
        from IPython.display import display

        from kernellab.notebook.widget import widget_of

        display(widget_of(session))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Within it a KernellabError renders as a sentence, or as a traceback when ``verbose`` is set."""
        try:
            yield
        except KernellabError as error:
            if self.verbose and self.shell is not None:
                trace = self.shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
                error._render_traceback_ = lambda: trace  # type: ignore[method-assign]
            raise

    @classmethod
    def names(cls, kind: str) -> list[str]:
        """The magics of ``kind``: line or cell."""
        return list(cls.magics[kind])

    @classmethod
    def parsers(cls) -> dict[str, MagicArgumentParser]:
        return {name: getattr(cls, name).parser for kind in ("line", "cell") for name in cls.names(kind)}

    @staticmethod
    def session_names(shell: InteractiveShell) -> list[str]:
        if "kernellab.session" not in sys.modules:  # nothing can be one yet, and a Tab must not import it
            return []
        from kernellab.session import Session

        return [name for name, value in shell.user_ns.items() if isinstance(value, Session) and name[0] != "_"]
