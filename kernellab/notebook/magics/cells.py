"""The magics whose cell is the work: a task, a sketch, code, an answer, a kernel to judge."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.notebook.magics.arguments import as_typed, request, takes, typed
from kernellab.notebook.magics.base import KernelMagic, cell_command, counted_as_shown, session_names
from kernellab.options.design import DesignCall, DesignVerification, VerifyCall

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from kernellab.models.exchanges import Exchange
    from kernellab.session import Session
    from kernellab.session.turn.task_from_text import Proposal


@magics_class
class WorkMagics(KernelMagic):
    """design, task, sketch, code, answer, verify."""

    @cell_command
    @argument("name", help="the variable that the session is bound to")
    @takes(DesignCall, DesignVerification)
    @argument("--words", action="store_true", help="the cell describes the operator in words: a model writes the task")
    def kernel_design(self, args: argparse.Namespace, cell: str = "") -> None:
        """State an operator in the cell: a reference and its inputs, or a KernelBench file as it is.

        The cell returns at once; NAME is the Session, and its workbench appears below. With --words the cell is a
        description, and the task that a model makes of it appears as the next cell, for you to read and run. With
        `GRAD = True` in the cell its backward is designed too, as NAME_backward; NAME_pair is both.

            %%kernel_design rms_norm --dsl cpp --approve routing
            import torch
            ...
        """
        self.check_name(args.name)
        if args.words:
            again = " ".join(["%%kernel_design", args.name, *as_typed(args, DesignCall, DesignVerification)])
            self._task_cell(args.name, cell, again, args.roles or self.lab.roles, args.budget)
            return
        # before the session starts: its thread imports torch at once, and would keep the view waiting
        from kernellab.model_integration.gradient import said_true
        from kernellab.notebook.board import workbench  # noqa: F401
        from kernellab.notebook.board.registry import keep_receipt
        from kernellab.session import design
        from kernellab.session.start import check_coder
        from kernellab.verifier.protocol.option_words import for_design

        options = {**self.lab.given(DesignCall), **typed(args, DesignCall)}
        check_coder(options.get("dsl"), options.get("roles"))
        if asked := for_design(request(args, DesignVerification)):
            options["options"] = asked
        # torch.compile's first call takes many seconds: it must not keep the first verdict waiting
        options |= {"compare": not args.baseline}
        session = design(counted_as_shown(cell), name=args.name, asked=said_for(args.name), **options)
        self.namespace[args.name] = session
        self.show_live(session)
        keep_receipt(session)
        if said_true(cell, "GRAD"):
            self._design_backward(session, options)

    @cell_command
    @argument("name", nargs="?", default="operator", help="the name that the task's session will have")
    @argument("--roles", help="whose model writes it: model, model:NAME, replay:FILE; default the configured one")
    def kernel_task(self, args: argparse.Namespace, cell: str = "") -> None:
        """Describe an operator in words: a model writes its task as the next cell, for you to read and run."""
        self.check_name(args.name)
        self._task_cell(args.name, cell, f"%%kernel_design {args.name}", args.roles or self.lab.roles, None)

    @cell_command
    @argument("name", help="the session")
    def kernel_sketch(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new sketch: a turn of yours."""
        from kernellab.sketch.check import check

        session = self.session(args.name)
        session.edit_sketch(cell)
        # the gate says it too, in a turn that may come after others
        for fault in check(cell).diagnostics:
            print(f"line {fault.line}: {fault.severity} {fault.code}: {fault.message} {fault.remedy}".rstrip())

    @cell_command
    @argument("name", help="the session")
    @argument("--file", default=None, help="the file of the source that the cell replaces; default: its main file")
    def kernel_code(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell is the session's new kernel code: a turn of yours, verified like any other."""
        self.session(args.name).edit_source({args.file: cell} if args.file else cell)

    @cell_command
    @argument("name", help="the session")
    def kernel_answer(self, args: argparse.Namespace, cell: str = "") -> None:
        """The cell answers the brief of the role that you hold (%%kernel_show NAME brief), as a model would."""
        self.session(args.name).answer(cell)

    @cell_command
    @argument(
        "name", nargs="?", help="a session, or a variable that holds a task; may be left out with only one session"
    )
    @argument("--task", metavar="FILE", help="a task's file, or a variable that holds a task, instead of a session")
    @argument("--file", help="the file of the session's source that the cell replaces; default: the cell is kernel.py")
    @takes(VerifyCall)
    @argument("--background", metavar="NAME", help="return at once and bind NAME to a handle: await it, or cancel() it")
    def kernel_verify(self, args: argparse.Namespace, cell: str = "") -> Any:
        """Judge the kernel in the cell: a module that defines kernel(*inputs). Nothing is added to the session.

        The stages are shown as they end, then the verdict. Interrupting the kernel stops it. With --background the
        notebook continues meanwhile: `await NAME` is the verdict, `NAME.cancel()` stops it.

            %%kernel_verify rms_norm --level T4 --baseline compile --baseline old_kernel.py
            import torch
            ...
        """
        from kernellab.notebook.magics.verify_cell import named_task, verification
        from kernellab.verifier.protocol.option_words import verify_options

        call = request(args, VerifyCall)
        options = verify_options(call, call.dsl).model_copy(update={"unsandboxed": call.unsandboxed})
        if args.background:
            self.check_name(args.background)
        session = None
        other = args.name in self.namespace and args.name not in session_names(cast("InteractiveShell", self.shell))
        if args.task or other:
            task = named_task(args.task or args.name, self.namespace)
        else:
            session = self.session(args.name)
            task = named_task(session.name, {session.name: session})
        name = args.background or ""
        running = verification(
            cell, session, task, file=args.file, dsl=args.dsl, options=options, name=name, where=call.target
        )
        if not args.background:
            return running.run()
        self.namespace[args.background] = running
        running.start()
        return None

    def _design_backward(self, forward: Session, options: dict[str, Any]) -> None:
        """The backward of a design, with the same options, below it, and the forward that saves what it reads; where
        there is none, a sentence says why."""
        from kernellab.errors import KernellabError
        from kernellab.model_integration.gradient.derive import pair_texts
        from kernellab.model_integration.gradient.pair import designed
        from kernellab.notebook.board.registry import keep_receipt
        from kernellab.session import design
        from kernellab.task import load_task

        try:
            task = load_task(forward.state.created.text, forward.name)
            texts = pair_texts(task)
            pair = designed(task, forward, texts, lambda text, name: design(text, name=name, **options))
        except KernellabError as error:
            print(f"No backward is designed for {forward.name}. {error}")
            return
        both = f"{forward.name}_pair"
        self.namespace[both] = pair
        for session in pair.sessions[1:]:
            self.namespace[session.name] = session
            self.show_live(session)
            keep_receipt(session)
        saving = f" {pair.saving.name} is the forward that saves what it reads." if pair.saving is not None else ""
        print(
            f"{pair.backward.name} is the backward of {forward.name}.{saving} When all have ended, {both}.verify() "
            f"compares all gradients and the results with autograd's and times a step, {both}.function is a function "
            f'that autograd knows, and {both}.export("{forward.name}.py") writes it as a module.'
        )

    def _task_cell(self, name: str, words: str, head: str, roles: str, budget: str | None) -> None:

        proposed = propose(words, name, roles or None, budget or self.lab.budget)
        self.next_cell(f"{head}\n{proposed.text.strip()}\n")
        print(f"The task of {name} is in the next cell: read it, change what is wrong, and run it.")
        for flag in proposed.flags:
            print(f"  it is weak as a test: {flag}")


# -- an operator in words becomes a cell: a task's text, for a person to read before it is used ------------------------

#: what was said for a task that is not designed for yet, by the session's name
_said: dict[str, tuple[Exchange, ...]] = {}


def propose(words: str, name: str, roles: str | None, budget: str) -> Proposal:
    """Blocking: asks the model that designs or codes (``roles``), else the one that is configured.

    Raises:
        SessionError: no model is configured.
        TaskError: no reply was a usable task.
        ModelError: the model did not answer.
    """
    from kernellab.agents.roles import is_model, parse_roles
    from kernellab.records import Role
    from kernellab.session.turn.task_from_text import propose_task

    specs, _ = parse_roles(roles)
    spec = next((s for role in (Role.DESIGNER, Role.CODER) if is_model(s := specs[role])), "model")
    proposal = propose_task(words, spec, name, budget=budget)
    _said[name] = proposal.exchanges
    return proposal


def said_for(name: str) -> tuple[Exchange, ...]:
    """What was said for the task of that name, once: its session keeps it."""
    return _said.pop(name, ())
