"""Where tools work: the workspace or the turn, and the judge that is kept warm between calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.errors import KernellabError, SessionError, TaskError
from kernellab.tools.records import ToolError

if TYPE_CHECKING:
    from kernellab.records import Source
    from kernellab.session import Session
    from kernellab.target import Target
    from kernellab.task import Task
    from kernellab.verifier import Verifier

#: kernels that one server judges, for all of its clients together (who may be one agent): with more the judge is an
#: oracle for hidden cases
MOST_VERDICTS = 200
#: where an agent finds the code that its turn changes
CODE = "kernel"


@dataclass
class Context:
    """Where tools work: a workspace, and what is kept warm between calls.

    ``progress`` gets a sentence as work continues; ``cancel`` ends it. Tools of one context may run in several threads:
    the judge serves one verification at a time.
    """

    workspace: Path
    progress: Callable[[str], None] = lambda text: None
    cancel: threading.Event = field(default_factory=threading.Event)
    #: the only task of an agent's turn, and the folder below which its paths lie; None: the workspace's
    bound: Task | None = None
    folder: Path | None = None
    #: where the turn's session judges, and the chip that it designs for
    at: Target | None = None
    #: the code that the turn changes: files that a request does not name are its own
    base: Source | None = None
    #: has the person allowed kernels to run with the person's rights, which a GPU's counters need?
    unsandboxed: bool = False
    _shared: _Shared = field(default_factory=lambda: _Shared())

    def of_call(self, progress: Callable[[str], None], cancel: threading.Event) -> Context:
        """The same workspace and judge for one call, with that call's progress and end."""
        return replace(self, progress=progress, cancel=cancel)

    def task(self, name: str) -> Task:
        """The task of a file below the workspace, or of a session of that name.

        Raises:
            TaskError: it is neither, or the file lies outside of the workspace.
        """
        from kernellab.session import sessions
        from kernellab.task import identifier, load_task

        if not name:
            raise ToolError("No task is named.", "Give the name of a task's file below the workspace, or of a session.")
        if self.bound is not None:
            if name != self.bound.name:
                raise TaskError(f"{name!r} is not the task of this turn.", f"Its name is {self.bound.name}.")
            return self.bound
        if isinstance(text := self.read(name), str):
            # with a line's end it is a text, and no path
            return load_task(text if "\n" in text else f"{text}\n", identifier(Path(name).stem))
        if "\n" in name:
            raise TaskError(
                "A task's text is no name of it.", "Write the text to a file of the workspace and name that."
            )
        names = sorted({known.rpartition("-")[0] for known in sessions(self.workspace)})
        if self._is_session(name):
            created = self.session(name).state.created
            return load_task(created.text, created.name)
        known = f" Sessions: {', '.join(names[:12])}." if names else ""
        raise TaskError(f"There is no task file or session {name!r} in the workspace.{known}", "Name one of its files.")

    def target(self, dsl: str = "", task: str = "") -> Target:
        """Where a kernel is judged, and its chip: of the turn's session, or of the session that ``task`` names; else
        this machine. Raises TargetError, VerifierError: there is none for ``dsl`` there."""
        from kernellab.verifier.remote import target_at

        at = self.at
        if at is None and self.bound is None and self._is_session(task) and not isinstance(self.read(task), str):
            at = self.session(task).target
        if at is not None and dsl in ("", at.dsl):
            return at
        return target_at(at.host if at is not None else "", dsl or None)

    def _is_session(self, name: str) -> bool:
        from kernellab.session import sessions

        known = sessions(self.workspace)
        return name in known or name in {one.rpartition("-")[0] for one in known}

    def session(self, name: str, resume: bool = False) -> Session:
        """Raises ToolError: there is none of that name."""
        from kernellab.session import open_session

        try:
            return open_session(name, self.workspace, resume)
        except SessionError as error:
            raise ToolError(
                error.message, "begin_session begins one; list_sessions names those that are here."
            ) from None

    def read(self, name: str, endings: Collection[str] = ()) -> str | dict[str, str] | None:
        """The text of a file below the workspace, or below an agent's folder; of a folder, the files with ``endings``.
        None: there is nothing. No link is followed: what an agent cannot read itself is not read for it.

        Raises:
            ToolError: it lies outside. KernellabError: it is a link, or no text.
        """
        from kernellab.sandbox.beneath import read_beneath

        if "\0" in name:
            raise ToolError(f"{name!r} holds a NUL.", "Give a path without it.")
        folder = Path(os.path.abspath(self.folder or self.workspace))
        path = Path(os.path.normpath(folder / name))
        wanted = (lambda file: Path(file).suffix in endings) if endings else None
        for root in (folder, folder.resolve()):
            if path.is_relative_to(root):
                return read_beneath(folder, path.relative_to(root), wanted)
        where = "your folder" if self.folder else "the workspace"
        raise ToolError(f"{name!r} lies outside of {where}.", f"Give a path below {where}.")

    def judge(self) -> Verifier:
        """The warm judge of this workspace's tools. Raises ToolError: as :meth:`count`."""
        return self._shared.judge()

    def count(self) -> None:
        """One more kernel goes to a judge. Raises ToolError: so many did that the judge would be an oracle."""
        self._shared.count()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """As :meth:`count`, but for what is refused inside: no judge met it."""
        self.count()
        try:
            yield
        except KernellabError:
            self._shared.give_back()
            raise

    def use_sessions_of_this_process(self) -> None:
        """An agent's program does, until :meth:`close`: what is judged meanwhile says so."""
        self._shared.use_sessions_of_this_process()

    def close(self) -> None:
        self._shared.close()


class _Shared:
    """The judge, started when it is first asked for, and the count of what it was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._verifier: Verifier | None = None
        self._asked = 0
        self._is_in_engine = False

    def use_sessions_of_this_process(self) -> None:
        from kernellab.session.engine.engine import engine

        with self._lock:
            if self._asked <= MOST_VERDICTS:
                engine().agents.add(self)
                self._is_in_engine = True

    def judge(self) -> Verifier:
        from kernellab.verifier import Verifier

        self.count()
        with self._lock:
            if self._asked > MOST_VERDICTS:
                raise ToolError("This server has ended.", "Start the server again.")
            if self._verifier is None:
                self._verifier = Verifier()
                self._verifier.__enter__()
            return self._verifier

    def count(self) -> None:
        with self._lock:
            if self._asked >= MOST_VERDICTS:
                raise ToolError(
                    f"This server has judged {MOST_VERDICTS} kernels for its clients, which is the limit.",
                    "Choose with cost_sketch and lens first; start the server again to go on.",
                )
            self._asked += 1

    def give_back(self) -> None:
        with self._lock:
            if 0 < self._asked <= MOST_VERDICTS:
                self._asked -= 1

    def close(self) -> None:
        with self._lock:
            if self._verifier is not None:
                self._verifier.__exit__(None, None, None)
                self._verifier = None
            # a call that is still under way starts no other judge
            self._asked = MOST_VERDICTS + 1
            if self._is_in_engine:
                from kernellab.session.engine.engine import engine

                engine().agents.discard(self)
