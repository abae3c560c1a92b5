"""The magics whose cell is the work: a task, a sketch, code, an answer, a kernel to judge."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from IPython.core.error import UsageError
from IPython.core.magic import cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments

from kernellab.fidelity import FIDELITIES, PRECISION
from kernellab.notebook.magics.base import (
    KernelMagic,
    command,
    counted_as_shown,
    positive,
    session_names,
    usage,
)
from kernellab.notebook.magics.config import APPROVALS

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from kernellab.session import Session

BASELINES = ("eager", "compile")
LEVELS = ("T0", "T1", "T2", "T3", "T4")


@magics_class
class WorkMagics(KernelMagic):
    """design, task, sketch, code, answer, verify."""

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the variable that the session is bound to")
    @argument(
        "--dsl",
        help="the DSL of the kernel: cpp, triton or cuda_c, with a model as Coder any DSL that has documents; "
        "default: triton with a GPU, else cpp",
    )
    @argument("--roles", help='who does what: "rules", "model", or "designer=human,coder=model:NAME"; default rules')
    @argument("--approve", choices=APPROVALS, help="where the session stops and asks; default none")
    @argument("--words", action="store_true", help="the cell describes the operator in words: a model writes the task")
    @argument("--budget", help="what models may spend: tokens=200000,usd=1,minutes=10")
    @argument(
        "--baseline",
        choices=BASELINES,
        action="append",
        help="time against it; may be repeated; default eager, and torch.compile when the session has ended",
    )
    @argument("--max-turns", type=int, metavar="N", help="stop after N turns")
    @argument(
        "--improve",
        action="store_true",
        default=None,
        help="continue after a kernel has passed, while there is headroom; default: when a model designs or codes",
    )
    @argument("--no-improve", dest="improve", action="store_false", help="end with the first kernel that passes")
    @argument("--allow-library", action="store_true", help="accept kernels that call the framework's library")
    @argument("--precision", choices=FIDELITIES, help=PRECISION)
    @argument("--chip", help="the chip to design for, by a name of knowledge/hardware; default: this machine's")
    @argument("--fresh", action="store_true", help="start a new session; the one that this cell started before is kept")
    @command
    def kernel_design(self, args: argparse.Namespace, cell: str = "") -> None:
        """State an operator in the cell: a reference and its inputs, or a KernelBench file as it is.

        The cell returns at once; NAME is the Session, and its workbench appears below. With --words the cell is a
        description, and the task that a model makes of it appears as the next cell, for you to read and run. With
        `GRAD = True` in the cell its backward is designed too, as NAME_backward; NAME_pair is both.

            %%kernel_design rms_norm --dsl cpp --approve routing
            import torch
            ...
        """
        if not args.name.isidentifier():
            raise UsageError(
                f"{args.name!r} cannot name a variable: use letters, digits and _, and begin with a letter"
            )
        if args.words:
            self._task_cell(args.name, cell, self._again(args), args.roles or self.lab.roles, args.budget)
            return
        # before the session starts: its thread imports torch at once, and would keep the view waiting
        from kernellab.model_integration.gradient.derive import said_true
        from kernellab.notebook.board import workbench  # noqa: F401
        from kernellab.notebook.board.registry import keep_receipt
        from kernellab.notebook.magics.task_from_text import said_for
        from kernellab.session import design
        from kernellab.session.start import check_coder

        options: dict[str, Any] = usage(args, "dsl", "roles", "approve", "chip", "budget", "max_turns")
        for name in ("dsl", "roles", "approve", "budget", "max_turns"):
            if name not in options and getattr(self.lab, name):
                options[name] = getattr(self.lab, name)
        if args.improve is not None:
            options["improve"] = args.improve
        if args.fresh:
            options["fresh"] = True
        check_coder(options.get("dsl"), options.get("roles"))
        asked: dict[str, Any] = {"baselines": args.baseline} if args.baseline else {}
        if args.allow_library:
            asked["allow_library"] = True
        if args.precision:
            asked["precision"] = args.precision
        if asked:
            options["options"] = asked
        # torch.compile's first call takes many seconds: it must not keep the first verdict waiting
        options |= {"compare": not args.baseline}
        session = design(counted_as_shown(cell), name=args.name, asked=said_for(args.name), **options)
        self.namespace[args.name] = session
        self.show_live(session)
        keep_receipt(session)
        if said_true(cell, "GRAD"):
            self._design_backward(session, options)

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", nargs="?", default="operator", help="the name that the task's session will have")
    @argument("--roles", help="whose model writes it: model, model:NAME, replay:FILE; default the configured one")
    @command
    def kernel_task(self, args: argparse.Namespace, cell: str = "") -> None:
        """Describe an operator in words: a model writes its task as the next cell, for you to read and run."""
        if not args.name.isidentifier():
            raise UsageError(
                f"{args.name!r} cannot name a variable: use letters, digits and _, and begin with a letter"
            )
        self._task_cell(args.name, cell, f"%%kernel_design {args.name}", args.roles or self.lab.roles, None)

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the session")
    @command
    def kernel_sketch(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new sketch: a turn of yours."""
        from kernellab.sketch.check import check

        session = self.session(args.name)
        session.edit_sketch(cell)
        # the gate says it too, in a turn that may come after others
        for found in check(cell).diagnostics:
            print(f"line {found.line}: {found.severity} {found.code}: {found.message} {found.remedy}".rstrip())

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the session")
    @argument("--file", default=None, help="the file of the source that the cell replaces; default: its main file")
    @command
    def kernel_code(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new kernel code: a turn of yours, verified like any other."""
        self.session(args.name).edit_source({args.file: cell} if args.file else cell)

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument("name", help="the session")
    @command
    def kernel_answer(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell answers the brief of the role that you hold (%%kernel_show NAME brief), as a model would."""
        self.session(args.name).answer(cell)

    @no_var_expand
    @cell_magic
    @magic_arguments()
    @argument(
        "name", nargs="?", help="a session, or a variable that holds a task; may be left out with only one session"
    )
    @argument("--task", metavar="FILE", help="a task's file, or a variable that holds a task, instead of a session")
    @argument("--file", help="the file of the session's source that the cell replaces; default: the cell is kernel.py")
    @argument("--dsl", help="the cell's DSL; default: detected, else the session's")
    @argument(
        "--level", choices=LEVELS, default="T2", help="T1 is a quick look, T3 sealed, T4 reproduced by another judge"
    )
    @argument(
        "--baseline", action="append", metavar="WHAT",
        help="eager, compile, max-autotune, or the file of a kernel of yours; may be repeated; default eager",
    )  # fmt: skip
    @argument("--repeat", type=positive, default=1, metavar="N", help="how many times to repeat the timing")
    @argument("--allow-library", action="store_true", help="accept a kernel that calls the framework's operators")
    @argument("--precision", choices=FIDELITIES, help=PRECISION)
    @argument("--unsandboxed", action="store_true", help="run it without a sandbox, which this machine lacks")
    @argument("--background", metavar="NAME", help="return at once and bind NAME to a handle: await it, or cancel() it")
    @command
    def kernel_verify(self, args: argparse.Namespace, cell: str = "") -> Any:
        """Judge the kernel in the cell: a module that defines kernel(*inputs). Nothing is added to the session.

        The stages are shown as they end, then the verdict. Interrupting the kernel stops it. With --background the
        notebook goes on meanwhile: `await NAME` is the verdict, `NAME.cancel()` stops it.

            %%kernel_verify rms_norm --level T4 --baseline compile --baseline old_kernel.py
            import torch
            ...
        """
        from kernellab.notebook.magics.verify_cell import named_task, verification
        from kernellab.verifier.protocol.option_words import verify_options

        options = verify_options(
            args.baseline, args.level, args.repeat, args.allow_library, args.dsl, args.precision or ""
        )  # fmt: skip
        options = options.model_copy(update={"unsandboxed": args.unsandboxed})
        if args.background and not args.background.isidentifier():
            raise UsageError(f"{args.background!r} cannot name a variable")
        session = None
        other = args.name in self.namespace and args.name not in session_names(cast("InteractiveShell", self.shell))
        if args.task or other:
            task = named_task(args.task or args.name, self.namespace)
        else:
            session = self.session(args.name)
            task = named_task(session.name, {session.name: session})
        name = args.background or ""
        made = verification(cell, session, task, file=args.file, dsl=args.dsl, options=options, name=name)
        if not args.background:
            return made.run()
        self.namespace[args.background] = made
        made.start()
        return None

    def _design_backward(self, forward: Session, options: dict[str, Any]) -> None:
        """The backward of a design, with the same options, below it; where there is none, a sentence says why."""
        from kernellab.errors import KernellabError
        from kernellab.model_integration.gradient.derive import backward_text
        from kernellab.model_integration.gradient.pair import Pair
        from kernellab.notebook.board.registry import keep_receipt
        from kernellab.session import design
        from kernellab.task import load_task

        name = f"{forward.name}_backward"
        try:
            task = load_task(forward.state.created.text, forward.name)
            backward = design(backward_text(task), name=name, **options)
        except KernellabError as error:
            print(f"No backward is designed for {forward.name}. {error}")
            return
        both = f"{forward.name}_pair"
        self.namespace.update({name: backward, both: Pair(task, forward, backward)})
        self.show_live(backward)
        keep_receipt(backward)
        print(
            f"{name} is the backward of {forward.name}. When both have ended, {both}.verify() compares all gradients "
            f"with autograd's and times a step, and {both}.function is a function that autograd knows."
        )

    def _task_cell(self, name: str, words: str, head: str, roles: str, budget: str | None) -> None:
        from kernellab.notebook.magics.task_from_text import propose

        proposed = propose(words, name, roles or None, budget or self.lab.budget)
        self.next_cell(f"{head}\n{proposed.text.strip()}\n")
        print(f"The task of {name} is in the next cell: read it, change what is wrong, and run it.")
        for flag in proposed.flags:
            print(f"  it is weak as a test: {flag}")

    def _again(self, args: argparse.Namespace) -> str:
        """The design line without --words."""
        given = usage(args, "dsl", "roles", "approve", "budget", "max_turns", "chip", "precision")
        words = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
        words += [f"--baseline {name}" for name in args.baseline or ()]
        words += ["--allow-library"] if args.allow_library else []
        words += ["--fresh"] if args.fresh else []
        if args.improve is not None:
            words.append("--improve" if args.improve else "--no-improve")
        return " ".join(["%%kernel_design", args.name, *words])
