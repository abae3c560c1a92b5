"""Judging a kernel that stands in a cell: for a session's task, a file's, or one that the notebook holds.

While it runs, the cell shows the stages as they end (``verify_view.py``); then the verdict with all that the workbench
tells of one, as HTML that stays readable without a kernel. An interrupt of the cell stops the judge. With
``--background`` the cell returns at once and the kernel stays free.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, SessionError
from kernellab.notebook.magics.verify_view import StagesView
from kernellab.notebook.saved.receipt import Shown, verdict_shown
from kernellab.notebook.views.verdict import verdict_text
from kernellab.records import Author, Source, Verdict
from kernellab.session import Session
from kernellab.session.engine.engine import engine
from kernellab.task import Task, load_task

if TYPE_CHECKING:
    from kernellab.target import Target
    from kernellab.verifier.protocol.options import VerifyOptions

# -- what is judged ----------------------------------------------------------------------------------------------------


def task_of(value: object, name: str) -> Task | None:
    """The task that a value of the notebook stands for: a Session, a Task, a task's text, or a path; None for others.

    Raises:
        TaskError: it is text or a path of a task that cannot be loaded.
    """
    if isinstance(value, Session):
        created = value.state.created
        return load_task(created.text, created.name)
    if isinstance(value, Task):
        return value
    if isinstance(value, Path):
        return load_task(value)
    if isinstance(value, str):
        return load_task(value, name) if "\n" in value else load_task(Path(value))
    return None


def named_task(name: str, namespace: Mapping[str, Any]) -> Task:
    """The task of ``--task NAME``: a variable of the notebook, else a file.

    Raises:
        SessionError: the variable holds no task. TaskError: the file cannot be loaded.
    """
    if name not in namespace:
        return load_task(Path(name))
    task = task_of(namespace[name], name)
    if task is None:
        kind = type(namespace[name]).__name__
        raise SessionError(f"{name} is a {kind}, not a task.", "Name a session, a Task, a task's text, or its file.")
    return task


def source_of(text: str, session: Session | None, file: str | None, dsl: str | None) -> Source:
    """The cell as a source: a separate module, or one file of the session's newest source.

    Raises:
        SessionError: ``file`` without a source that has it. TargetError: no DSL has that name.
    """
    from kernellab.dsls import get_adapter
    from kernellab.dsls.detect import dsl_of
    from kernellab.verifier.protocol.option_words import plain_dsl

    earlier = session.source if session is not None else None
    if file is not None:
        if earlier is None:
            raise SessionError(f"There is no source whose {file} the cell could replace.", "Leave --file out.")
        files = {**earlier.files, file: text}
        return earlier.model_copy(update={"files": files, "origin": Author.HUMAN, "line_map": {}})
    if dsl is not None:
        get_adapter(dsl)
    files = {"kernel.py": text}
    chosen = dsl or dsl_of(files) or (earlier.dsl if earlier else plain_dsl())
    return Source(dsl=chosen, files=files, origin=Author.HUMAN)


# -- running -----------------------------------------------------------------------------------------------------------


class Verification:
    """One verification of a cell, in the foreground (:meth:`run`) or in the background (:meth:`start`).

    ``await it`` or ``it.verdict`` waits; ``it.cancel()`` ends the judge.
    """

    def __init__(self, task: Task, source: Source, target: Target, options: VerifyOptions, name: str = "") -> None:
        self.task, self.source, self.target, self.options, self.name = task, source, target, options, name
        self.view = StagesView()
        self.cancelled = False
        self._judging = threading.Event()
        self._ended = threading.Event()
        self._verdict: Verdict | None = None
        self._error: BaseException | None = None

    def run(self) -> Shown:
        """The verdict; blocks, and an interrupt of the kernel stops the judge.

        Raises:
            SessionError: it was interrupted.
            TaskError, TargetError, VerifierError: it cannot be judged here.
        """
        self.view.begin()
        try:
            verdict = self._verify()
        except KeyboardInterrupt:
            self.view.end("stopped")
            raise _stopped() from None
        except BaseException:
            self.view.end("not judged")
            raise
        self.view.end()
        return verdict_shown(verdict)

    def start(self) -> Verification:
        """Judges in a thread; the cell's output shows the stages and then the verdict."""
        self.view.begin()
        threading.Thread(target=self._judge_in_background, name="kernellab-verify", daemon=True).start()
        return self

    def cancel(self) -> None:
        """Ends the judge, and with it this verification; the next one starts a new judge. Safe to repeat."""
        if not self._ended.is_set() and not self.cancelled:
            self.cancelled = True
            if self._judging.is_set():  # while another verification has the judge, it is not ours to end
                engine().drop_verifier()

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    @property
    def verdict(self) -> Verdict:
        """Waits for it. Raises what kept it from being reached; SessionError when it was cancelled."""
        self._ended.wait()
        if self._error is not None:
            raise self._error
        assert self._verdict is not None
        return self._verdict

    def __await__(self) -> Generator[Any, None, Shown]:
        import asyncio

        yield from asyncio.get_running_loop().run_in_executor(None, self._ended.wait).__await__()
        return verdict_shown(self.verdict)

    def __repr__(self) -> str:
        if self._verdict is not None:
            return verdict_text(self._verdict)
        word = "ended" if self.done else "running"
        return f"{self.name or 'a verification'}: {word}; `await` it, or `.cancel()` it"

    def _judge_in_background(self) -> None:
        try:
            self._verdict = self._verify()
        except BaseException as error:
            self._error = _stopped() if self.cancelled else error
        state = "stopped" if self.cancelled else f"{self._error}" if self._error else ""
        self.view.end(state, verdict=self._verdict)
        self._ended.set()

    def _verify(self) -> Verdict:
        with engine().verifying:
            if self.cancelled:
                raise _stopped()
            judge = engine().verifier()
            self._judging.set()
            return judge.verify(self.task, self.source, self.target, options=self.options, progress=self.view)


def _stopped() -> KernellabError:
    return SessionError("The verification was stopped, and nothing was decided.", "Run the cell again.")


def verification(
    text: str, session: Session | None, task: Task, *, file: str | None, dsl: str | None, options: VerifyOptions,
    name: str = "", where: str = "",
) -> Verification:  # fmt: skip
    """The verification of the cell's ``text`` for ``task``.

    Raises:
        SessionError, TargetError: there is nothing to judge, or nothing to judge it on.
    """
    from kernellab.verifier.remote import target_at

    source = source_of(text, session, file, dsl)
    where = where or (session.target.host if session is not None else "")
    if session is not None and (session.target.dsl, session.target.host) == (source.dsl, where):
        target = session.target
    else:
        target = target_at(where, source.dsl)
    return Verification(task, source, target, options, name)
