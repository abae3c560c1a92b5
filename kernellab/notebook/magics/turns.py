"""The magics that step, redirect and steer a session: each is one call on it, and returns at once."""

from __future__ import annotations

import argparse

from IPython.core.magic import magics_class
from IPython.core.magic_arguments import argument

from kernellab.notebook.magics.base import ONE, KernelMagic, line_command

ROLES = ("designer", "coder", "conductor", "analyst")


@magics_class
class TurnMagics(KernelMagic):
    """step, run, pause, stop, fork, undo, tune, approve, note, budget, ask, pin."""

    @line_command
    @argument("name", nargs="?", help=ONE)
    def kernel_step(self, args: argparse.Namespace) -> None:
        """Take one more turn."""
        self.session(args.name).step()

    @line_command
    @argument("name", nargs="?", help=ONE)
    def kernel_run(self, args: argparse.Namespace) -> None:
        """Take turns until the session ends or its approval policy stops it."""
        self.session(args.name).run()

    @line_command
    @argument("name", nargs="?", help=ONE)
    def kernel_pause(self, args: argparse.Namespace) -> None:
        """Stop after the turn that is running."""
        self.session(args.name).pause()

    @line_command
    @argument("name", nargs="?", help=ONE)
    def kernel_stop(self, args: argparse.Namespace) -> None:
        """End the session now; what it has done stays."""
        self.session(args.name).stop()

    @line_command
    @argument("name", help="the session")
    @argument("--turn", required=True, help="the turn to continue from, a number of %%kernel_show NAME turns")
    def kernel_fork(self, args: argparse.Namespace) -> None:
        """Continue from an earlier turn; what came after it stays in the tree."""
        self.session(args.name).fork(turn=args.turn)

    @line_command
    @argument("name", nargs="?", help=ONE)
    def kernel_undo(self, args: argparse.Namespace) -> None:
        """Take your last approval, edit, pin, redirection or fork back."""
        from kernellab.notebook.board.commands import take_back

        print(take_back(self.session(args.name)))

    @line_command
    @argument("name", nargs="?", help=ONE)
    @argument("--limit", default="20", help="at most so many points (20) or seconds (20s)")
    def kernel_tune(self, args: argparse.Namespace) -> None:
        """Measure the rules' designs against each other, and verify the fastest; no tokens."""
        self.session(args.name).tune(args.limit)

    @line_command
    @argument("name", nargs="?", help=ONE)
    @argument(
        "--to", choices=("coder", "designer", "finish", "stop", "me"), help="send the work elsewhere than proposed"
    )
    @argument("--suggestion", nargs="+", help="a suggestion for the next role in place of the proposed one")
    def kernel_approve(self, args: argparse.Namespace) -> None:
        """Approve what the Conductor proposes, as it is or changed."""
        self.session(args.name).approve(to=args.to, suggestion=_words(args.suggestion))

    @line_command
    @argument("name", help="the session")
    @argument("role", choices=ROLES, help="the role that the note is for")
    @argument("words", nargs="+", help="a note that the role gets in each of its turns")
    def kernel_note(self, args: argparse.Namespace) -> None:
        """Tell a role something: "keep BLOCK <= 128, I will fuse this later"."""
        from kernellab.notebook.board.commands import who_reads

        session = self.session(args.name)
        session.note(args.role, _words(args.words) or "")
        print(who_reads(session, args.role))

    @line_command
    @argument("name", help="the session")
    @argument(
        "budget", nargs="?", default="", help="tokens=200000,usd=1,minutes=10; without one, the limits are removed"
    )
    def kernel_budget(self, args: argparse.Namespace) -> None:
        """What the session's models may spend from now on, all that they have spent included."""
        self.session(args.name).set_budget(args.budget)

    @line_command
    @argument("name", help="the session")
    @argument("question", nargs="*", help="your question; without one, a summary is written")
    def kernel_ask(self, args: argparse.Namespace) -> None:
        """Ask the Analyst about the session; waits for the answer, which is a turn that moves nothing."""
        turn = self.session(args.name).analyse(_words(args.question) or "", wait=600)
        assert turn is not None
        print(turn.error or turn.rationale)

    @line_command
    @argument("name", help="the session")
    @argument("line", type=int, help="a line of its sketch, from 1")
    @argument("--off", action="store_true", help="remove the pin")
    @argument("--reason", nargs="+", help="why, as a comment on the line")
    def kernel_pin(self, args: argparse.Namespace) -> None:
        """Pin a line of the sketch: an agent's revision that changes it is refused."""
        session = self.session(args.name)
        if args.off:
            session.unpin(args.line)
        else:
            session.pin(args.line, _words(args.reason) or "")


def _words(words: list[str] | None) -> str | None:
    return " ".join(words).strip("\"'") if words else None
