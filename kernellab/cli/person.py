"""A person in a role, in a shell: the brief as a file, and the answer from a file or an editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kernellab.agents.model.reply.answers import AnswerError
from kernellab.cli.output import read_text, say, write_files
from kernellab.content import WORKSPACE
from kernellab.errors import SessionError

if TYPE_CHECKING:
    from kernellab.records import Role
    from kernellab.session import Question, Session

#: in a file that an editor opens: the brief above it, the answer below it
MARK = "======== Write your answer below this line; an empty one leaves the session as it is. ========"


def asked(session: Session) -> Role | None:
    """The role that a person is asked to play now; None where the session asks for none."""
    question = _open(session, "brief")
    return question.role if question is not None else None


def read_answer(path: Path) -> str:
    """The answer in a file (``-`` is standard input); of a file that holds a brief, what stands below it.

    Raises:
        KernellabError: it cannot be read.
        SessionError: it is empty.
    """
    text = sys.stdin.read() if str(path) == "-" else read_text(path, "answer")
    answer = text.rpartition(MARK)[2].strip()
    if not answer:
        raise SessionError(f"The answer {path} is empty.", "Write what the brief asks for.")
    return answer


def take(session: Session, answer: str) -> None:
    """Give the answer to the role that is asked for, and wait until the session ends or asks again.

    Raises:
        SessionError: nothing is asked of a person.
        AnswerError: the answer does not hold what the role is asked for.
    """
    if asked(session) is None:
        raise SessionError(
            f"The session is not waiting for you: it is {session.state.status_words}.",
            "Give a role to a person: --roles.",
        )
    session.answer(answer)
    wait(session)
    while _open(session, "route"):  # a shell has no one else to ask; the next brief says why the work comes back
        session.approve()
        wait(session)


def wait(session: Session) -> None:
    """Until the session ends or asks for work; what an agent asks for meanwhile is answered at the terminal."""
    session.wait(progress=True)
    while at_terminal() and (question := _open(session, "permission")):
        say(f"{question.text}\n{question.suggestion}".strip())
        answer = typer.prompt("Allow it? once, turn or never", default="never", err=True)
        try:
            session.approve(to=answer.strip(), card=question.id)
        except SessionError as error:
            say(str(error))
        session.wait(progress=True)


def _open(session: Session, kind: str) -> Question | None:
    """The question that the session waits with, where it is of that kind."""
    question = session.state.question
    asks = session.status.value == "waiting" and question is not None and question.kind.value == kind
    return question if asks else None


def by_editor(session: Session) -> None:
    """Open each brief in the person's editor and take the answer, until nothing is asked or an answer is empty.

    An answer that cannot be used is opened again, with its fault above the mark.
    """
    fault, kept = "", ""
    while (role := asked(session)) is not None:
        text = f"{session.brief()}\n\n{fault}{MARK}\n{kept}"
        path = Path(write_files(_folder(session), {f"{session.id}.{role.value}.answer.md": text})[0])
        subprocess.run([*shlex.split(_editor()), str(path)], check=False)
        answer = read_text(path, "answer").rpartition(MARK)[2].strip()
        if not answer or (fault and answer == kept.strip()):
            return
        try:
            take(session, answer)
            fault, kept = "", ""
        except AnswerError as error:
            fault, kept = f"Your answer cannot be used. {error}\n\n", answer + "\n"


def has_editor() -> bool:
    """Does a person sit at a terminal, with their editor?"""
    return bool(_editor()) and sys.stdin.isatty() and sys.stdout.isatty()


def at_terminal() -> bool:
    """Can a person be asked here?"""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _editor() -> str:
    return os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""


def write_brief(session: Session, role: Role) -> Path:
    """The brief as a file next to the journal."""
    return Path(write_files(_folder(session), {f"{session.id}.{role.value}.md": session.brief() + "\n"})[0])


def _folder(session: Session) -> Path:
    return session.workspace / WORKSPACE / "briefs"


def say_how(path: Path, role: Role) -> None:
    """What to do with a brief, in a sentence."""
    say(f"You are the {role.value}. The brief is in {path}.")
    say("Write your answer to a file and give it to the same call with --answer FILE.")
